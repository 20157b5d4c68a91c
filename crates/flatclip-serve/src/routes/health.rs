//! Health, readiness and metrics.

use crate::{Problem, Shared};
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Liveness: the process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "Alive", body = String, content_type = "application/json")))]
pub(crate) async fn live() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], "\"ok\"").into_response()
}

/// Readiness: warmed up, not stopping, the queue not full for long, no worker stuck.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, description = "Ready", body = String, content_type = "application/json")))]
pub(crate) async fn ready(app: Shared) -> Result<Response, Problem> {
    app.check_ready()?;
    Ok(live().await)
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, description = "Metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(app: Shared) -> Response {
    let text = crate::metrics::text(&app);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
