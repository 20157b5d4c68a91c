//! Clients that hold what others need (tickets, uploads, connections, sessions, builders), and bodies that are not what they
//! say.
#![allow(clippy::unwrap_used)]

mod common;

use common::{CLASSES, Running, base64, config, form, get, image, json_request, long_answer, post};
use common::{raw, read, request, router, send, with_limits};
use flatclip::image::DecodeOptions;
use flatclip_serve::{Config, Limits};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn question() -> Value {
    json!({ "image": base64(&image(1)), "classes": CLASSES })
}

#[test]
fn clients_that_do_not_read_hold_no_tickets_and_do_not_stretch_the_end() {
    let limits = Limits { queue: 32, client_share: 1.0, ..Limits::default() };
    let server = Running::start(Config { limits, ..config() });
    // Not light, so that it needs what they would hold.
    let mut body = question();
    (body["method"], body["views"]) = ("zero".into(), 16.into());
    let body = body.to_string();
    let mut deaf = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect();
        stream.write_all(&long_answer()).unwrap();
        // The first answer has begun; then it reads no more.
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("event: answer") {
            let mut part = [0; 256];
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend(&part[..count]);
        }
        deaf.push(stream);
        let start = Instant::now();
        while server.ask(&request("/v1/classify", "", body.as_bytes())).0 != 200 {
            assert!(start.elapsed() < Duration::from_secs(20), "tickets wait for a client that does not read");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(12), "the end took {:?}", start.elapsed());
    drop(deaf);
}

#[test]
fn announced_bytes_are_not_reserved_and_uploads_that_stand_still_make_room() {
    let limits = Limits { body_bytes: 1 << 20, held_bytes: 4 << 20, ..Limits::default() };
    let server = Running::start(Config { limits, ..config() });
    let head = format!("POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 1 << 20);
    let upload = |bytes: usize| {
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b' '; bytes]).unwrap();
        stream
    };
    let mut body = question().to_string();
    body.push_str(&" ".repeat(600 << 10));
    let question = request("/v1/classify", "", body.as_bytes());
    let announced: Vec<TcpStream> = (0..16).map(|_| upload(1)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let (status, text) = server.ask(&question);
    assert_eq!(status, 200, "sockets that announce much and send a byte keep others out: {text}");
    drop(announced);
    // Almost all of a body, and then nothing.
    let still: Vec<TcpStream> = (0..8).map(|_| upload((1 << 20) - 10)).collect();
    std::thread::sleep(Duration::from_secs(1));
    let start = Instant::now();
    let (status, text) = server.ask(&question);
    assert_eq!(status, 200, "uploads that stand still keep others out: {text}");
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(still);
}

#[test]
fn idle_connections_make_room() {
    let server = Running::start(Config { limits: Limits { connections: 8, ..Limits::default() }, ..config() });
    let idle: Vec<TcpStream> = (0..30).map(|_| server.connect()).collect();
    let start = Instant::now();
    assert_eq!(server.get("/healthz").0, 200);
    assert!(start.elapsed() < Duration::from_secs(5), "idle sockets kept others out for {:?}", start.elapsed());
    drop(idle);
}

