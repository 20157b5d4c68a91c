//! The Open Inference Protocol v2 (KServe, Triton).
//!
//! Each model takes `image` (encoded images) or `pixels` (RGB bytes) and gives `embedding`; with `classes` also
//! `probabilities` and `label`; and takes `text` and gives `text_embedding`.

use super::classify::{Asked, check_count, start};
use super::embed::{embed_images, embed_texts, rows_bytes};
use crate::answer::{NUMBER, counted};
use crate::app::App;
use crate::ask::{Recipe, Settings};
use crate::client::Client;
use crate::problem::Problem;
use crate::queue::wait;
use crate::typed::{Encoded, Few, Parameters};
use crate::upload::{Held, Upload, Uploaded, parse, short, weight_of};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use flatclip::Model;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

pub(crate) use super::tensors::{InferRequest, InferResponse};
use super::tensors::{Tensor, check_outputs, images, render, take_input};

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
    let (headers, body, held, client) = upload.into_parts();
    let header_length = headers.get("inference-header-content-length");
    let (head, mut tail) = match header_length {
        None => (body.clone(), Default::default()),
        Some(length) => {
            let length = length.to_str().ok().and_then(|text| text.parse::<usize>().ok());
            let length = length.filter(|&length| length <= body.len()).ok_or_else(|| {
                Problem::malformed("Inference-Header-Content-Length: expected a length within the body")
            })?;
            (body.slice(..length), body.slice(length..))
        }
    };
    drop(body);
    // What the JSON becomes is never larger than itself.
    let parsed = app.held.take(client, head.len()).map_err(short)?;
    let mut request: InferRequest = app.parse(head).await?;
    check_outputs(&request)?;
    let mut inputs: Vec<(String, Tensor)> = Vec::new();
    for input in std::mem::take(&mut request.inputs.0) {
        let name = input.name.clone();
        if inputs.iter().any(|(known, _)| *known == name) {
            return Err(Problem::invalid("inputs", format_args!("{name:?} is a duplicate; give each input once")));
        }
        inputs.push((name, take_input(input, &mut tail)?));
    }
    if !tail.is_empty() {
        return Err(Problem::malformed(format!("{} bytes after the JSON belong to no input", tail.len())));
    }
    let catalogue = app.catalogue();
    let (name, model) = catalogue.model(Some(&name))?;
    let given = Given::new(inputs, &held, &app)?;
    let memory = app.answer_memory(client, given.answer_bytes(model))?;
    let outputs = run(&app, client, name, model, given, &request.parameters, deadline).await?;
    drop((held, parsed));
    let (body, json_length) = render(name, request, outputs)?;
    let Some(json_length) = json_length else {
        return Ok(([(header::CONTENT_TYPE, "application/json")], counted(body, memory)).into_response());
    };
    let octets = [(header::CONTENT_TYPE, "application/octet-stream")];
    let mut response = (octets, counted(body, memory)).into_response();
    response.headers_mut().insert("inference-header-content-length", HeaderValue::from(json_length));
    Ok(response)
}

/// The inputs by meaning.
struct Given {
    images: Vec<Uploaded>,
    classes: Option<Vec<String>>,
    texts: Vec<String>,
}

