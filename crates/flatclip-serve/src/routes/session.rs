//! Sessions: streams of methods that learn from the images they see.

use crate::answer::{AnswerBody, json_body, json_bytes, timing};
use crate::app::App;
use crate::ask::{Recipe, request};
use crate::lanes::Weight;
use crate::problem::Problem;
use crate::typed::Encoded;
use crate::upload::Upload;
use crate::work::Answered;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flatclip::methods::Kind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

request! {
    /// How the session answers.
    SessionRequest {}
}

/// An open session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionBody {
    /// Its name in the URL.
    id: String,
    model: String,
    method: String,
    /// Seconds without requests after which it is closed.
    idle_seconds: u64,
}

/// The next image of a stream.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionClassifyRequest {
    /// An image in base64.
    #[schema(
        nullable = false,
        value_type = Option<String>,
        example = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAoElEQVR42h2OoRHCUBBEVyAiIiIiIjI3CETkl4gVyEgE6hSCApBbBAJ1NVDAlUAFVxHzsTs77z0AMICAAwICSKDwn80OtMFtlE1hc9pStvazcSAn5yIeg1uyFc8dYT7SF/eTvIUzfS+/dbBpoo6uJl1C19S99Ow6i5mxeVBxjXhkqOLVIywXZvPclfdIZb4rPz3NamWdvW6qZ9Qr61P1/QEJ5UDBJBkSEQAAAABJRU5ErkJggg=="
    )]
    image: Option<Encoded>,
    /// Number of classes in the answer; by default 5.
    #[schema(nullable = false)]
    top_k: Option<usize>,
}

/// Opens a session. A method that learns has a state of its own in it, which no other client sees.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = SessionRequest,
    responses((status = 201, description = "The session", body = SessionBody))
)]
pub(crate) async fn open(State(app): State<Arc<App>>, mut upload: Upload) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let client = upload.client;
    let mut request: SessionRequest = upload.json().await?;
    drop(upload);
    let recipe = Recipe::find(&app, request.take_settings()).await?;
    if recipe.kind == Kind::Batch {
        recipe.check_episodic()?;
    }
    recipe.weight(&app, 1)?;
    let place = app.sessions.place(client)?;
    let memory = app.classifiers.charge(state_bytes(&recipe))?;
    let classifier = recipe.classifier(&app, client, deadline).await?;
    let stream = classifier.stream()?;
    let method = classifier.method();
    let id = app.sessions.open(stream, recipe.model_name.clone(), classifier, (place, memory))?;
    let body = SessionBody {
        id,
        model: recipe.model_name,
        method: method.to_owned(),
        idle_seconds: app.sessions.lifetime.as_secs(),
    };
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, json, json_bytes(&body)?).into_response())
}

/// Maximum bytes of a method's state: a few features per class, and a shared part.
fn state_bytes(recipe: &Recipe) -> usize {
    let width = recipe.model.width();
    (8 * recipe.classes + 2 * width).saturating_mul(width * 4)
}

/// A session and its settings.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionBody))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let session = app.sessions.find(&id)?;
    let body = SessionBody {
        id,
        model: session.model.clone(),
        method: session.classifier.method().to_owned(),
        idle_seconds: app.sessions.lifetime.as_secs(),
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], json_bytes(&body)?).into_response())
}

/// Closes a session.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses((status = 204, description = "Closed"))
)]
pub(crate) async fn close(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    app.sessions.close(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer for the next image of the stream, which the method learns from.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/classify", tag = "sessions", request_body = SessionClassifyRequest,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The answer", body = AnswerBody))
)]
pub(crate) async fn classify(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    mut upload: Upload,
) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let client = upload.client;
    let session = app.sessions.find(&id)?;
    let (request, files) = upload.fields::<SessionClassifyRequest>().await?;
    let mut images = upload.images(files, request.image.into_iter().collect())?;
    if images.len() != 1 {
        return Err(Problem::invalid("image", format_args!("expected one image, found {}", images.len())));
    }
    let image = images.remove(0);
    let classifier = Arc::clone(&session.classifier);
    let top = request.top_k.unwrap_or(5).max(1);
    let names = classifier.classes().iter().map(String::len).max().unwrap_or(0) * 2 + 80;
    let memory =
        app.answer_memory(client, top.min(classifier.classes().len()) * names + classifier.views() * 48 + 512)?;
    // One image of a stream at a time; a waiting request does not hold a ticket of the queue.
    let mut stream = tokio::time::timeout_at(deadline.into(), Arc::clone(&session.stream).lock_owned())
        .await
        .map_err(|_| Problem::late())?;
    let ticket =
        app.queue.admit(client, 1, Weight::new(classifier.views(), 0.0).with_decoding(image.decoding_bytes()))?;
    crate::metrics::count_image(&session.model, classifier.method());
    let (pixels, own) = (app.pixels.clone(), Arc::clone(&classifier));
    let answered = app
        .queue
        .run(ticket, deadline, move || {
            let start = Instant::now();
            let _held = pixels.wait(image.decoding_bytes() + own.work_bytes);
            let answer = stream.answer(&image.image(&own.decode_options())?)?;
            Ok(Answered { answer, explained: None, took: start.elapsed() })
        })
        .await?;
    let body = AnswerBody::new(&session.model, &classifier, &answered, top);
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, timing(answered.took), json_body(&body, memory)?).into_response())
}
