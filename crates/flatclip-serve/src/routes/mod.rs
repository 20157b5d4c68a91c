//! The routes, by family.

pub(crate) mod classify;
pub(crate) mod embed;
pub(crate) mod health;
pub(crate) mod hugging_face;
pub(crate) mod lists;
pub(crate) mod oip;
pub(crate) mod openai;
pub(crate) mod page;
pub(crate) mod session;
pub(crate) mod slice;
mod tensors;

use crate::{App, Problem};
use axum::Router;
use axum::extract::OriginalUri;
use axum::http::{Method, StatusCode};
use axum::routing::{get, post};
use std::sync::Arc;

pub(crate) fn all() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(page::index).post(hugging_face::task))
        .route("/style.css", get(page::style))
        .route("/app.js", get(page::script))
        .route("/page/{name}", get(page::part))
        .route("/icon.svg", get(page::icon))
        .route("/samples/{name}", get(page::sample))
        .route("/docs", get(page::docs))
        .route("/openapi.json", get(page::openapi))
        .route("/v1/classify", post(classify::classify))
        .route("/v1/slice", post(slice::slice))
        .route("/v1/embed/image", post(embed::images))
        .route("/v1/embed/text", post(embed::texts))
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/v1/models", get(lists::models))
        .route("/v1/models/{*model}", get(lists::model))
        .route("/v1/methods", get(lists::methods))
        .route("/v1/prompts", get(lists::prompts))
        .route("/v1/class_sets", get(lists::class_sets))
        .route("/v1/limits", get(lists::limits))
        .route("/v1/opening", get(page::opening))
        .route("/v1/sessions", post(session::open))
        .route("/v1/sessions/{id}", get(session::show).delete(session::close))
        .route("/v1/sessions/{id}/classify", post(session::classify))
        .route("/hf/zero-shot-image-classification", post(hugging_face::task))
        .route("/v2", get(oip::server))
        .route("/v2/health/live", get(health::live))
        .route("/v2/health/ready", get(health::ready))
        .route("/v2/models/stats", get(oip::all_statistics))
        .nest("/v2/models/{model}", of_a_model())
        .nest("/v2/models/{model}/versions/{version}", of_a_model())
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/ping", get(health::live))
        .route("/metrics", get(health::metrics))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
}

/// The routes of a model in the Open Inference Protocol, with its version or without.
fn of_a_model() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(oip::model))
        .route("/ready", get(oip::model_ready))
        .route("/config", get(oip::config))
        .route("/stats", get(oip::statistics))
        .route("/infer", post(oip::infer))
}

async fn unknown_route(OriginalUri(uri): OriginalUri) -> Problem {
    let path: String = uri.path().chars().take(100).collect();
    Problem::new(StatusCode::NOT_FOUND, "route.unknown", format!("no route {path}"))
}

async fn wrong_method(method: Method, OriginalUri(uri): OriginalUri) -> Problem {
    let path: String = uri.path().chars().take(100).collect();
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "route.method", format!("{path} does not take {method}"))
}
