//! The Open Inference Protocol v2 (KServe, Triton).
//!
//! Each model takes `image` (encoded images) or `pixels` (RGB bytes) and gives `embedding`; with `classes` also
//! `probabilities` and `label`; and takes `text` and gives `text_embedding`.

use super::classify::{check_count, start};
use super::embed::{embed_images, embed_texts, rows_bytes};
use crate::answer::{NUMBER, counted};
use crate::ask::{Recipe, Settings};
use crate::typed::{Encoded, Few, Parameters};
use crate::upload::{Held, Upload, Uploaded, parse, short, weight_of};
use crate::{App, Caller, Problem, Shared};
use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use flatclip::Model;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

pub(crate) use super::tensors::{InferRequest, InferResponse};
use super::tensors::{Tensor, check_outputs, images, render, take_input};

/// About the server.
#[utoipa::path(get, path = "/v2", tag = "open inference protocol", responses((status = 200, description = "The server", body = Value)))]
pub(crate) async fn server() -> Json<Value> {
    let extensions = ["binary_tensor_data", "model_configuration", "statistics"];
    Json(json!({ "name": "flatclip", "version": env!("CARGO_PKG_VERSION"), "extensions": extensions }))
}

/// The model that the path names, with its version or without.
pub(crate) struct Named {
    app: Arc<App>,
    name: String,
    model: Model,
}

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        struct InPath {
            model: String,
            version: Option<String>,
        }
        let path = Path::<InPath>::from_request_parts(parts, app).await;
        let Path(InPath { model, version }) = path.map_err(|error| Problem::malformed(error.body_text()))?;
        let catalogue = app.catalogue();
        let (name, model) = catalogue.model(Some(&model))?;
        // Each model has one version.
        if let Some(other) = version.filter(|version| version != "1") {
            let other: String = other.chars().take(40).collect();
            let message = format!("model `{name}` has version 1, not {other:?}");
            return Err(Problem::not_found(message).with_hint("ask for version 1, or for none"));
        }
        Ok(Self { app: Arc::clone(app), name: name.to_owned(), model: model.clone() })
    }
}

/// Name, type and shape.
type Shaped = (&'static str, &'static str, Vec<i64>);

/// What a model takes, and what it gives.
fn tensors(model: &Model) -> ([Shaped; 4], [Shaped; 4]) {
    let width = i64::try_from(model.width()).unwrap_or(-1);
    let (image, pixels) = (("image", "BYTES", vec![-1]), ("pixels", "UINT8", vec![-1, -1, -1, 3]));
    let (classes, text) = (("classes", "BYTES", vec![-1]), ("text", "BYTES", vec![-1]));
    let (embedding, rows) = (("embedding", "FP32", vec![-1, width]), ("text_embedding", "FP32", vec![-1, width]));
    let (probabilities, label) = (("probabilities", "FP32", vec![-1, -1]), ("label", "BYTES", vec![-1]));
    ([image, pixels, classes, text], [embedding, probabilities, label, rows])
}

/// Inputs and outputs of a model. Each route of a model also exists with its version: `/v2/models/{model}/versions/1`.
#[utoipa::path(
    get, path = "/v2/models/{model}", tag = "open inference protocol",
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The model", body = Value))
)]
pub(crate) async fn model(Named { name, model, .. }: Named) -> Json<Value> {
    let told = |tensors: [Shaped; 4]| {
        tensors.map(|(name, datatype, shape)| json!({ "name": name, "datatype": datatype, "shape": shape }))
    };
    let (inputs, outputs) = tensors(&model);
    Json(json!({
        "name": name, "versions": ["1"], "platform": "flatclip", "inputs": told(inputs), "outputs": told(outputs),
    }))
}

/// The same as a configuration of Triton; the first side of a shape is the batch, so `max_batch_size` is 0.
#[utoipa::path(
    get, path = "/v2/models/{model}/config", tag = "open inference protocol",
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The configuration", body = Value))
)]
pub(crate) async fn config(Named { name, model, .. }: Named) -> Json<Value> {
    let told = |tensors: [Shaped; 4]| {
        tensors.map(|(name, datatype, dims)| {
            let kind = if datatype == "BYTES" { "STRING" } else { datatype };
            json!({ "name": name, "data_type": format!("TYPE_{kind}"), "dims": dims })
        })
    };
    let (inputs, outputs) = tensors(&model);
    Json(json!({
        "name": name, "platform": "flatclip", "backend": "flatclip", "max_batch_size": 0,
        "version_policy": { "latest": { "num_versions": 1 } }, "input": told(inputs), "output": told(outputs),
    }))
}

/// Requests of this protocol to a model since the start.
#[utoipa::path(
    get, path = "/v2/models/{model}/stats", tag = "open inference protocol",
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The statistics", body = Value))
)]
pub(crate) async fn statistics(Named { app, name, .. }: Named) -> Json<Value> {
    Json(json!({ "model_stats": [app.statistics.of(&name)] }))
}