impl Given {
    fn new(inputs: Vec<(String, Tensor)>, held: &Held, app: &App) -> Result<Self, Problem> {
        let mut given = Self { images: Vec::new(), classes: None, texts: Vec::new() };
        for (name, tensor) in inputs {
            match (name.as_str(), tensor) {
                ("image", Tensor::Bytes { values, is_json, .. }) => {
                    check_count(values.len(), app)?;
                    for value in values {
                        // In JSON bytes are text, so images are in base64 there.
                        let bytes = match std::str::from_utf8(&value) {
                            Ok(text) if is_json => match Encoded::new(text) {
                                Encoded::Bytes(bytes) => bytes,
                                Encoded::Broken => {
                                    return Err(Problem::invalid("image", "expected an image in base64"));
                                }
                            },
                            _ => value,
                        };
                        given.images.push(Uploaded::file(bytes, held));
                    }
                }
                ("pixels", Tensor::Uint8 { shape, data }) => {
                    let decoded_images = images(&shape, data, &app.config.limits)?;
                    let image = |(width, height, rgb)| Uploaded::pixels(width, height, rgb, held);
                    given.images.extend(decoded_images.into_iter().map(image));
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

    /// Bytes of all outputs, each once.
    fn answer_bytes(&self, model: &Model) -> usize {
        let classes = self.classes.as_ref().map_or(0, Vec::len);
        let names = self.classes.iter().flatten().map(String::len).max().unwrap_or(0);
        let per_image = if classes > 0 { classes * NUMBER + names * 2 } else { model.width() * NUMBER };
        self.images.len().saturating_mul(per_image).saturating_add(rows_bytes(self.texts.len(), model))
    }
}

fn texts(name: &str, values: &[axum::body::Bytes]) -> Result<Vec<String>, Problem> {
    let text = |value: &axum::body::Bytes| String::from_utf8(value.to_vec());
    values.iter().map(text).collect::<Result<_, _>>().map_err(|_| Problem::invalid(name, "expected UTF-8"))
}

async fn run(
    app: &Arc<App>,
    client: Client,
    name: &str,
    model: &Model,
    given: Given,
    parameters: &Parameters,
    deadline: Instant,
) -> Result<Vec<(&'static str, Tensor)>, Problem> {
    let mut outputs = Vec::new();
    if given.images.is_empty() && given.texts.is_empty() {
        return Err(Problem::invalid("inputs", "expected image, pixels or text, found none of them"));
    }
    if !given.texts.is_empty() {
        let rows = embed_texts(app, client, model, given.texts, false).await?;
        outputs.push(("text_embedding", Tensor::rows(rows)));
    }
    if given.images.is_empty() {
        return Ok(outputs);
    }
    let Some(classes) = given.classes else {
        let exif = exif_of(parameters)?.unwrap_or(true);
        let rows = embed_images(app, client, model, given.images, exif, deadline).await?;
        outputs.push(("embedding", Tensor::rows(rows)));
        return Ok(outputs);
    };
    check_count(given.images.len(), app)?;
    let settings = settings(name, classes, parameters)?;
    let recipe = Recipe::find(app, settings).await?;
    recipe.check_episodic()?;
    let weight = weight_of(&given.images, recipe.weight(app, given.images.len())?);
    let classifier = recipe.classifier(app, client, deadline).await?;
    let ticket = app.queue.admit(client, given.images.len(), weight)?;
    let asked = Asked { model: name.to_owned(), classifier, top: 1, explain: false, panic: false };
    let waiting: Vec<_> = given.images.into_iter().map(|image| start(app, &asked, image, &ticket, deadline)).collect();
    drop(ticket);
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
fn exif_of(parameters: &Parameters) -> Result<Option<bool>, Problem> {
    let wrong = || Problem::invalid("parameters.exif", "expected true or false");
    parameters.0.get("exif").map(|value| value.as_bool().ok_or_else(wrong)).transpose()
}

/// The request's parameters are texts, numbers and flags; options of the method are a text of JSON.
fn settings(name: &str, classes: Vec<String>, parameters: &Parameters) -> Result<Settings, Problem> {
    let mut settings = Settings { model: Some(name.to_owned()), classes: Some(Few(classes)), ..Settings::default() };
    for (key, value) in &parameters.0 {
        let wrong = || Problem::invalid(&format!("parameters.{key}"), "has the wrong type");
        let text = || value.as_str().map(str::to_owned).ok_or_else(wrong);
        let number = || value.as_integer().and_then(|number| u64::try_from(number).ok()).ok_or_else(wrong);
        match key.as_str() {
            "method" => settings.method = Some(text()?),
            "template" => settings.template = Some(text()?),
            "prompt" => settings.prompt = Some(text()?),
            "ensemble" => settings.ensemble = Some(text()?),
            "views" => settings.views = Some(number()?),
            "seed" => settings.seed = Some(number()?),
            "exif" => settings.exif = exif_of(parameters)?,
            "options" => settings.options = Some(parse(text()?.as_bytes())?),
            "binary_data_output" => {}
            other => return Err(Problem::invalid("parameters", format_args!("{other:?} is not known"))),
        }
    }
    Ok(settings)
}
