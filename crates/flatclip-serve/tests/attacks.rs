//! Clients that hold what others need: tickets, uploads, connections, sessions, builders.
#![allow(clippy::unwrap_used)]

mod common;

use common::{CLASSES, base64, config, get, image, json_request, post, send};
use flatclip_serve::{Config, Limits, Server, Stop};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<flatclip::Result<()>>>,
}

impl Running {
    fn start(limits: Limits) -> Self {
        let bind = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(Config { bind, limits, ..config() }).unwrap();
        let (address, stop) = (server.address(), server.stopper());
        Self { address, stop, thread: Some(std::thread::spawn(move || server.run())) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    fn ask(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        let _ = stream.write_all(request);
        read(&mut stream)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

fn read(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), text)
}

fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn question() -> Value {
    json!({ "image": base64(&image(1)), "classes": CLASSES })
}

/// 32 images and all of 2000 classes for each: an answer that does not fit into the buffers of a connection.
fn long_answer() -> Vec<u8> {
    let classes: Vec<String> =
        (0..2000).map(|number| format!("thing {number}, whose name is so long it does not fit")).collect();
    let images = vec![base64(&image(1)); 32];
    let body = json!({ "images": images, "classes": classes, "template": "{}", "top_k": 2000 }).to_string();
    request("/v1/classify", "accept: text/event-stream\r\n", body.as_bytes())
}

#[test]
fn clients_that_do_not_read_hold_no_tickets_and_do_not_stretch_the_end() {
    let limits = Limits { queue: 32, client_share: 1.0, ..Limits::default() };
    let server = Running::start(limits);
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
    let server = Running::start(limits);
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
    let server = Running::start(Limits { connections: 8, ..Limits::default() });
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
    let server = Running::start(Limits { sessions: 4, ..Limits::default() });
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
    let limits = Limits { deadline_ms: 400, ..Limits::default() };
    let router = flatclip_serve::router(Config { limits, ..config() }).unwrap();
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
    let limits = Limits { build_ms: 50, ..Limits::default() };
    let strict = flatclip_serve::router(Config { limits, ..config() }).unwrap();
    let refused = post(&strict, "/v1/classify", &long).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (413, "limit.exceeded"));
    assert!(refused.text().contains("24000 texts"), "{}", refused.text());
}
