//! `POST /v1/embed/image` and `POST /v1/embed/text`.

use crate::answer::{NUMBER, Row, json_response};
use crate::ask::check_text;
use crate::routes::classify::check_count;
use crate::typed::{Encoded, Few, IMAGE, Images, Names};
use crate::upload::{Upload, Uploaded, weight_of};
use crate::work::{EmbedWork, Work};
use crate::{Caller, Charge, Limits, Problem, Weight};
use axum::response::Response;
use flatclip::Model;
use flatclip::image::DecodeOptions;
use flatclip::model::Features;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

/// Features of images.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmbedImageRequest {
    /// An image in base64.
    #[schema(nullable = false, value_type = Option<String>, example = json!(IMAGE))]
    image: Option<Encoded>,
    /// Several of them.
    #[schema(nullable = false, value_type = Option<Vec<String>>)]
    images: Option<Images>,
    /// Name of a model; by default the first.
    #[schema(nullable = false, example = "pocket")]
    model: Option<String>,
    /// Rotate images per EXIF and scale 16-bit grey (the default); `false` reads them as Pillow does.
    #[schema(nullable = false)]
    exif: Option<bool>,
}

/// Features of texts.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmbedTextRequest {
    /// The texts.
    #[schema(value_type = Vec<String>, example = json!(["a photo of a fish."]))]
    texts: Names,
    /// Name of a model; by default the first.
    #[schema(nullable = false, example = "pocket")]
    model: Option<String>,
    /// Cut texts that are too long for the tower instead of refusing them.
    #[schema(nullable = false)]
    truncate: Option<bool>,
}

/// Unit-norm features.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbedBody {
    model: String,
    /// Numbers of a row.
    width: usize,
    /// One row per image or text.
    #[schema(value_type = Vec<Vec<f64>>)]
    embeddings: Vec<Row>,
}

impl EmbedBody {
    fn response(model: &str, rows: Vec<Vec<f32>>, memory: Charge) -> Result<Response, Problem> {
        let width = rows.first().map_or(0, Vec::len);
        let embeddings = rows.into_iter().map(Row).collect();
        json_response(&Self { model: model.to_owned(), width, embeddings }, memory)
    }
}

/// Unit-norm features of images: JSON with base64, or a form with files called `image`.
#[utoipa::path(
    post, path = "/v1/embed/image", tag = "flatclip", request_body = EmbedImageRequest,
    responses((status = 200, description = "The features", body = EmbedBody))
)]
pub(crate) async fn images(mut upload: Upload) -> Result<Response, Problem> {
    let request: EmbedImageRequest = upload.fields().await?;
    let caller = upload.caller.clone();
    let images = upload.images(request.image, request.images)?;
    let catalogue = caller.app.catalogue();
    let (name, model) = catalogue.model(request.model.as_deref())?;
    check_count(images.len(), &caller.app)?;
    let memory = caller.answer_memory(rows_bytes(images.len(), model))?;
    let rows = embed_images(&caller, model, images, request.exif.unwrap_or(true)).await?;
    EmbedBody::response(name, rows, memory)
}

/// Bytes of so many rows, as numbers and as JSON.
pub(crate) fn rows_bytes(rows: usize, model: &Model) -> usize {
    rows.saturating_mul(model.width()).saturating_mul(NUMBER).saturating_add(1024)
}

/// Features of images, in their order; the first that fails fails all.
pub(crate) async fn embed_images(
    caller: &Caller,
    model: &Model,
    images: Vec<Uploaded>,
    exif: bool,
) -> Result<Vec<Vec<f32>>, Problem> {
    check_count(images.len(), &caller.app)?;
    let ticket = caller.admit(images.len(), weight_of(&images, Weight::new(images.len(), 0.0)))?;
    let options = DecodeOptions { max_pixels: caller.app.config.limits.pixels, exif, ..DecodeOptions::default() };
    let start = |image: Uploaded| {
        let (reply, answer) = oneshot::channel();
        let work = EmbedWork { model: model.clone(), image, options: options.clone(), reply };
        caller.app.queue.push(Work::Embed(work), &ticket, caller.deadline);
        answer
    };
    let waiting: Vec<_> = images.into_iter().map(start).collect();
    drop(ticket);
    let mut rows = Vec::with_capacity(waiting.len());
    for answer in waiting {
        rows.push(caller.wait(answer).await?);
    }
    Ok(rows)
}

/// Unit-norm features of texts.
#[utoipa::path(
    post, path = "/v1/embed/text", tag = "flatclip", request_body = EmbedTextRequest,
    responses((status = 200, description = "The features", body = EmbedBody))
)]
pub(crate) async fn texts(mut upload: Upload) -> Result<Response, Problem> {
    let EmbedTextRequest { texts: Few(texts), model, truncate } = upload.json().await?;
    let caller = upload.into_caller();
    let catalogue = caller.app.catalogue();
    let (name, model) = catalogue.model(model.as_deref())?;
    check_texts(&texts, &caller.app.config.limits)?;
    let memory = caller.answer_memory(rows_bytes(texts.len(), model))?;
    let rows = embed_texts(&caller, model, texts, truncate.unwrap_or(false)).await?;
    EmbedBody::response(name, rows, memory)
}

/// Checks the number of texts and their lengths.
pub(crate) fn check_texts(texts: &[String], limits: &Limits) -> Result<(), Problem> {
    if texts.is_empty() {
        return Err(Problem::invalid("texts", "expected at least one text, found none"));
    }
    if texts.len() > limits.texts {
        return Err(Problem::too_much("texts", texts.len(), limits.texts));
    }
    texts.iter().try_for_each(|text| check_text("text", text, limits))
}

/// Number of texts that cost as much as a few views.
const LIGHT_TEXTS: usize = 16;

/// Features of texts, in their order.
pub(crate) async fn embed_texts(
    caller: &Caller,
    model: &Model,
    texts: Vec<String>,
    truncate: bool,
) -> Result<Vec<Vec<f32>>, Problem> {
    check_texts(&texts, &caller.app.config.limits)?;
    let weight = if texts.len() <= LIGHT_TEXTS { Weight::Light } else { Weight::Normal };
    let (ticket, model) = (caller.admit(1, weight)?, model.clone());
    let encode = move || {
        let rows = Features::unit(model.raw_text_features(&texts, truncate)?).0;
        Ok(rows.iter_rows().map(<[f32]>::to_vec).collect())
    };
    caller.run(ticket, encode).await
}
