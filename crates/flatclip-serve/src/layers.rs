//! Middleware around every route: request ids, logs, metrics, headers, API keys, panics.

use crate::{App, Client, Config, Problem};
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tower_http::cors::{AllowOrigin, CorsLayer};
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Security headers: no content of other origins, no frames, no MIME sniffing, no referrer.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Routes that need no key: health, and the page, which requests the key itself.
fn is_open(path: &str) -> bool {
    // An `img` element cannot send a key, and the sample images are not private.
    path.starts_with("/samples/")
        || path.starts_with("/page/")
        || matches!(
            path,
            "/" | "/style.css"
                | "/app.js"
                | "/icon.svg"
                | "/docs"
                | "/openapi.json"
                | "/healthz"
                | "/readyz"
                | "/ping"
                | "/v2/health/live"
                | "/v2/health/ready"
        )
}

/// Routes whose clients read `{"error": "text"}`.
fn is_flat(path: &str) -> bool {
    path == "/v2" || path.starts_with("/v2/") || path == "/" || path.starts_with("/hf")
}

/// The outermost layer: sets the request id, adds headers, formats errors as the route's clients expect, logs and counts.
pub(crate) async fn frame(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = request_id(request.headers().get(REQUEST_ID), &app);
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.unwrap_or_else(|| "other".to_owned());
    let client = request.extensions().get::<Client>().filter(|_| app.config.log_addresses).map(|client| client.0);
    let client = client.map(tracing::field::display);
    let span = tracing::info_span!(
        "request", otel.kind = "server", otel.name = %format_args!("{method} {route}"), id = id.to_str().unwrap_or_default(),
        http.request.method = %method, http.route = route, http.response.status_code = tracing::field::Empty,
    );
    #[cfg(feature = "otel")]
    follow(&span, request.headers());
    let mut response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    let code = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => {
            if is_flat(&path) {
                *response.body_mut() = Body::from(problem.flat_body());
                response.headers_mut().remove(header::CONTENT_LENGTH);
            }
            problem.code
        }
        None => "",
    };
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id.clone());
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let (status, seconds) = (response.status().as_u16(), start.elapsed().as_secs_f64());
    crate::metrics::count_request(&route, status, seconds);
    let id = id.to_str().unwrap_or_default();
    // The matched route, not the requested path: session ids must not be logged.
    tracing::info!(id, client, %method, route, status, code, ms = (seconds * 1e4).round() / 10.0, "request");
    response
}

/// Makes the span a child of the client's trace, if there is one.
#[cfg(feature = "otel")]
fn follow(span: &tracing::Span, headers: &axum::http::HeaderMap) {
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;
    let headers = opentelemetry_http::HeaderExtractor(headers);
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&headers));
    let _ = span.set_parent(parent); // fails without a subscriber for traces
}

/// The client's request id if it is short and has only safe characters, else a new one.
fn request_id(given: Option<&HeaderValue>, app: &App) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let is_plain = |value: &&HeaderValue| {
        value.len() <= 64 && value.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    if let Some(value) = given.filter(is_plain) {
        return value.clone();
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let text = format!("{:x}-{count:x}", app.started.elapsed().as_micros());
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("0"))
}

/// Refuses cross-site requests of a browser, and checks the key where there is one.
pub(crate) async fn authorise(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if let Err(problem) = crate::guard::check(&app.config, request.headers()) {
        return problem.into_response();
    }
    let shown = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let is_page = is_open(request.uri().path()) && matches!(request.method().as_str(), "GET" | "HEAD");
    let is_allowed = app.is_key_shown(shown) || is_page;
    if is_allowed {
        return next.run(request).await;
    }
    let message = "this server needs a key, and none or a wrong one was sent";
    Problem::new(StatusCode::UNAUTHORIZED, "key.missing", message).into_response()
}

/// The CORS layer for the allowed origins; `None` if there are none.
pub(crate) fn cross_origin(config: &Config) -> Option<CorsLayer> {
    let origins = config.allowed_origins.clone();
    let origin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else if origins.is_empty() {
        return None;
    } else {
        let is_listed = move |origin: &HeaderValue| {
            origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
        };
        AllowOrigin::predicate(move |origin, _| is_listed(origin))
    };
    let lengths = HeaderName::from_static("inference-header-content-length");
    let timing = HeaderName::from_static("server-timing");
    Some(
        CorsLayer::new()
            .allow_origin(origin)
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, REQUEST_ID, lengths.clone()])
            .expose_headers([REQUEST_ID, header::RETRY_AFTER, timing, lengths])
            .max_age(PREFLIGHT),
    )
}

/// How long a browser may cache a CORS preflight response.
const PREFLIGHT: Duration = Duration::from_secs(600);

pub(crate) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    crate::metrics::count_panic();
    Problem::internal().into_response()
}
