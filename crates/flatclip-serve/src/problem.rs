//! Error responses: a status, a stable code and a message.

use crate::Short;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    hint: Option<String>,
    retry_after: Option<u64>,
}

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// A stable name of the cause.
    #[schema(example = "image.unreadable")]
    code: &'static str,
    /// One sentence.
    message: String,
    /// A remedy, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint: Option<String>,
}

/// The body of an error in the Open Inference Protocol and in Hugging Face's task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlatErrorBody {
    /// One sentence.
    error: String,
    /// A stable name of the cause.
    code: &'static str,
    /// A remedy, if one is known; the message ends with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None, retry_after: None }
    }

    /// The request cannot be understood.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "request.malformed", message)
    }

    /// The request is well-formed but invalid.
    pub(crate) fn invalid(key: &str, message: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "option.invalid", format!("{key}: {message}"))
    }

    pub(crate) fn too_much(what: &str, asked: impl std::fmt::Display, allowed: impl std::fmt::Display) -> Self {
        let message = format!("{what}: {asked} is more than the limit of {allowed}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "limit.exceeded", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "name.unknown", message)
    }

    pub(crate) fn busy(short: Short) -> Self {
        let message = match short {
            Short::Server => "the queue is full",
            Short::Client => "your requests have their share of the queue; wait for their answers",
        };
        Self { retry_after: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "server.busy", message) }
    }

    pub(crate) fn busy_building(waiting: usize) -> Self {
        let message = format!("{waiting} class lists wait to be built");
        Self { retry_after: Some(2), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "server.busy", message) }
    }

    /// A class list takes longer to build than a request may wait; the build continues.
    pub(crate) fn building(done: u64, total: usize, seconds: f64) -> Self {
        let message = format!(
            "the text features of this class list are being computed: {done} of {total} texts are done, about {seconds:.0} s are \
             left; they are kept"
        );
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "classifier.building", message);
        Self { retry_after: Some((seconds.ceil() as u64).clamp(1, 3600)), ..problem }
    }

    pub(crate) fn with_hint(self, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..self }
    }

    /// The hint of the response, or that of its cause.
    fn hint(&self) -> Option<String> {
        let again = "send it again after Retry-After seconds";
        let of_code = match self.code {
            "request.malformed" | "request.fields" => "GET /docs describes the routes and their fields",
            "request.content-type" => "send application/json, or a form (multipart/form-data) with files called image",
            "request.encoding" => "send the body uncompressed",
            "request.slow" => "send the body faster, or raise limits.read_ms of the server's configuration",
            "option.invalid" => "GET /docs describes the fields, GET /v1/methods the options of each method",
            "method.needs" => "choose another method; GET /v1/methods lists them",
            "limit.exceeded" => "GET /v1/limits lists the limits; [limits] of the server's configuration raises them",
            "prompt.unusable" | "prompt.other-model" => "GET /v1/models and GET /v1/prompts list what can be combined",
            "image.unreadable" => "send a PNG, JPEG, WebP, GIF, BMP or TIFF file",
            "text.unusable" => "shorten the text",
            "route.unknown" | "route.method" => "GET /docs lists the routes",
            "session.unknown" => "open a session with POST /v1/sessions",
            "key.missing" => "send the header `Authorization: Bearer KEY`",
            "server.busy" | "server.unavailable" | "classifier.building" => again,
            "server.deadline" => "ask for fewer images, views or classes, or raise limits.deadline_ms",
            "server.failed" => "the server's log has the request by its X-Request-Id",
            _ => return self.hint.clone(),
        };
        Some(self.hint.clone().unwrap_or_else(|| of_code.to_owned()))
    }

    pub(crate) fn detail(&self) -> ErrorDetail {
        ErrorDetail { code: self.code, message: self.message.clone(), hint: self.hint() }
    }

    /// The memory budget is exhausted, or the server is starting or stopping.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "server.unavailable", message) }
    }

    pub(crate) fn late() -> Self {
        let message = "the deadline passed before the answer was there";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "server.deadline", message)
    }

    /// A bug in flatclip.
    pub(crate) fn internal() -> Self {
        let message = "the server failed at this request; the failure is counted, and the server keeps running";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server.failed", message)
    }

    fn body(&self) -> Vec<u8> {
        serde_json::to_vec(&ErrorBody { error: self.detail() }).unwrap_or_default()
    }

    /// The format of the Open Inference Protocol and of Hugging Face's clients.
    pub(crate) fn flat_body(&self) -> Vec<u8> {
        let ErrorDetail { code, message, hint } = self.detail();
        let error = hint.as_ref().map_or_else(|| message.clone(), |hint| format!("{message}; {hint}"));
        serde_json::to_vec(&FlatErrorBody { error, code, hint }).unwrap_or_default()
    }
}

impl From<flatclip::Error> for Problem {
    fn from(error: flatclip::Error) -> Self {
        let code = error.code();
        let status = match code {
            "limit.exceeded" => StatusCode::PAYLOAD_TOO_LARGE,
            "image.unreadable" | "text.unusable" | "option.invalid" | "name.unknown" | "prompt.unusable"
            | "prompt.other-model" | "method.needs" => StatusCode::UNPROCESSABLE_ENTITY,
            "interrupted" => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let hint = error.hint().map(ToString::to_string);
        Self { hint, ..Self::new(status, code, error.to_string()) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], self.body()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}
