//! Sessions: streams of methods that learn from the pictures they see.

use crate::answer::{AnswerBody, json_bytes, timing};
use crate::app::App;
use crate::ask::{Recipe, request};
use crate::problem::Problem;
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
    /// Its name in the address.
    id: String,
    model: String,
    method: String,
    /// Seconds after which it is closed when it is not used.
    idle_seconds: u64,
}

/// The next picture of a stream.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionClassifyRequest {
    /// A picture in base64.
    #[schema(
        nullable = false,
        example = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAoElEQVR42h2OoRHCUBBEVyAiIiIiIjI3CETkl4gVyEgE6hSCApBbBAJ1NVDAlUAFVxHzsTs77z0AMICAAwICSKDwn80OtMFtlE1hc9pStvazcSAn5yIeg1uyFc8dYT7SF/eTvIUzfS+/dbBpoo6uJl1C19S99Ow6i5mxeVBxjXhkqOLVIywXZvPclfdIZb4rPz3NamWdvW6qZ9Qr61P1/QEJ5UDBJBkSEQAAAABJRU5ErkJggg=="
    )]
    image: Option<String>,
    /// How many classes to tell; by default 5.
    #[schema(nullable = false)]
    top_k: Option<usize>,
}

/// Opens a session. A method that learns has a state of its own in it, which no other client sees.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = SessionRequest,
    responses((status = 201, description = "The session", body = SessionBody))
)]
pub(crate) async fn open(State(app): State<Arc<App>>, upload: Upload) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let request: SessionRequest = upload.json()?;
    let recipe = Recipe::new(&request.settings(), &app.catalogue(), &app)?;
    if recipe.kind == Kind::Batch {
        recipe.check_episodic()?;
    }
    let ticket = app.queue.admit(1)?;
    let classifier = recipe.classifier(&app, &ticket, deadline).await?;
    let stream = classifier.stream()?;
    let id = app.sessions.open(stream, recipe.model_name.clone(), classifier.method())?;
    let body = SessionBody {
        id,
        model: recipe.model_name,
        method: classifier.method().to_owned(),
        idle_seconds: app.sessions.lifetime.as_secs(),
    };
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, json, json_bytes(&body)?).into_response())
}

/// What a session is.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionBody))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let session = app.sessions.find(&id)?;
    let body = SessionBody {
        id,
        model: session.model.clone(),
        method: session.method.to_owned(),
        idle_seconds: app.sessions.lifetime.as_secs(),
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], json_bytes(&body)?).into_response())
}

/// Closes a session.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses((status = 204, description = "It is closed"))
)]
pub(crate) async fn close(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    app.sessions.close(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer for the next picture of the stream, which the method learns from.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/classify", tag = "sessions", request_body = SessionClassifyRequest,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The answer", body = AnswerBody))
)]
pub(crate) async fn classify(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    upload: Upload,
) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let session = app.sessions.find(&id)?;
    let (request, mut images) = upload.fields::<SessionClassifyRequest>().await?;
    if let Some(text) = &request.image {
        images.push(upload.base64_image(text)?);
    }
    if images.len() != 1 {
        return Err(Problem::invalid("image", format_args!("expected one picture, found {}", images.len())));
    }
    let image = images.remove(0);
    // One picture of a stream after the other; who waits here does not hold a place in the queue.
    let mut stream = tokio::time::timeout_at(deadline.into(), Arc::clone(&session.stream).lock_owned())
        .await
        .map_err(|_| Problem::late())?;
    let ticket = app.queue.admit(1)?;
    let (answered, classifier) = app
        .queue
        .run(&ticket, deadline, move || {
            let start = Instant::now();
            let classifier = stream.classifier().clone();
            let answer = stream.answer(&image.picture(&classifier.decode_options())?)?;
            Ok((Answered { answer, explained: None, took: start.elapsed() }, classifier))
        })
        .await?;
    let body = AnswerBody::new(&session.model, &classifier, &answered, request.top_k.unwrap_or(5).max(1));
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, timing(answered.took), json_bytes(&body)?).into_response())
}
