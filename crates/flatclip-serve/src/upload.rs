//! The body of a request: read within its limits of size, time and held memory, then taken apart.

use crate::app::App;
use crate::problem::Problem;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use flatclip::Picture;
use flatclip::image::DecodeOptions;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Keeps the bytes of a body counted for as long as they are held.
#[derive(Clone)]
pub(crate) struct Held(#[allow(dead_code)] Arc<OwnedSemaphorePermit>);

/// A body that was read.
pub(crate) struct Upload {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) held: Held,
}

/// A picture of a request.
pub(crate) struct Image {
    content: Content,
    #[allow(dead_code)]
    held: Held,
}

/// A file's bytes, or pixels.
enum Content {
    File(Bytes),
    Pixels(Picture),
}

impl Image {
    /// Pixels that need no decoder.
    pub(crate) fn from_pixels(picture: Picture, held: Held) -> Self {
        Self { content: Content::Pixels(picture), held }
    }

    /// The picture; a file is decoded with these options.
    pub(crate) fn picture(&self, options: &DecodeOptions) -> flatclip::Result<Picture> {
        match &self.content {
            Content::File(bytes) => flatclip::image::decode(bytes, options),
            Content::Pixels(picture) => Ok(picture.clone()),
        }
    }
}

/// Bodies of routes that take no pictures.
const SMALL: usize = 1 << 20;
/// Parts of a form.
const MOST_PARTS: usize = 200;

impl FromRequest<Arc<App>> for Upload {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let limits = &app.config.limits;
        let (head, body) = request.into_parts();
        if let Some(coding) = head.headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
            let message = format!("expected a body without content encoding, found {coding:?}");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "request.encoding", message));
        }
        let path = head.uri.path();
        let takes_pictures = !(path.contains("/text") || path.ends_with("/embeddings") || path == "/v1/sessions");
        let limit = if takes_pictures { limits.body_bytes } else { SMALL.min(limits.body_bytes) };
        let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        if let Some(size) = announced.filter(|&size| size > limit) {
            drain(body, limit, limits.read_time()).await;
            return Err(Problem::too_much("bytes of the body", size, limit));
        }
        let kilobytes = u32::try_from(announced.unwrap_or(limit).div_ceil(1024)).unwrap_or(u32::MAX);
        let held = Arc::clone(&app.body_budget).try_acquire_many_owned(kilobytes).map_err(|_| {
            Problem::unavailable("the server holds as many bytes of requests as it may; try again in a moment")
        })?;
        match tokio::time::timeout(limits.read_time(), read(body, limit)).await {
            Ok(body) => Ok(Self { headers: head.headers, body: body?, held: Held(Arc::new(held)) }),
            Err(_) => {
                let message = format!("the body did not arrive within {} ms", limits.read_ms);
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request.slow", message))
            }
        }
    }
}

/// Collects a body of at most `limit` bytes.
async fn read(mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::malformed("the body broke off"))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > limit {
                drain(body, limit, std::time::Duration::from_secs(1)).await;
                return Err(Problem::too_much("bytes of the body", "what was sent", limit));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.into())
}

/// Reads on a little, so that a client that is still sending gets to see why it was refused.
async fn drain(mut body: Body, most: usize, patience: std::time::Duration) {
    let rest = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > most {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(patience.min(std::time::Duration::from_secs(2)), rest).await;
}

impl Upload {
    fn media_type(&self) -> &str {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Whether the client takes this kind of answer.
    pub(crate) fn accepts(&self, media_type: &str) -> bool {
        let values = self.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|one| one.split(';').next().unwrap_or_default().trim() == media_type)
    }

    /// The body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let media_type = self.media_type();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let message = format!("expected the content type application/json, found {media_type:?}");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "request.content-type", message));
        }
        parse(&self.body)
    }

    /// The fields of a request from JSON or from a form, and the pictures of a form's files.
    pub(crate) async fn fields<T: DeserializeOwned>(&self) -> Result<(T, Vec<Image>), Problem> {
        if !self.media_type().eq_ignore_ascii_case("multipart/form-data") {
            return Ok((self.json()?, Vec::new()));
        }
        let (fields, images) = self.form().await?;
        let fields = serde_json::from_value(Value::Object(fields))
            .map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "request.fields", error.to_string()))?;
        Ok((fields, images))
    }

    async fn form(&self) -> Result<(Map<String, Value>, Vec<Image>), Problem> {
        let broken = |error: multer::Error| Problem::malformed(format!("the form cannot be read: {error}"));
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = multer::parse_boundary(kind).map_err(broken)?;
        let whole = self.body.clone();
        let stream = futures_util::stream::once(async move { Ok::<_, std::io::Error>(whole) });
        let mut form = multer::Multipart::new(stream, boundary);
        let (mut fields, mut images, mut parts) = (Map::new(), Vec::new(), 0);
        while let Some(field) = form.next_field().await.map_err(broken)? {
            parts += 1;
            if parts > MOST_PARTS {
                return Err(Problem::too_much("parts of the form", "more", MOST_PARTS));
            }
            let name = field.name().unwrap_or_default().to_owned();
            if name == "image" {
                images.push(self.image(field.bytes().await.map_err(broken)?));
                continue;
            }
            let text = field.text().await.map_err(broken)?;
            let value = form_value(&name, &text)?;
            if fields.insert(name.clone(), value).is_some() {
                return Err(Problem::malformed(format!("the form has the field {name:?} twice")));
            }
        }
        Ok((fields, images))
    }

    pub(crate) fn image(&self, bytes: Bytes) -> Image {
        Image { content: Content::File(bytes), held: self.held.clone() }
    }

    /// A picture from base64; the beginning of a data address is allowed.
    pub(crate) fn base64_image(&self, text: &str) -> Result<Image, Problem> {
        let text = match text.split_once(";base64,") {
            Some((start, rest)) if start.starts_with("data:") => rest,
            _ => text,
        };
        let text = text.trim();
        let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE];
        let found = engines.iter().find_map(|engine| engine.decode(text).ok());
        let bytes = found.ok_or_else(|| Problem::invalid("image", "expected a picture in base64"))?;
        Ok(self.image(bytes.into()))
    }
}

/// A field of a form: lists by commas or as JSON, numbers and flags as they are written, the rest as text.
fn form_value(name: &str, text: &str) -> Result<Value, Problem> {
    let text = text.trim();
    let json = || {
        serde_json::from_str(text)
            .map_err(|error| Problem::malformed(format!("the field {name:?} is not JSON: {error}")))
    };
    match name {
        "classes" | "templates" | "images" if !text.starts_with('[') => {
            let words = text.split(',').map(|word| Value::from(word.trim()));
            Ok(words.collect())
        }
        "classes" | "templates" | "images" | "options" | "views" | "certainty" | "seed" | "top_k" | "explain"
        | "exif" | "view" | "points" | "radius" => json(),
        _ => Ok(Value::from(text)),
    }
}

/// JSON from bytes: what cannot be read is 400, what does not fit is 422.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "request.fields", error.to_string())
        } else {
            Problem::malformed(format!("the body is not JSON: {error}"))
        }
    })
}
