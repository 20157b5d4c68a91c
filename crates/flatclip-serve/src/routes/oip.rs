//! The Open Inference Protocol v2 (KServe, Triton).
//!
//! Each model takes `image` (encoded pictures) or `pixels` (RGB bytes) and gives `embedding`; with `classes` also
//! `probabilities` and `label`; and takes `text` and gives `text_embedding`.

use super::classify::{Asked, check_count, start};
use super::embed::{embed_images, embed_texts};
use crate::app::App;
use crate::ask::{Recipe, Settings};
use crate::problem::Problem;
use crate::queue::wait;
use crate::upload::{Image, Upload, parse};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use flatclip::Model;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;

pub(crate) use super::tensors::{InferRequest, InferResponse};
use super::tensors::{Tensor, pictures, render, take_input};

/// What the server is.
#[utoipa::path(get, path = "/v2", tag = "open inference protocol", responses((status = 200, description = "The server", body = Value)))]
pub(crate) async fn server() -> Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "name": "flatclip", "version": version, "extensions": ["binary_tensor_data"] }))
}

/// What a model takes and gives.
#[utoipa::path(
    get, path = "/v2/models/{model}", tag = "open inference protocol",
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The model", body = Value))
)]
pub(crate) async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    let catalogue = app.catalogue();
    let (name, model) = catalogue.model(Some(&name))?;
    let tensor =
        |name: &str, datatype: &str, shape: Value| json!({ "name": name, "datatype": datatype, "shape": shape });
    let width = model.width();
    Ok(Json(json!({
        "name": name, "versions": ["1"], "platform": "flatclip",
        "inputs": [
            tensor("image", "BYTES", json!([-1])), tensor("pixels", "UINT8", json!([-1, -1, -1, 3])),
            tensor("classes", "BYTES", json!([-1])), tensor("text", "BYTES", json!([-1])),
        ],
        "outputs": [
            tensor("embedding", "FP32", json!([-1, width])), tensor("probabilities", "FP32", json!([-1, -1])),
            tensor("label", "BYTES", json!([-1])), tensor("text_embedding", "FP32", json!([-1, width])),
        ],
    })))
}

/// Whether a model is ready.
#[utoipa::path(
    get, path = "/v2/models/{model}/ready", tag = "open inference protocol",
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "It is ready", body = Value))
)]
pub(crate) async fn model_ready(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    app.catalogue().model(Some(&name))?;
    app.check_ready()?;
    Ok(Json(json!({ "name": name, "ready": true })))
}

/// Runs a model: tensors as JSON, or after the JSON as bytes.
#[utoipa::path(
    post, path = "/v2/models/{model}/infer", tag = "open inference protocol", request_body = InferRequest,
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The outputs", body = InferResponse))
)]
pub(crate) async fn infer(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    upload: Upload,
) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let header_length = upload.headers.get("inference-header-content-length");
    let (head, mut tail) = match header_length {
        None => (upload.body.clone(), Default::default()),
        Some(length) => {
            let length = length.to_str().ok().and_then(|text| text.parse::<usize>().ok());
            let length = length.filter(|&length| length <= upload.body.len()).ok_or_else(|| {
                Problem::malformed("Inference-Header-Content-Length: expected a length within the body")
            })?;
            (upload.body.slice(..length), upload.body.slice(length..))
        }
    };
    let request: InferRequest = parse(&head)?;
    let mut inputs = Vec::new();
    for input in &request.inputs {
        inputs.push((input.name.clone(), take_input(input, &mut tail)?));
    }
    if !tail.is_empty() {
        return Err(Problem::malformed(format!("{} bytes after the JSON belong to no input", tail.len())));
    }
    let catalogue = app.catalogue();
    let (name, model) = catalogue.model(Some(&name))?;
    let given = Given::new(inputs, &upload, &app)?;
    let outputs = run(&app, name, model, given, &request.parameters, deadline).await?;
    let (body, json_length) = render(name, &request, outputs)?;
    let Some(json_length) = json_length else {
        return Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response());
    };
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.headers_mut().insert("inference-header-content-length", HeaderValue::from(json_length));
    Ok(response)
}

/// The inputs by meaning.
struct Given {
    images: Vec<Image>,
    classes: Option<Vec<String>>,
    texts: Vec<String>,
}

