//! A server on a real socket: limits that need one, and its end.
#![allow(clippy::unwrap_used)]

mod common;

use common::{CLASSES, Running, base64, config, image, read, request};
use flatclip_serve::{Config, Limits};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn classify_request(body: &Value, headers: &str) -> String {
    String::from_utf8(request("/v1/classify", headers, body.to_string().as_bytes())).unwrap()
}

fn question(method: &str, views: usize) -> Value {
    json!({ "image": base64(&image(1)), "classes": CLASSES, "method": method, "views": views })
}

#[test]
fn no_more_is_worked_on_than_the_limit_and_the_rest_is_refused() {
    let limits = Limits { workers: 3, queue: 6, batch_views: 1, ..Limits::default() };
    let server = Running::start(Config { limits, ..config() });
    // The classifier is made once, before the crowd comes.
    let request = classify_request(&question("zero", 64), "");
    assert_eq!(server.ask(request.as_bytes()).0, 200);
    let ask = || {
        let (address, request) = (server.address, request.clone());
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            read(&mut stream)
        })
    };
    let crowd: Vec<_> = (0..60).map(|_| ask()).collect();
    let answers: Vec<(u16, String)> = crowd.into_iter().map(|one| one.join().unwrap()).collect();
    let count = |status: u16| answers.iter().filter(|(found, _)| *found == status).count();
    assert_eq!(count(200) + count(429), 60, "{:?}", answers.iter().map(|(status, _)| *status).collect::<Vec<_>>());
    assert!(count(200) >= 6 && count(429) > 0);
    let refused = answers.iter().find(|(status, _)| *status == 429).unwrap();
    assert!(refused.1.to_lowercase().contains("retry-after: 1"));
    assert_eq!(server.metric("flatclip_queue_in_work_peak "), 3.0);
    // Tickets go back just after the replies.
    let start = Instant::now();
    while server.metric("flatclip_queue_admitted ") > 0.0 {
        assert!(start.elapsed() < Duration::from_secs(5), "tickets did not come back");
    }
}

#[test]
fn slow_heads_and_slow_bodies_are_cut_off() {
    let limits = Limits { read_ms: 400, ..Limits::default() };
    let server = Running::start(Config { limits, ..config() });
    let start = Instant::now();
    let (mut head, mut body) = (server.connect(), server.connect());
    head.write_all(b"POST /v1/classify HTTP/1.1\r\nhost:").unwrap();
    body.write_all(b"POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{").unwrap();
    assert!(matches!(read(&mut head).0, 0 | 408));
    assert_eq!(read(&mut body).0, 408);
    assert!(start.elapsed() < Duration::from_secs(8));
    assert_eq!(server.get("/healthz").0, 200);
}

#[test]
fn a_large_head_is_refused() {
    let server = Running::start(config());
    let mut stream = server.connect();
    let _ = write!(stream, "GET / HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "a".repeat(40_000));
    assert!(matches!(read(&mut stream).0, 431 | 0));
    assert_eq!(server.get("/healthz").0, 200);
}

#[test]
fn a_panic_is_answered_by_500_and_spoils_nothing_else() {
    let server = Running::start(Config { faults: true, ..config() });
    let ask = |headers: &str| server.ask(classify_request(&question("zero-shot", 1), headers).as_bytes());
    for place in ["handler", "worker"].repeat(4) {
        std::thread::scope(|scope| {
            // Others ask at the same time, so that batches have innocent members.
            let others: Vec<_> = (0..6).map(|_| scope.spawn(|| ask("").0)).collect();
            let (status, text) = ask(&format!("x-flatclip-fault: {place}\r\n"));
            assert_eq!(status, 500, "{place}: {text}");
            assert!(others.into_iter().all(|other| other.join().unwrap() == 200), "{place}: another client failed");
        });
        assert_eq!(ask("").0, 200);
    }
}

#[test]
fn stopping_loses_nothing_that_was_accepted() {
    let server = Running::start(config());
    let request = classify_request(&question("zero", 64), "");
    let streams: Vec<TcpStream> = (0..8).map(|_| sent(&server, &request)).collect();
    while server.metric("flatclip_queue_admitted ") == 0.0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    server.stop.stop();
    let statuses: Vec<u16> = streams.into_iter().map(|mut stream| read(&mut stream).0).collect();
    assert_eq!(statuses, [200; 8]);
}

#[test]
fn work_of_clients_that_left_is_dropped() {
    let limits = Limits { workers: 1, batch_views: 1, ..Limits::default() };
    let server = Running::start(Config { limits, ..config() });
    let request = classify_request(&question("zero", 128), "");
    // On a busy machine a crowd may be answered before its leaving is noticed; a later one is not.
    for _ in 0..20 {
        leave_with_work_waiting(&server, &request);
        if server.metric("flatclip_dropped_total ") > 0.0 {
            return;
        }
    }
    panic!("no work was dropped");
}

fn sent(server: &Running, request: &str) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Twenty clients ask and go; returns when all their tickets came back.
fn leave_with_work_waiting(server: &Running, request: &str) {
    let streams: Vec<TcpStream> = (0..20).map(|_| sent(server, request)).collect();
    let start = Instant::now();
    while server.metric("flatclip_queue_admitted ") < 10.0 && start.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(streams);
    while server.metric("flatclip_queue_admitted ") > 0.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "tickets did not come back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn answers_do_not_depend_on_what_else_is_asked() {
    let server = Running::start(config());
    let ask = |method: &str, views: usize| {
        let (status, text) = server.ask(classify_request(&question(method, views), "").as_bytes());
        assert_eq!(status, 200, "{text}");
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let kinds = [("zero-shot", 1), ("zero", 16), ("stss", 16), ("vte", 4), ("tpt", 8)];
    let alone: Vec<String> = kinds.iter().map(|&(method, views)| ask(method, views)).collect();
    std::thread::scope(|scope| {
        for turn in 0..20 {
            let (alone, ask) = (&alone, &ask);
            scope.spawn(move || {
                let kind = turn % kinds.len();
                assert_eq!(ask(kinds[kind].0, kinds[kind].1), alone[kind]);
            });
        }
    });
}

/// A client may say that it has no more to send and still wait; it must not be taken for one that left.
#[test]
fn half_closed_clients_are_answered() {
    let server = Running::start(config());
    let ask = |request: &str| {
        let mut stream = sent(&server, request);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read(&mut stream).1
    };
    let request = classify_request(&question("zero", 256), "");
    let old = request.replacen("HTTP/1.1", "HTTP/1.0", 1);
    let short = classify_request(&question("zero-shot", 1), "");
    for (request, interim) in [(&request, true), (&old, false)].into_iter().chain([(&short, true); 50]) {
        let text = ask(request);
        let last = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
        assert_eq!(&last[9..12], "200", "{text}");
        assert!(interim || last.len() == text.len(), "HTTP/1.0 has no interim answers");
    }
    // A body that breaks off is no half-closed client.
    let start = Instant::now();
    let text = ask(&request[..request.len() - 10]);
    assert!(!text.contains(" 200 ") && start.elapsed() < Duration::from_secs(5), "{text}");
}
