//! The page, its samples, the description of the routes.

use crate::problem::Problem;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use flatclip_pocket::{CLASS_NAMES, Domain, SIDE, World, draw, png, scene};
use std::sync::OnceLock;

const HTML: &str = include_str!("../../page/index.html");
const CSS: &str = include_str!("../../page/style.css");
const SCRIPT: &str = include_str!("../../page/app.js");
const ICON: &str = include_str!("../../page/icon.svg");

/// Images of a domain to play with: one of each class.
const SAMPLES: u64 = 32;

fn file(kind: &'static str, content: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content.into()).into_response()
}

pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", HTML)
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", CSS)
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

pub(crate) async fn icon() -> Response {
    file("image/svg+xml", ICON)
}

/// The routes for people.
pub(crate) async fn docs() -> Response {
    static PAGE: OnceLock<String> = OnceLock::new();
    file("text/html; charset=utf-8", PAGE.get_or_init(crate::docs::page).as_str())
}

/// The routes for machines.
pub(crate) async fn openapi() -> Response {
    static JSON: OnceLock<String> = OnceLock::new();
    file("application/json", JSON.get_or_init(crate::openapi_json).as_str())
}

/// An image of the pocket dataset: `photo-7.png`.
#[utoipa::path(
    get, path = "/samples/{name}", tag = "lists",
    params(("name" = String, Path, description = "DOMAIN-NUMBER.png, for instance photo-7.png")),
    responses((status = 200, description = "A drawn image", body = Vec<u8>, content_type = "image/png"))
)]
pub(crate) async fn sample(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = name.strip_suffix(".png").and_then(|name| name.split_once('-')).and_then(|(domain, number)| {
        let number = number.parse().ok().filter(|&number: &u64| number < SAMPLES)?;
        Some((Domain::from_name(domain)?, number))
    });
    let Some((domain, number)) = found else {
        let message = format!("expected DOMAIN-NUMBER.png with a number below {SAMPLES}, for instance photo-7.png");
        return Err(Problem::not_found(message));
    };
    let scene = scene(World::Test, domain, number);
    let class = CLASS_NAMES.get(scene.class).copied().unwrap_or_default();
    let bytes = png(&draw(&scene), SIDE as u32, SIDE as u32);
    Ok(([(header::CONTENT_TYPE, "image/png"), (header::CACHE_CONTROL, "max-age=3600")], [("x-class", class)], bytes)
        .into_response())
}
