//! The body of a request: read within limits of size, time and memory, then parsed.

use crate::typed::{Encoded, Images, MOST_NAMES};
use crate::work::caught;
use crate::{App, Caller, Charge, Client, Problem, Short, Weight};
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use flatclip::Image;
use flatclip::image::{DecodeOptions, decoding_bytes};
use http_body_util::BodyExt as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts bytes against the budget for as long as they are held.
pub(crate) type Held = Arc<Charge>;

/// A complete request body.
pub(crate) struct Upload {
    pub(crate) headers: HeaderMap,
    pub(crate) caller: Caller,
    body: Bytes,
    charge: Charge,
    /// The files of a form, once it is parsed.
    files: Vec<Bytes>,
}

pub(crate) struct Uploaded {
    content: Content,
    _held: Held,
}

/// The bytes of a file, or pixels; both are slices of the uploaded body.
enum Content {
    File(Bytes),
    Pixels { width: usize, height: usize, rgb: Bytes },
}

impl Uploaded {
    pub(crate) fn file(bytes: Bytes, held: &Held) -> Self {
        Self { content: Content::File(bytes), _held: Arc::clone(held) }
    }

    /// Pixels that need no decoder.
    pub(crate) fn pixels(width: usize, height: usize, rgb: Bytes, held: &Held) -> Self {
        Self { content: Content::Pixels { width, height, rgb }, _held: Arc::clone(held) }
    }

    /// The image; a file is decoded with these options.
    pub(crate) fn image(&self, options: &DecodeOptions) -> flatclip::Result<Image> {
        match &self.content {
            Content::File(bytes) => flatclip::image::decode(bytes, options),
            Content::Pixels { width, height, rgb } => Ok(Image { width: *width, height: *height, rgb: rgb.to_vec() }),
        }
    }

    /// Bytes that [`Image::image`] takes at its peak, from the file's header.
    pub(crate) fn decoding_bytes(&self) -> usize {
        match &self.content {
            // An image that cannot be read, or is refused for its size, needs no memory.
            Content::File(bytes) => {
                decoding_bytes(bytes).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            Content::Pixels { rgb, .. } => rgb.len(),
        }
    }
}

/// The weight of jobs on images, given the `weight` without decoding.
pub(crate) fn weight_of(images: &[Uploaded], weight: Weight) -> Weight {
    images.iter().fold(weight, |weight, image| weight.with_decoding(image.decoding_bytes()))
}

/// Maximum body size of routes without images.
const SMALL: usize = 1 << 20;
/// Maximum parts of a form.
const MOST_PARTS: usize = 200;
/// Bodies up to this size are parsed on the thread that reads them; larger ones would delay other connections.
const INLINE: usize = 128 << 10;
/// Initial buffer size of a body; it doubles as bytes arrive.
const FIRST: usize = 16 << 10;

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
        let takes_images = !(path.contains("/text") || path.ends_with("/embeddings") || path == "/v1/sessions");
        let limit = if takes_images { limits.body_bytes } else { SMALL.min(limits.body_bytes) };
        let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        if let Some(size) = announced.filter(|&size| size > limit) {
            drain(body, limit, limits.read_time(), app).await;
            return Err(Problem::too_much("bytes of the body", size, limit));
        }
        if app.memory.is_short() {
            drain(body, FIRST, Duration::from_millis(50), app).await;
            return Err(Problem::unavailable("the server's memory is short"));
        }
        let client = head.extensions.get::<Client>().copied().unwrap_or_default();
        let mut charge = app.held.take(client, 0).map_err(short)?;
        let reading = read(body, announced, limit, &mut charge, app);
        let Ok(body) = tokio::time::timeout(limits.read_time(), reading).await else {
            let message = format!("the body did not arrive within {} ms", limits.read_ms);
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request.slow", message));
        };
        let caller = Caller { app: Arc::clone(app), client, deadline: Instant::now() + limits.deadline() };
        Ok(Self { headers: head.headers, caller, body: body?, charge, files: Vec::new() })
    }
}

pub(crate) fn short(short: Short) -> Problem {
    Problem::unavailable(match short {
        Short::Server => "the server holds as many bytes of requests as it may",
        Short::Client => "your requests hold as many bytes as those of one client may; wait for their answers",
    })
}

