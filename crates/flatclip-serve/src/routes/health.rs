//! Health, readiness and metrics.

use crate::app::App;
use crate::problem::Problem;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It lives", body = String, content_type = "application/json")))]
pub(crate) async fn live() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], "\"ok\"").into_response()
}

/// Whether requests should be sent here: warmed up, not stopping, the queue not full for long, no worker stuck.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, description = "It is ready", body = String, content_type = "application/json")))]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    app.check_ready()?;
    Ok(live().await)
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, description = "Numbers", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = crate::metrics::text(&app);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
