//! Attacks on the server: crowds, clients that leave or dawdle, bodies that lie, faults inside, its end, its secrets.
//! Everything goes to a port of this machine, is counted and ends.

mod bodies;
mod bounds;
mod clients;
mod guard;
mod life;
mod load;
mod outside;
mod promise;

use super::{Suite, Test};
use crate::serving::http::{post_form, post_json};
use anyhow::{Result, ensure};
use flatclip::Image;
use flatclip::image::sheet::encode_png;
use serde_json::{Value, json};

/// S1 to S26.
pub(super) const TESTS: &[Test] = &[
    test(
        "S1",
        "10 000 requests of 1 000 clients at once, one image each",
        "only 200 and 429 or 503 with Retry-After; memory grows by less than 100 MB; p99 of accepted below the deadline",
        load::crowd,
    ),
    test(
        "S2",
        "requests at 0.5, 1, 2 and 10 times the capacity that was measured before: a random ViT-B/32, 8 views each",
        "at 2 and 10 times at least 90 % of the capacity is served, and p99 of accepted stays within twice that at 1",
        load::overload,
    ),
    test("S3", "200 clients, 4 workers, one image per batch", "exactly 4 are worked on at most", load::in_work),
    test(
        "S4",
        "half of 1 000 clients leave after sending",
        "every ticket comes back; the others are answered",
        clients::leave,
    ),
    test(
        "S5",
        "500 connections send a byte per second; others go on",
        "each is cut off within 12 s; p99 of the others stays below a second",
        clients::dawdle,
    ),
    test(
        "S6",
        "bodies that are empty, too long, endless, zipped, broken, nested, doubled",
        "400, 408, 413, 415 or 422 with a code; memory within the limit",
        bodies::table,
    ),
    test(
        "S7",
        "damaged PNG, JPEG, GIF and BMP files and bombs are posted",
        "200 or 4xx with the library's code; no panic",
        bodies::images,
    ),
    test(
        "S8",
        "panics injected into a handler and a worker",
        "500 for that client only; the next is answered within a second",
        life::panics,
    ),
    test("S9", "SIGTERM under load", "every accepted request is answered; exit code 0 within 25 s", life::terminate),
    test(
        "S10",
        "liveness and readiness: while warming up, while the queue is full, while stopping",
        "live at once; ready only when it is",
        life::health,
    ),
    test(
        "S11",
        "no key, wrong keys, the right one; time of 10 000 wrong keys by length of the right beginning",
        "401 or 200; no trend by prefix",
        guard::keys,
    ),
    test(
        "S12",
        "a key in a file and in the environment; errors of all kinds; then its text is looked for in log, metrics and answers",
        "0 hits",
        guard::secrets,
    ),
    test(
        "S13",
        "client A streams shifted images, client B asks a fixed probe",
        "B's answers are the same bytes with and without A",
        clients::isolation,
    ),
    test(
        "S14",
        "a short soak at 80 % of the capacity",
        "memory slope below 1 MB in 10 minutes or, as it is short, below 2 MB in its second half; open files constant; no error",
        load::soak,
    ),
    test(
        "S15",
        "the page in a real browser: policy, console, foreign addresses, markup in names, keyboard, roles",
        "no complaint",
        outside::page,
    ),
    test(
        "S16",
        "schemathesis makes requests from openapi.json",
        "no 5xx, statuses and bodies as described",
        outside::schema,
    ),
    test(
        "S17",
        "addresses given as images: http, file, data, decimal, redirect",
        "refused; nothing is fetched",
        guard::addresses,
    ),
    test(
        "S18",
        "256 texts, and the same output named 1 000 times (29 KB); before there was a bound: 10.2 s, 2 929 MB, 2 283 MB left",
        "refused; less than 64 MB",
        bounds::outputs,
    ),
    test(
        "S19",
        "bodies of 16 MB that are made to become larger when they are read: objects, lists, empty names; before: 5.7 to 15.8 s, up to 5 695 MB, 4.3 GB left",
        "refused; less than 96 MB each, of which less than 32 MB are left three seconds later",
        bounds::amplification,
    ),
    test(
        "S20",
        "two requests for the 1 000 ImageNet classes in 80 templates at once, on a random ViT-B/32; before: both 504, and 504 for everybody else",
        "told how long it takes; another client gets at least a quarter of its usual rate meanwhile",
        bounds::builds,
    ),
    test(
        "S21",
        "two clients ask for 32 images and 2 000 classes and do not read; then two more, and SIGTERM; before: 429 for everybody else, 25 s from SIGTERM to the end",
        "another client is answered; the end takes less than 12 s",
        bounds::deafness,
    ),
    test(
        "S22",
        "32 images of 25 megapixels in 2.7 MB; before: 4 687 MB (embed), 2 327 MB (classify)",
        "less than 512 MB at the peak, less than 128 MB afterwards",
        bounds::pixels,
    ),
    test(
        "S23",
        "16 sockets announce 16 MB and send one byte, or all but ten; before: 503 for every upload for 10 s",
        "uploads of another client are answered, none is refused",
        bounds::announced,
    ),
    test(
        "S24",
        "64 open files and 120 idle sockets; 200 000 requests that no scrape reads about; before: 20.1 s, 390 lines of log; 17.8 bytes a request",
        "another client is answered within 2 s, one line in the log; less than 4 bytes a request",
        bounds::files,
    ),
    test(
        "S25",
        "one client opens 80 sessions; requests by another name, and of pages elsewhere; before: all 64 sessions, 200",
        "half of the sessions are left to others; 403",
        bounds::shares,
    ),
    test(
        "S26",
        "64 hostile clients for 60 s: repeated outputs, amplified JSON, new class lists, unread answers, large images, uploads that stand \
         still, idle sockets, sessions, 256 views, slices",
        "memory below the models and 512 MB; 99 % of /healthz within 100 ms; an honest client gets at least a quarter of its usual rate",
        promise::promise,
    ),
];

const fn test(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    run: fn(&mut super::Trial) -> Result<()>,
) -> Test {
    Test { name, suite: Suite::Server, what, rule, patience: 900, run }
}

const CLASSES: [&str; 6] = ["fish", "lamp", "snail", "boat", "clock", "bicycle"];

/// A small image that differs by its number.
fn image(number: u32) -> Result<Vec<u8>> {
    let rgb = (0..64 * 64 * 3u32).map(|place| (place * 7 + number * 13 + place / 191 * number) as u8).collect();
    Ok(encode_png(&Image { width: 64, height: 64, rgb })?)
}

/// A request with one image.
fn question(method: &str, views: usize, number: u32) -> Result<Vec<u8>> {
    let views = views.to_string();
    let fields = [("classes", "fish,lamp,snail,boat,clock,bicycle"), ("method", method), ("views", &views)];
    Ok(post_form("/v1/classify", &fields, &[&image(number)?]))
}

/// The same as JSON, for changes.
fn question_json(image: &[u8]) -> Value {
    json!({ "image": crate::serving::base64(image), "classes": CLASSES })
}

fn ask_json(address: std::net::SocketAddr, path: &str, body: &Value) -> Result<crate::serving::http::Answer> {
    crate::serving::http::ask(address, &post_json(path, body))
}

/// A refusal that tells when to come back.
fn check_refusal(answer: &crate::serving::http::Answer) -> Result<()> {
    ensure!(answer.header("retry-after").is_some(), "{} without Retry-After", answer.status);
    Ok(())
}
