//! The promise in short: 64 hostile clients for some seconds, and beside them the memory of the process, `/healthz` and an honest
//! client. `FLATCLIP_FAULT_SCALE=8` makes it a minute long and judges the honest client's rate, too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{CLASSES, Running, base64, config, image, long_answer, request};
use flatclip::Image;
use flatclip::image::sheet::encode_png;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HOSTILE: usize = 64;
const SECONDS: u64 = 8;

/// The status; 0 for a connection that broke.
fn ask(server: &Running, request: &[u8]) -> u16 {
    let mut stream = server.connect();
    let _ = stream.write_all(request);
    let mut head = [0; 12];
    if stream.read_exact(&mut head).is_err() {
        return 0;
    }
    // The rest is taken in small pieces: this process's memory is measured.
    let mut part = [0; 4096];
    while stream.read(&mut part).is_ok_and(|count| count > 0) {}
    std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap()
}

/// The same on a connection that stays open, as clients of libraries do.
fn ask_again(stream: &mut TcpStream, request: &[u8]) -> Option<u16> {
    stream.write_all(request).ok()?;
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
            if body.len() >= length {
                return head.get(9..12)?.parse().ok();
            }
        }
        match stream.read(&mut part).ok()? {
            0 => return None,
            count => seen.extend(&part[..count]),
        }
    }
}

fn post(path: &str, body: &Value) -> Vec<u8> {
    request(path, "", body.to_string().as_bytes())
}

/// What hostile clients send, and whether they read the answer.
fn weapons() -> Vec<(Vec<u8>, bool)> {
    let image = base64(&image(1));
    let names: Vec<String> = (0..2000).map(|number| format!("thing {number}")).collect();
    let large = encode_png(&Image { width: 4000, height: 4000, rgb: vec![9; 48_000_000] }).unwrap();
    let outputs = vec![json!({ "name": "text_embedding" }); 1000];
    let inputs = json!([{ "name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"] }]);
    let options = format!("{{\"options\":{{\"x\":[{}0]}}}}", "{\"\":0},".repeat(250_000));
    let announced = format!("POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 16 << 20);
    vec![
        (post("/v2/models/pocket/infer", &json!({ "inputs": inputs, "outputs": outputs })), true),
        (request("/v1/classify", "", options.as_bytes()), true),
        (post("/v1/classify", &json!({ "image": image, "class_set": "imagenet", "ensemble": "imagenet80" })), true),
        (long_answer(), false),
        (post("/v1/embed/image", &json!({ "images": vec![base64(&large); 8] })), true),
        ([announced.as_bytes(), &vec![b' '; 1 << 20]].concat(), false),
        (post("/v1/sessions", &json!({ "classes": names, "method": "tda" })), true),
        (
            post(
                "/v1/classify",
                &json!({ "images": vec![image.as_str(); 8], "classes": CLASSES, "method": "zero", "views": 256 }),
            ),
            true,
        ),
        (post("/v1/slice", &json!({ "image": image, "classes": names, "points": 31 })), true),
    ]
}

#[test]
fn hostile_clients_take_neither_memory_nor_health() {
    let server = Running::start(config());
    let scale = std::env::var("FLATCLIP_FAULT_SCALE").map_or(1.0, |text| text.parse().unwrap());
    let seconds = (SECONDS as f64 * f64::max(scale, 1.0)) as u64;
    let weapons = weapons();
    let honest = post("/v1/classify", &json!({ "image": base64(&image(2)), "classes": CLASSES }));
    let honest = String::from_utf8(honest).unwrap().replacen("connection: close\r\n", "", 1).into_bytes();
    let health = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let rate = |seconds: u64| {
        let (start, mut count, mut stream) = (Instant::now(), 0, server.connect());
        while start.elapsed() < Duration::from_secs(seconds) {
            match ask_again(&mut stream, &honest) {
                Some(status) => count += u64::from(status == 200),
                None => stream = server.connect(),
            }
        }
        count as f64 / start.elapsed().as_secs_f64()
    };
    rate(1);
    let usual = rate(3);
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = flatclip::resident_memory().0;
    let (beside, mut times) = std::thread::scope(|scope| {
        for client in 0..HOSTILE {
            let (over, server, (weapon, reads)) = (&over, &server, &weapons[client % weapons.len()]);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if *reads {
                        ask(server, weapon);
                    } else {
                        let mut stream = server.connect();
                        let _ = stream.write_all(weapon);
                        std::thread::sleep(Duration::from_secs(2));
                    }
                    // They share the processors with the server.
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(flatclip::resident_memory().0, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let probe = scope.spawn(|| {
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let start = Instant::now();
                assert_eq!(ask(&server, health), 200);
                times.push(start.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
            times
        });
        let beside = rate(seconds);
        over.store(true, Ordering::Relaxed);
        (beside, probe.join().unwrap())
    });
    times.sort();
    let above = most.load(Ordering::Relaxed).saturating_sub(before) >> 20;
    let p95 = times[times.len() * 95 / 100];
    eprintln!("{above} MB, p95 {p95:?} of {}, {beside:.0} of {usual:.0} per second", times.len());
    assert!(above < 512, "{above} MB above the models");
    assert!(p95 < Duration::from_millis(100), "/healthz took {p95:?}");
    assert!(beside > 0.0, "nobody was answered");
    // A share of the usual rate is judged in the long run only: the hostile clients run in the server's own process, and other tests
    // beside it.
    assert!(scale <= 1.0 || beside >= 0.25 * usual, "{beside:.1} of {usual:.1} answers per second");
}
