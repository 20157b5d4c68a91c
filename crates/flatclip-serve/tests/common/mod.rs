//! Requests, without a socket and with one.
#![allow(dead_code, clippy::unwrap_used)]

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use flatclip_serve::{Config, Key, Limits, Server, Stop};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use tower::ServiceExt as _;

pub(crate) const CLASSES: [&str; 4] = ["fish", "lamp", "snail", "boat"];

/// A drawn image as PNG.
pub(crate) fn image(number: u64) -> Vec<u8> {
    use flatclip_pocket::{Domain, SIDE, World, draw, png, scene};
    png(&draw(&scene(World::Test, Domain::Photo, number)), SIDE as u32, SIDE as u32)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(crate) fn config() -> Config {
    Config::default()
}

pub(crate) fn with_limits(limits: Limits) -> Router {
    flatclip_serve::router(Config { limits, ..config() }).unwrap()
}

pub(crate) fn router() -> Router {
    flatclip_serve::router(config()).unwrap()
}

pub(crate) const KEY: &str = "0123456789abcdef-secret";

/// A server that asks for [`KEY`].
pub(crate) fn locked(config: Config) -> Router {
    flatclip_serve::router(Config { key: Some(Key::new(KEY).unwrap()), ..config }).unwrap()
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) response: Response<()>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn code(&self) -> String {
        self.of_error("code")
    }

    pub(crate) fn hint(&self) -> String {
        self.of_error("hint")
    }

    fn of_error(&self, field: &str) -> String {
        let json = self.json();
        json["error"][field].as_str().or(json[field].as_str()).unwrap_or_default().to_owned()
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: head.status, response: Response::from_parts(head, ()), body }
}

pub(crate) async fn get(router: &Router, path: &str) -> Answer {
    send(router, Request::get(path).body(Body::empty()).unwrap()).await
}

pub(crate) fn json_request(path: &str, body: &Value) -> Request<Body> {
    raw(path, "application/json", body.to_string())
}

pub(crate) async fn post(router: &Router, path: &str, body: &Value) -> Answer {
    send(router, json_request(path, body)).await
}

pub(crate) fn raw(path: &str, media_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("content-type", media_type).body(body.into()).unwrap()
}

/// An object with more fields.
pub(crate) fn with(mut object: Value, more: &Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// A form of fields and images.
pub(crate) fn form(path: &str, fields: &[(&str, &str)], images: &[&[u8]]) -> Request<Body> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(format!("--xx\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    for image in images {
        body.extend(b"--xx\r\ncontent-disposition: form-data; name=\"image\"; filename=\"x.png\"\r\n\r\n");
        body.extend(*image);
        body.extend(b"\r\n");
    }
    body.extend(b"--xx--\r\n");
    raw(path, "multipart/form-data; boundary=xx", body)
}

/// A server on a port that the system chooses; it is stopped at the end, and must end well.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: Stop,
    thread: Option<JoinHandle<flatclip::Result<()>>>,
}

impl Running {
    pub(crate) fn start(config: Config) -> Self {
        let server = Server::bind(Config { bind: "127.0.0.1:0".parse().unwrap(), ..config }).unwrap();
        let (address, stop) = (server.address(), server.stopper());
        Self { address, stop, thread: Some(std::thread::spawn(move || server.run())) }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub(crate) fn ask(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        let _ = stream.write_all(request);
        read(&mut stream)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
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

/// Status and text of the answer, up to the end of the connection.
pub(crate) fn read(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), text)
}

/// A request as bytes, after which the connection is closed.
pub(crate) fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// 32 images and all of 2000 classes for each: an answer that does not fit into the buffers of a connection.
pub(crate) fn long_answer() -> Vec<u8> {
    let classes: Vec<String> =
        (0..2000).map(|number| format!("thing {number}, whose name is so long it does not fit")).collect();
    let images = vec![base64(&image(1)); 32];
    let body = json!({ "images": images, "classes": classes, "template": "{}", "top_k": 2000 }).to_string();
    request("/v1/classify", "accept: text/event-stream\r\n", body.as_bytes())
}