impl Given {
    fn new(inputs: Vec<(String, Tensor)>, upload: &Upload, app: &App) -> Result<Self, Problem> {
        let mut given = Self { images: Vec::new(), classes: None, texts: Vec::new() };
        for (name, tensor) in inputs {
            match (name.as_str(), tensor) {
                ("image", Tensor::Bytes { values, is_json, .. }) => {
                    for value in values {
                        // In JSON bytes are text, so pictures are in base64 there.
                        given.images.push(match std::str::from_utf8(&value) {
                            Ok(text) if is_json => upload.base64_image(text)?,
                            _ => upload.image(value),
                        });
                    }
                }
                ("pixels", Tensor::Uint8 { shape, data }) => {
                    let pictures = pictures(&shape, &data, app.config.limits.pixels)?;
                    given.images.extend(pictures.into_iter().map(|p| Image::from_pixels(p, upload.held.clone())));
                }
                ("classes", Tensor::Bytes { values, .. }) => given.classes = Some(texts("classes", &values)?),
                ("text", Tensor::Bytes { values, .. }) => given.texts = texts("text", &values)?,
                (name, _) => {
                    let known = "image (BYTES), pixels (UINT8), classes (BYTES), text (BYTES)";
                    return Err(Problem::invalid("inputs", format_args!("expected {known}, found {name:?}")));
                }
            }
        }
        Ok(given)
    }
}

fn texts(name: &str, values: &[axum::body::Bytes]) -> Result<Vec<String>, Problem> {
    let text = |value: &axum::body::Bytes| String::from_utf8(value.to_vec());
    values.iter().map(text).collect::<Result<_, _>>().map_err(|_| Problem::invalid(name, "expected UTF-8"))
}

async fn run(
    app: &App,
    name: &str,
    model: &Model,
    given: Given,
    parameters: &Map<String, Value>,
    deadline: Instant,
) -> Result<Vec<(&'static str, Tensor)>, Problem> {
    let mut outputs = Vec::new();
    if given.images.is_empty() && given.texts.is_empty() {
        return Err(Problem::invalid("inputs", "expected image, pixels or text, found none of them"));
    }
    if !given.texts.is_empty() {
        let rows = embed_texts(app, model, given.texts, false).await?;
        outputs.push(("text_embedding", Tensor::rows(rows)));
    }
    if given.images.is_empty() {
        return Ok(outputs);
    }
    let Some(classes) = given.classes else {
        let exif = exif_of(parameters)?.unwrap_or(true);
        let rows = embed_images(app, model, given.images, exif, deadline).await?;
        outputs.push(("embedding", Tensor::rows(rows)));
        return Ok(outputs);
    };
    check_count(given.images.len(), app)?;
    let settings = settings(name, classes, parameters)?;
    let recipe = Recipe::new(&settings, &app.catalogue(), app)?;
    recipe.check_episodic()?;
    let ticket = app.queue.admit(given.images.len())?;
    let classifier = recipe.classifier(app, &ticket, deadline).await?;
    let asked = Asked { model: name.to_owned(), classifier, top: 1, explain: false, panic: false };
    let waiting: Vec<_> = given.images.into_iter().map(|image| start(app, &asked, image, &ticket, deadline)).collect();
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    for answer in waiting {
        let answered = wait(answer, deadline).await?;
        labels.push(axum::body::Bytes::from(answered.answer.label().to_owned()));
        rows.push(answered.answer.probabilities().to_vec());
    }
    outputs.push(("probabilities", Tensor::rows(rows)));
    outputs.push(("label", Tensor::Bytes { shape: vec![labels.len()], values: labels, is_json: false }));
    Ok(outputs)
}

/// The reading rule that the parameters ask for.
fn exif_of(parameters: &Map<String, Value>) -> Result<Option<bool>, Problem> {
    let flag =
        |value: &Value| value.as_bool().ok_or_else(|| Problem::invalid("parameters.exif", "expected true or false"));
    parameters.get("exif").map(flag).transpose()
}

/// The request's parameters are texts, numbers and flags; options of the method are a text of JSON.
fn settings(name: &str, classes: Vec<String>, parameters: &Map<String, Value>) -> Result<Settings, Problem> {
    let mut settings = Settings { model: Some(name.to_owned()), classes: Some(classes), ..Settings::default() };
    for (key, value) in parameters {
        let wrong = || Problem::invalid(&format!("parameters.{key}"), "has the wrong type");
        let text = || value.as_str().map(str::to_owned).ok_or_else(wrong);
        match key.as_str() {
            "method" => settings.method = Some(text()?),
            "template" => settings.template = Some(text()?),
            "prompt" => settings.prompt = Some(text()?),
            "ensemble" => settings.ensemble = Some(text()?),
            "views" => settings.views = Some(value.as_u64().ok_or_else(wrong)?),
            "seed" => settings.seed = Some(value.as_u64().ok_or_else(wrong)?),
            "exif" => settings.exif = exif_of(parameters)?,
            "options" => settings.options = Some(parse(text()?.as_bytes())?),
            "binary_data_output" => {}
            other => return Err(Problem::invalid("parameters", format_args!("{other:?} is not known"))),
        }
    }
    Ok(settings)
}