/// A connection from another address of this machine.
fn from_address(source: &str, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn one_client_cannot_take_all_sessions() {
    let server = Running::start(Config { limits: Limits { sessions: 4, ..Limits::default() }, ..config() });
    let open = json!({ "classes": CLASSES, "method": "tda", "views": 1 }).to_string();
    let open = request("/v1/sessions", "", open.as_bytes());
    let statuses: Vec<u16> = (0..5).map(|_| server.ask(&open).0).collect();
    assert_eq!(statuses, [201, 201, 503, 503, 503]);
    let mut other = from_address("127.0.0.2", server.address);
    other.write_all(&open).unwrap();
    assert_eq!(read(&mut other).0, 201, "nothing is left for another client");
}

#[tokio::test]
async fn pages_elsewhere_and_names_that_point_here_are_refused() {
    let router = common::router();
    let ask = async |host: &str, origin: Option<&str>| {
        let mut request = json_request("/v1/embed/text", &json!({ "texts": ["a"] }));
        request.headers_mut().insert("host", host.parse().unwrap());
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        send(&router, request).await
    };
    assert_eq!(ask("localhost:8080", Some("http://localhost:8080")).await.status, 200);
    assert_eq!(ask("127.0.0.1:8080", None).await.status, 200);
    let rebound = ask("attacker.example:8080", None).await;
    assert_eq!((rebound.status.as_u16(), rebound.code().as_str()), (403, "request.host"));
    let foreign = ask("localhost:8080", Some("http://attacker.example")).await;
    assert_eq!((foreign.status.as_u16(), foreign.code().as_str()), (403, "request.origin"));
    let named = Config { allowed_hosts: vec!["clip.example".to_owned()], ..config() };
    let router = flatclip_serve::router(named).unwrap();
    let mut request = json_request("/v1/embed/text", &json!({ "texts": ["a"] }));
    request.headers_mut().insert("host", "clip.example".parse().unwrap());
    assert_eq!(send(&router, request).await.status, 200);
}

/// 24 000 texts, which no request may wait for here.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_build_is_told_kept_and_holds_up_nobody() {
    let router = with_limits(Limits { deadline_ms: 400, ..Limits::default() });
    let classes: Vec<String> = (0..300).map(|number| format!("thing {number}")).collect();
    let long = json!({ "image": base64(&image(1)), "classes": classes, "ensemble": "imagenet80" });
    assert_eq!(post(&router, "/v1/classify", &question()).await.status, 200);
    let told = post(&router, "/v1/classify", &long).await;
    assert_eq!((told.status.as_u16(), told.code().as_str()), (503, "classifier.building"), "{}", told.text());
    assert!(told.text().contains("of 24000 texts") && !told.header("retry-after").is_empty(), "{}", told.text());
    // Others are answered while it is built.
    let mut answered = 0;
    let start = Instant::now();
    while post(&router, "/v1/classify", &long).await.status != 200 {
        answered += usize::from(post(&router, "/v1/classify", &question()).await.status == 200);
        assert!(start.elapsed() < Duration::from_secs(280), "what was built was not kept");
    }
    assert!(answered > 0, "nobody else was answered");
    assert_eq!(get(&router, "/readyz").await.status, 200);
    // More than the server ever builds is refused with the number.
    let strict = with_limits(Limits { build_ms: 50, ..Limits::default() });
    let refused = post(&strict, "/v1/classify", &long).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (413, "limit.exceeded"));
    assert!(refused.text().contains("24000 texts"), "{}", refused.text());
}

