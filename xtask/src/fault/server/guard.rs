//! S11, S12, S17: keys, secrets, and addresses in place of images.

use super::{CLASSES, ask_json, image, question_json};
use crate::fault::Trial;
use crate::serving::http::{Connection, ask, post};
use crate::serving::running::Running;
use anyhow::{Result, ensure};
use serde_json::json;
use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;

const KEY: &str = "correct-horse-battery-staple-0123456789";

fn get_with(key: Option<&str>) -> Vec<u8> {
    let line = key.map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
    format!("GET /v1/limits HTTP/1.1\r\nhost: localhost\r\n{line}\r\n").into_bytes()
}

fn guarded(trial: &Trial) -> Result<Running> {
    let file = trial.folder.join("key");
    std::fs::write(&file, KEY)?;
    Running::start(&trial.binary, &trial.folder, &["--key-file", &file.display().to_string()])
}

pub(super) fn keys(trial: &mut Trial) -> Result<()> {
    let server = guarded(trial)?;
    let status = |key: Option<&str>| Ok::<u16, anyhow::Error>(ask(server.address, &get_with(key))?.status);
    let upper = KEY.to_uppercase();
    let table = [
        (None, 401),
        (Some(""), 401),
        (Some("x"), 401),
        (Some(&KEY[1..]), 401),
        (Some(upper.as_str()), 401),
        (Some(KEY), 200),
    ];
    for (key, expected) in table {
        trial.case(&format!("key {key:?}"), || {
            let found = status(key)?;
            ensure!(found == expected, "expected {expected}, found {found}");
            Ok(())
        });
    }
    let binary = trial.binary.clone();
    trial.case("other machines need a key", || {
        let output = Command::new(&binary).args(["serve", "--bind", "0.0.0.0:0"]).output()?;
        ensure!(output.status.code() == Some(2), "ended with {}", output.status);
        Ok(())
    });
    // Median time of guesses by how many characters of the beginning are right: interleaved, so that drift hits all alike.
    let lengths = [0, 8, 16, 24, 32, KEY.len() - 1];
    let guess = |right: usize| get_with(Some(&format!("{}{}", &KEY[..right], "#".repeat(KEY.len() - right))));
    let guesses: Vec<Vec<u8>> = lengths.iter().map(|&right| guess(right)).collect();
    let mut times = vec![Vec::new(); lengths.len()];
    let mut connection = Connection::open(server.address)?;
    for turn in 0..trial.count(10_000).div_ceil(lengths.len()).max(50) {
        for place in 0..lengths.len() {
            let place = (place + turn) % lengths.len();
            let start = Instant::now();
            let status = connection.ask(&guesses[place])?.status;
            times[place].push(start.elapsed().as_secs_f64() * 1e6);
            ensure!(status == 401, "status {status}");
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    let (low, high) = medians.iter().fold((f64::MAX, 0.0f64), |(low, high), &m| (low.min(m), high.max(m)));
    trial.note(
        "medians in µs by right characters:",
        medians.iter().map(|m| format!("{m:.1}")).collect::<Vec<_>>().join(" "),
    );
    trial.case("no trend by prefix", || {
        // The right beginning grows from 0 to all but one; a comparison that stops early would rise along the list.
        let rises = medians.windows(2).filter(|two| two[1] > two[0]).count();
        ensure!(rises < medians.len() - 1 || high / low < 1.05, "medians {medians:?}");
        ensure!(high / low < 1.5, "medians {medians:?}");
        Ok(())
    });
    Ok(())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

pub(super) fn secrets(trial: &mut Trial) -> Result<()> {
    let mut texts = Vec::new();
    for by_file in [true, false] {
        let server = if by_file {
            guarded(trial)?
        } else {
            let mut command = Command::new(&trial.binary);
            command.args(["serve", "--bind", "127.0.0.1:0", "-vv", "--json"]).env("FLATCLIP_SERVE_KEY", KEY);
            Running::spawn(command, &trial.folder)?
        };
        let with_key = |path: &str, body: &[u8]| {
            post(path, &format!("authorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"), body)
        };
        let wrong = KEY.replace('c', "k");
        for request in [
            get_with(Some(KEY)),
            get_with(Some(&wrong)),
            get_with(None),
            with_key("/v1/classify", b"{"),
            with_key("/v1/classify", question_json(b"no image").to_string().as_bytes()),
            with_key("/nothing", b""),
            with_key("/v2/models/none/infer", b"{}"),
            with_key("/v1/sessions/none/classify", b"{}"),
            with_key("/v1/classify", question_json(&image(1)?).to_string().as_bytes()),
            format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n").into_bytes(),
            format!("GET /v1/models?key={KEY} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n")
                .into_bytes(),
        ] {
            let answer = ask(server.address, &request)?;
            texts.push(("an answer", format!("{:?}\n{}", answer.headers, answer.text())));
        }
        texts.push(("the log", server.logged()));
    }
    for (place, text) in &texts {
        trial.case(place, || {
            ensure!(!text.is_empty() || *place == "the log", "nothing was said");
            ensure!(!text.contains(KEY) && !text.contains("horse-battery"), "the key stands in {text}");
            Ok(())
        });
    }
    Ok(())
}

pub(super) fn addresses(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    // Whoever connects here was sent by the server.
    let trap = TcpListener::bind("127.0.0.1:0")?;
    trap.set_nonblocking(true)?;
    let port = trap.local_addr()?.port();
    let addresses = [
        format!("http://127.0.0.1:{port}/a.png"),
        format!("http://[::1]:{port}/a.png"),
        format!("http://2130706433:{port}/a.png"),
        format!("http://0x7f.1:{port}/a.png"),
        format!("http://localhost:{port}/redirect"),
        format!("http://127.0.0.1.example.invalid:{port}/a.png"),
        format!("http://user@127.0.0.1:{port}/a.png"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "file:///etc/passwd".to_owned(),
        "/etc/passwd".to_owned(),
        format!("ftp://127.0.0.1:{port}/a.png"),
        "data:text/plain,hello".to_owned(),
    ];
    for address in &addresses {
        for (path, body) in [
            ("/v1/classify", json!({ "image": address, "classes": CLASSES })),
            ("/v1/embed/image", json!({ "image": address })),
            (
                "/hf/zero-shot-image-classification",
                json!({ "inputs": address, "parameters": { "candidate_labels": CLASSES } }),
            ),
        ] {
            trial.case(&format!("{path} {address}"), || {
                let answer = ask_json(server.address, path, &body)?;
                ensure!(answer.status == 422, "status {}: {}", answer.status, answer.text());
                Ok(())
            });
        }
    }
    trial.case("nothing was fetched", || {
        ensure!(trap.accept().is_err(), "the server connected to an address that a client gave");
        Ok(())
    });
    Ok(())
}
