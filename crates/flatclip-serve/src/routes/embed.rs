//! `POST /v1/embed/image` and `POST /v1/embed/text`.

use crate::answer::json_bytes;
use crate::app::App;
use crate::ask::check_text;
use crate::problem::Problem;
use crate::queue::wait;
use crate::routes::classify::check_count;
use crate::upload::{Image, Upload};
use crate::work::{EmbedWork, Work};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use flatclip::Model;
use flatclip::image::DecodeOptions;
use flatclip::model::Features;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use utoipa::ToSchema;

/// Features of pictures.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmbedImageRequest {
    /// A picture in base64.
    #[schema(
        nullable = false,
        example = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAoElEQVR42h2OoRHCUBBEVyAiIiIiIjI3CETkl4gVyEgE6hSCApBbBAJ1NVDAlUAFVxHzsTs77z0AMICAAwICSKDwn80OtMFtlE1hc9pStvazcSAn5yIeg1uyFc8dYT7SF/eTvIUzfS+/dbBpoo6uJl1C19S99Ow6i5mxeVBxjXhkqOLVIywXZvPclfdIZb4rPz3NamWdvW6qZ9Qr61P1/QEJ5UDBJBkSEQAAAABJRU5ErkJggg=="
    )]
    image: Option<String>,
    /// Several of them.
    #[schema(nullable = false)]
    images: Option<Vec<String>>,
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
    #[schema(example = json!(["a photo of a fish."]))]
    texts: Vec<String>,
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
    /// One row per picture or text.
    embeddings: Vec<Vec<f64>>,
}

impl EmbedBody {
    fn response(model: &str, rows: Vec<Vec<f32>>) -> Result<Response, Problem> {
        let width = rows.first().map_or(0, Vec::len);
        let embeddings = rows.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect();
        let body = Self { model: model.to_owned(), width, embeddings };
        Ok(([(header::CONTENT_TYPE, "application/json")], json_bytes(&body)?).into_response())
    }
}

/// Unit-norm features of pictures: JSON with base64, or a form with files called `image`.
#[utoipa::path(
    post, path = "/v1/embed/image", tag = "flatclip", request_body = EmbedImageRequest,
    responses((status = 200, description = "The features", body = EmbedBody))
)]
pub(crate) async fn images(State(app): State<Arc<App>>, upload: Upload) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let (request, mut images) = upload.fields::<EmbedImageRequest>().await?;
    for text in request.image.iter().chain(request.images.iter().flatten()) {
        images.push(upload.base64_image(text)?);
    }
    let catalogue = app.catalogue();
    let (name, model) = catalogue.model(request.model.as_deref())?;
    let rows = embed_images(&app, model, images, request.exif.unwrap_or(true), deadline).await?;
    EmbedBody::response(name, rows)
}

/// Features of pictures, in their order; the first that fails fails all.
pub(crate) async fn embed_images(
    app: &App,
    model: &Model,
    images: Vec<Image>,
    exif: bool,
    deadline: Instant,
) -> Result<Vec<Vec<f32>>, Problem> {
    check_count(images.len(), app)?;
    let ticket = app.queue.admit(images.len())?;
    let options = DecodeOptions { max_pixels: app.config.limits.pixels, exif, ..DecodeOptions::default() };
    let start = |image: Image| {
        let (reply, answer) = oneshot::channel();
        let work = EmbedWork { model: model.clone(), image, options: options.clone(), reply };
        app.queue.push(Work::Embed(work), &ticket, deadline);
        answer
    };
    let waiting: Vec<_> = images.into_iter().map(start).collect();
    let mut rows = Vec::with_capacity(waiting.len());
    for answer in waiting {
        rows.push(wait(answer, deadline).await?);
    }
    Ok(rows)
}

/// Unit-norm features of texts.
#[utoipa::path(
    post, path = "/v1/embed/text", tag = "flatclip", request_body = EmbedTextRequest,
    responses((status = 200, description = "The features", body = EmbedBody))
)]
pub(crate) async fn texts(State(app): State<Arc<App>>, upload: Upload) -> Result<Response, Problem> {
    let request: EmbedTextRequest = upload.json()?;
    let catalogue = app.catalogue();
    let (name, model) = catalogue.model(request.model.as_deref())?;
    let rows = embed_texts(&app, model, request.texts, request.truncate.unwrap_or(false)).await?;
    EmbedBody::response(name, rows)
}

/// Features of texts, in their order.
pub(crate) async fn embed_texts(
    app: &App,
    model: &Model,
    texts: Vec<String>,
    truncate: bool,
) -> Result<Vec<Vec<f32>>, Problem> {
    let limits = &app.config.limits;
    if texts.is_empty() {
        return Err(Problem::invalid("texts", "expected at least one text, found none"));
    }
    if texts.len() > limits.texts {
        return Err(Problem::too_much("texts", texts.len(), limits.texts));
    }
    for text in &texts {
        check_text("text", text, limits)?;
    }
    let (ticket, model) = (app.queue.admit(1)?, model.clone());
    let encode = move || {
        let rows = Features::unit(model.raw_text_features(&texts, truncate)?).0;
        Ok(rows.iter_rows().map(<[f32]>::to_vec).collect())
    };
    app.queue.run(&ticket, app.deadline(), encode).await
}
