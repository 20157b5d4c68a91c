//! The web page, its sample images, and the reference of the routes.

use crate::{Problem, Shared};
use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use flatclip_pocket::{CLASS_NAMES, Domain, SIDE, World, draw, png, scene};
use serde::Serialize;
use std::sync::OnceLock;
use utoipa::ToSchema;

macro_rules! parts {
    ($($name:literal),+ $(,)?) => {
        [$((concat!($name, ".js"), include_str!(concat!("../../page/", $name, ".js")))),+]
    };
}

/// The script's modules, each with one job; `app.js` imports them.
const PARTS: [(&str, &str); 14] = parts![
    "answers", "ask", "compare", "copy", "dom", "image", "scatter", "server", "settings", "solid", "state", "surfaces",
    "tell", "terms",
];

/// Number of sample images per domain: one of each class.
const SAMPLES: u64 = 32;

/// The initial classes of the page.
const CLASSES: [&str; 6] = ["fish", "lamp", "snail", "boat", "clock", "bicycle"];

/// The image that the page opens with, by model: zero-shot answers it wrongly with [`CLASSES`], STSS with its defaults
/// rightly. A test runs both.
const OPENINGS: [(&str, &str); 2] = [("pocket", "hard-10.png"), ("pocket-vit", "rendition-20.png")];

/// What the page opens with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpeningBody {
    /// The classes of the first question.
    classes: Vec<&'static str>,
    /// Rows and columns of every synthetic drawing.
    side: usize,
    /// The classes of the synthetic drawings.
    known: Vec<&'static str>,
    /// One entry for each model.
    models: Vec<OpeningModel>,
}

/// What the page opens with for a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpeningModel {
    id: String,
    /// Trained on synthetic drawings only: predictions for photos are not meaningful.
    synthetic: bool,
    /// The image of the first question, a name below `/samples/`.
    sample: &'static str,
}

fn file(kind: &'static str, content: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content.into()).into_response()
}

pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", include_str!("../../page/index.html"))
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../../page/style.css"))
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../../page/app.js"))
}

pub(crate) async fn icon() -> Response {
    file("image/svg+xml", include_str!("../../page/icon.svg"))
}

/// A module of the script.
pub(crate) async fn part(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = PARTS.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| Problem::not_found("the page has no such file"))?;
    Ok(file("text/javascript; charset=utf-8", *text))
}

/// The image and the classes that the page opens with, and which models know synthetic drawings only.
#[utoipa::path(get, path = "/v1/opening", tag = "lists", responses((status = 200, description = "The image and classes that the page opens with", body = OpeningBody)))]
pub(crate) async fn opening(app: Shared) -> Json<OpeningBody> {
    let model = |(entry, model): &(crate::ModelEntry, flatclip::Model)| {
        let (_, sample) = OPENINGS.iter().find(|(name, _)| *name == model.name()).unwrap_or(&OPENINGS[0]);
        let synthetic = flatclip_pocket::MODEL_NAMES.contains(&model.name());
        OpeningModel { id: entry.name.clone(), synthetic, sample }
    };
    let models = app.catalogue().models.iter().map(model).collect();
    Json(OpeningBody { classes: CLASSES.to_vec(), side: SIDE, known: CLASS_NAMES.to_vec(), models })
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