/// Requests of this protocol to all models since the start.
#[utoipa::path(
    get, path = "/v2/models/stats", tag = "open inference protocol",
    responses((status = 200, description = "The statistics", body = Value))
)]
pub(crate) async fn all_statistics(app: Shared) -> Json<Value> {
    let catalogue = app.catalogue();
    let all: Vec<Value> = catalogue.models.iter().map(|(entry, _)| app.statistics.of(&entry.name)).collect();
    Json(json!({ "model_stats": all }))
}

/// Whether a model is ready.
#[utoipa::path(
    get, path = "/v2/models/{model}/ready", tag = "open inference protocol",
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "Ready", body = Value))
)]
pub(crate) async fn model_ready(Named { app, name, .. }: Named) -> Result<Json<Value>, Problem> {
    app.check_ready()?;
    Ok(Json(json!({ "name": name, "ready": true })))
}

/// Runs a model: tensors as JSON, or after the JSON as bytes.
#[utoipa::path(
    post, path = "/v2/models/{model}/infer", tag = "open inference protocol", request_body = InferRequest,
    params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The outputs", body = InferResponse))
)]
pub(crate) async fn infer(named: Result<Named, Problem>, upload: Upload) -> Result<Response, Problem> {
    let start = Instant::now();
    // Unknown names are refused here, after the body was read.
    let Named { app, name, model } = named?;
    let answered = answer(&name, &model, upload).await;
    let count = answered.as_ref().ok().map(|&(_, count)| count);
    app.statistics.count(&name, count, start.elapsed());
    Ok(answered?.0)
}

/// The answer, and how many images and texts it is for.
async fn answer(name: &str, model: &Model, upload: Upload) -> Result<(Response, usize), Problem> {
    let (headers, body, held, caller) = upload.into_parts();
    let app = &caller.app;
    let (head, mut tail) = match headers.get("inference-header-content-length") {
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
    // The parsed form is never larger than the JSON.
    let parsed = app.held.take(caller.client, head.len()).map_err(short)?;
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
    let given = Given::new(inputs, &held, app)?;
    let count = given.images.len() + given.texts.len();
    let memory = caller.answer_memory(given.answer_bytes(model))?;
    let outputs = run(&caller, name, model, given, &request.parameters).await?;
    drop((held, parsed));
    let (body, json_length) = render(name, request, outputs)?;
    let media_type = if json_length.is_some() { "application/octet-stream" } else { "application/json" };
    let mut response = ([(header::CONTENT_TYPE, media_type)], counted(body, memory)).into_response();
    if let Some(length) = json_length {
        response.headers_mut().insert("inference-header-content-length", HeaderValue::from(length));
    }
    Ok((response, count))
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
                        // In JSON, bytes are text, so images are in base64.
                        let bytes = match std::str::from_utf8(&value) {
                            Ok(text) if is_json => Encoded::new(text).bytes()?,
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
    caller: &Caller,
    name: &str,
    model: &Model,
    given: Given,
    parameters: &Parameters,
) -> Result<Vec<(&'static str, Tensor)>, Problem> {
    let app = &caller.app;
    if given.images.is_empty() && given.texts.is_empty() {
        return Err(Problem::invalid("inputs", "expected image, pixels or text, found none of them"));
    }
    let mut outputs = Vec::new();
    if !given.texts.is_empty() {
        let rows = embed_texts(caller, model, given.texts, false).await?;
        outputs.push(("text_embedding", Tensor::rows(rows)));
    }
    if given.images.is_empty() {
        return Ok(outputs);
    }
    let Some(classes) = given.classes else {
        let exif = exif_of(parameters)?.unwrap_or(true);
        let rows = embed_images(caller, model, given.images, exif).await?;
        outputs.push(("embedding", Tensor::rows(rows)));
        return Ok(outputs);
    };
    check_count(given.images.len(), app)?;
    let recipe = Recipe::find(app, settings(name, classes, parameters)?).await?;
    recipe.check_episodic()?;
    let weight = weight_of(&given.images, recipe.weight(app, given.images.len())?);
    let asked = recipe.asked(caller, (1, false, false)).await?;
    let ticket = caller.admit(given.images.len(), weight)?;
    let waiting: Vec<_> = given.images.into_iter().map(|image| start(caller, &asked, image, &ticket)).collect();
    drop(ticket);
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    for answer in waiting {
        let answered = caller.wait(answer).await?;
        labels.push(axum::body::Bytes::from(answered.answer.label().to_owned()));
        rows.push(answered.answer.probabilities().to_vec());
    }
    outputs.push(("probabilities", Tensor::rows(rows)));
    outputs.push(("label", Tensor::Bytes { shape: vec![labels.len()], values: labels, is_json: false }));
    Ok(outputs)
}

/// The parameter `exif`.
fn exif_of(parameters: &Parameters) -> Result<Option<bool>, Problem> {
    let wrong = || Problem::invalid("parameters.exif", "expected true or false");
    parameters.0.get("exif").map(|value| value.as_bool().ok_or_else(wrong)).transpose()
}

/// Reads the parameters of a request: texts, numbers and flags; the options of the method are JSON in a text.
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