/// What is sent to every route that takes JSON, and what the answer may be.
#[tokio::test]
async fn bodies_that_are_not_what_they_say_are_refused() {
    let router = router();
    const JSON: &str = "application/json";
    let limit = Limits::default().body_bytes;
    let routes = ["/v1/classify", "/v1/embed/image", "/hf/zero-shot-image-classification", "/v2/models/pocket/infer"];
    let mut cases = Vec::new();
    for path in routes {
        for (body, statuses) in [
            (Vec::new(), [400, 400]),
            (vec![b' '; limit + 1], [413, 413]),
            ("[".repeat(100_000).into_bytes(), [400, 422]),
            ("{\"a\":".repeat(20_000).into_bytes(), [400, 422]),
            (b"{\"image\":\"\xff\xfe\"}".to_vec(), [400, 422]),
        ] {
            cases.push((raw(path, JSON, body), statuses));
        }
    }
    let good = question().to_string();
    let spaces = |count: usize| format!("{good}{}", " ".repeat(count - good.len())).into_bytes();
    let (form_type, image) = ("multipart/form-data; boundary=xx", image(2));
    cases.extend([
        (raw(routes[0], JSON, spaces(limit - 1)), [200, 200]),
        (raw(routes[0], JSON, spaces(limit)), [200, 200]),
        (raw("/v1/embed/text", JSON, vec![b' '; (1 << 20) + 1]), [413, 413]),
        (raw(routes[0], JSON, good.as_bytes()[..good.len() / 2].to_vec()), [400, 400]),
        (raw(routes[0], JSON, b"null".to_vec()), [422, 422]),
        (raw(routes[0], JSON, b"1e999".to_vec()), [400, 422]),
        (raw(routes[0], "text/xml", b"<a/>".to_vec()), [415, 415]),
        (raw(routes[0], form_type, b"nonsense".to_vec()), [400, 400]),
        (raw(routes[0], form_type, b"--xx--\r\n".to_vec()), [400, 422]),
        (form(routes[0], &vec![("x", "y"); 10_000], &[]), [400, 413]),
        (form(routes[0], &[("classes", "a,b")], &vec![image.as_slice(); 33]), [413, 413]),
        (form(routes[0], &[("classes", "a"), ("classes", "b")], &[&image]), [400, 400]),
        (form(routes[0], &[("classes", "a"), ("views", "many")], &[&image]), [400, 400]),
    ]);
    let mut beyond = raw(routes[3], JSON, b"{}".to_vec());
    beyond.headers_mut().insert("inference-header-content-length", "99999".parse().unwrap());
    cases.push((beyond, [400, 400]));
    for (number, (request, statuses)) in cases.into_iter().enumerate() {
        let answer = send(&router, request).await;
        let status = answer.status.as_u16();
        assert!(statuses.contains(&status), "case {number}: expected {statuses:?}, found {status}: {}", answer.text());
        assert!(status == 200 || !answer.code().is_empty(), "case {number}: no code: {}", answer.text());
    }
}

#[tokio::test]
async fn damaged_images_get_the_codes_of_the_library() {
    let router = router();
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let options = DecodeOptions { max_pixels: Limits::default().pixels, ..DecodeOptions::default() };
    for file in ["png/rgb.png", "bmp/rgb.bmp", "gif/two.gif", "jpeg/baseline-420.jpg"] {
        let whole = std::fs::read(corpus.join(file)).unwrap();
        for number in 0..60 {
            // A fixed walk over places and values: every run sends the same files.
            let place = (number * 7919 + number * number * 31) % whole.len();
            let mut damaged = whole.clone();
            damaged[place] ^= (number * 37 % 255 + 1) as u8;
            for bytes in [&damaged[..], &whole[..number * whole.len() / 59]] {
                let answer = send(&router, form("/v1/classify", &[("classes", "fish,lamp")], &[bytes])).await;
                match flatclip::image::decode(bytes, &options) {
                    Ok(_) => assert_eq!(answer.status, 200, "{file} {number}: {}", answer.text()),
                    Err(error) => assert_eq!(answer.code(), error.code(), "{file} {number}: {}", answer.text()),
                }
            }
        }
    }
}

#[tokio::test]
async fn addresses_in_place_of_images_are_refused_and_not_fetched() {
    let router = router();
    // Whoever connects here was sent by the server.
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let port = trap.local_addr().unwrap().port();
    for address in [
        &format!("http://127.0.0.1:{port}/a.png"),
        &format!("http://[::1]:{port}/a.png"),
        &format!("http://2130706433:{port}/a.png"),
        &format!("http://0x7f.1:{port}/a.png"),
        &format!("http://user@127.0.0.1:{port}/a.png"),
        &format!("ftp://127.0.0.1:{port}/a.png"),
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "/etc/passwd",
        "data:text/plain,hello",
    ] {
        let hugging_face = json!({ "inputs": address, "parameters": { "candidate_labels": CLASSES } });
        for (path, body) in [
            ("/v1/classify", json!({ "image": address, "classes": CLASSES })),
            ("/v1/embed/image", json!({ "image": address })),
            ("/hf/zero-shot-image-classification", hugging_face),
        ] {
            let answer = post(&router, path, &body).await;
            assert_eq!(answer.status, 422, "{path} {address}: {}", answer.text());
        }
    }
    assert!(trap.accept().is_err(), "the server connected to an address that a client gave");
}
