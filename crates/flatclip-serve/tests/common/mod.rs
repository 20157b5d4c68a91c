//! Requests without a socket.
#![allow(dead_code, clippy::unwrap_used)]

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
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

pub(crate) fn config() -> flatclip_serve::Config {
    flatclip_serve::Config::default()
}

pub(crate) fn router() -> Router {
    flatclip_serve::router(config()).unwrap()
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
        let json = self.json();
        json["error"]["code"].as_str().or(json["code"].as_str()).unwrap_or_default().to_owned()
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
    Request::post(path).header("content-type", "application/json").body(Body::from(body.to_string())).unwrap()
}

pub(crate) async fn post(router: &Router, path: &str, body: &Value) -> Answer {
    send(router, json_request(path, body)).await
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
    Request::post(path).header("content-type", "multipart/form-data; boundary=xx").body(Body::from(body)).unwrap()
}