/// Reads a body of at most `limit` bytes. Memory is reserved as bytes arrive, whatever `Content-Length` says.
async fn read(
    mut body: Body,
    announced: Option<usize>,
    limit: usize,
    charge: &mut Charge,
    app: &App,
) -> Result<Bytes, Problem> {
    let reading = app.uploads.enter(charge.client());
    let mut all: Vec<u8> = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            () = reading.cut() => {
                let message = "the body stood still while memory was short; send it again, faster";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request.slow", message));
            }
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else { return Ok(all.into()) };
        let frame = frame.map_err(|_| Problem::malformed("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        let needed = all.len() + data.len();
        if needed > limit {
            drain(body, limit, Duration::from_secs(1), app).await;
            return Err(Problem::too_much("bytes of the body", "what was sent", limit));
        }
        if needed > all.capacity() {
            let step = (all.capacity() * 2).max(FIRST).min(announced.unwrap_or(limit)).max(needed);
            hold(charge, step - all.capacity(), app).await?;
            all.reserve_exact(step - all.len());
        }
        all.extend_from_slice(&data);
        reading.arrived(all.len(), charge.amount());
        app.uploads.pace(all.len(), data.len()).await;
    }
}

/// How long to wait for the memory of a stalled body that is being dropped.
const PATIENCE: u32 = 20;

/// Reserves memory; if there is not enough, stalled bodies are dropped first.
async fn hold(charge: &mut Charge, bytes: usize, app: &App) -> Result<(), Problem> {
    for _ in 0..PATIENCE {
        let Err(who) = charge.grow(bytes) else { return Ok(()) };
        let of = (who == Short::Client).then(|| charge.client());
        if !app.uploads.cut_one(of) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    charge.grow(bytes).map_err(short)
}

/// Reads and discards some more bytes, so that a client that is still sending receives the error response.
async fn drain(mut body: Body, most: usize, patience: Duration, app: &App) {
    let rest = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            seen += bytes;
            if seen > most {
                break;
            }
            app.uploads.pace(seen, bytes).await;
        }
    };
    let _ = tokio::time::timeout(patience.min(Duration::from_secs(2)), rest).await;
}

impl Upload {
    fn media_type(&self) -> &str {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Whether the client accepts this content type.
    pub(crate) fn accepts(&self, media_type: &str) -> bool {
        let values = self.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|one| one.split(';').next().unwrap_or_default().trim() == media_type)
    }

    /// Parses the body as JSON and releases its bytes.
    pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Problem> {
        let media_type = self.media_type();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let message = format!("expected the content type application/json, found {media_type:?}");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "request.content-type", message));
        }
        let body = self.take_body().await?;
        self.caller.app.parse(body).await
    }

    /// The fields of a request from JSON or from a form, whose files are stored.
    pub(crate) async fn fields<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Problem> {
        if !self.media_type().eq_ignore_ascii_case("multipart/form-data") {
            return self.json().await;
        }
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = multer::parse_boundary(kind).map_err(broken)?;
        let body = self.take_body().await?;
        let fields;
        (fields, self.files) = if body.len() <= INLINE {
            form(body, boundary).await?
        } else {
            let runtime = tokio::runtime::Handle::current();
            self.caller.app.apart(true, move || runtime.block_on(form(body, boundary))).await?
        };
        Ok(fields)
    }

    /// The raw body, which still counts against the budget.
    pub(crate) fn into_parts(self) -> (HeaderMap, Bytes, Held, Caller) {
        (self.headers, self.body, Arc::new(self.charge), self.caller)
    }

    /// Releases the body.
    pub(crate) fn into_caller(self) -> Caller {
        self.caller
    }

    /// The body for parsing. The parsed form is never larger than the body, so that much memory is reserved first.
    async fn take_body(&mut self) -> Result<Bytes, Problem> {
        hold(&mut self.charge, self.body.len(), &self.caller.app).await?;
        Ok(std::mem::take(&mut self.body))
    }

    /// The images in the body: files and base64. From here on only they count against the budget.
    pub(crate) fn images(mut self, one: Option<Encoded>, several: Option<Images>) -> Result<Vec<Uploaded>, Problem> {
        for encoded in one.into_iter().chain(several.into_iter().flat_map(|images| images.0)) {
            self.files.push(encoded.bytes()?);
        }
        self.charge.shrink_to(self.files.iter().map(Bytes::len).sum());
        let held = Arc::new(self.charge);
        Ok(self.files.into_iter().map(|bytes| Uploaded::file(bytes, &held)).collect())
    }

    /// The only image in the body.
    pub(crate) fn image(self, encoded: Option<Encoded>) -> Result<Uploaded, Problem> {
        let mut images = self.images(encoded, None)?;
        match (images.len(), images.pop()) {
            (1, Some(image)) => Ok(image),
            (count, _) => Err(Problem::invalid("image", format_args!("expected one image, found {count}"))),
        }
    }
}

impl App {
    /// Parses JSON.
    pub(crate) async fn parse<T: DeserializeOwned + Send + 'static>(&self, body: Bytes) -> Result<T, Problem> {
        self.apart(body.len() > INLINE, move || parse(&body)).await
    }

    /// Runs `work` on this thread if it is short, else on the blocking thread pool, a few tasks at a time.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        is_long: bool,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        if !is_long {
            return work();
        }
        let _turn = self.parsers.acquire().await;
        let done = tokio::task::spawn_blocking(|| caught(work)).await;
        done.ok().flatten().unwrap_or_else(|| Err(Problem::internal()))
    }
}

fn broken(error: multer::Error) -> Problem {
    Problem::malformed(format!("the form cannot be read: {error}"))
}

/// Parses a form: its fields as the JSON of a request without files, and its files.
async fn form<T: DeserializeOwned>(body: Bytes, boundary: String) -> Result<(T, Vec<Bytes>), Problem> {
    let stream = futures_util::stream::once(async move { Ok::<_, std::io::Error>(body) });
    let mut form = multer::Multipart::new(stream, boundary);
    let (mut json, mut names, mut images, mut parts) = (String::from("{"), Vec::new(), Vec::new(), 0);
    while let Some(field) = form.next_field().await.map_err(broken)? {
        parts += 1;
        if parts > MOST_PARTS {
            return Err(Problem::too_much("parts of the form", "more", MOST_PARTS));
        }
        let name = field.name().unwrap_or_default().to_owned();
        if name == "image" {
            images.push(field.bytes().await.map_err(broken)?);
            continue;
        }
        let text = field.text().await.map_err(broken)?;
        if !names.is_empty() {
            json.push(',');
        }
        write_field(&mut json, &name, text.trim())?;
        if names.contains(&name) {
            return Err(Problem::malformed(format!("the form has the field {name:?} twice")));
        }
        names.push(name);
    }
    json.push('}');
    let fields = serde_json::from_str(&json).map_err(|error| {
        let text = error.to_string();
        // The position in the generated JSON means nothing to the client.
        let text = text.split(" at line ").next().unwrap_or_default();
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "request.fields", text)
    })?;
    Ok((fields, images))
}

/// Converts a form field to JSON: lists are separated by commas or JSON, numbers and flags are unquoted, the rest is text.
fn write_field(json: &mut String, name: &str, text: &str) -> Result<(), Problem> {
    let quoted = |text: &str| serde_json::to_string(text).map_err(|_| Problem::internal());
    // Quoting turns a control character into six bytes, and a list turns a comma into three.
    if name != "images" && text.len() > SMALL {
        return Err(Problem::too_much(&format!("bytes of the field {name:?}"), text.len(), SMALL));
    }
    if name == "images" && !text.bytes().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        return Err(Problem::malformed("the field \"images\" is not base64"));
    }
    let commas = text.bytes().filter(|&byte| byte == b',').count();
    if commas > MOST_NAMES {
        return Err(Problem::too_much(&format!("entries of the field {name:?}"), commas, MOST_NAMES));
    }
    let _ = write!(json, "{}:", quoted(name)?); // writing to a String cannot fail
    match name {
        "classes" | "templates" | "images" if !text.starts_with('[') => {
            json.push('[');
            for (place, word) in text.split(',').enumerate() {
                let comma = if place == 0 { "" } else { "," };
                let _ = write!(json, "{comma}{}", quoted(word.trim())?);
            }
            json.push(']');
        }
        "classes" | "templates" | "images" | "options" | "views" | "certainty" | "seed" | "top_k" | "explain"
        | "exif" | "view" | "points" | "radius" => {
            // Exactly one value, so that a field cannot inject others.
            serde_json::from_str::<IgnoredAny>(text)
                .map_err(|error| Problem::malformed(format!("the field {name:?} is not JSON: {error}")))?;
            json.push_str(text);
        }
        _ => json.push_str(&quoted(text)?),
    }
    Ok(())
}

/// Parses JSON: a syntax error gives status 400, a wrong type or value 422.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "request.fields", error.to_string())
        } else {
            Problem::malformed(format!("the body is not JSON: {error}"))
        }
    })
}
