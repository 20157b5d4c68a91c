//! Sessions: streams of methods that learn from the images they see.

use crate::answer::{AnswerBody, json_response, timing};
use crate::ask::{Asked, Recipe, Settings};
use crate::typed::{Encoded, IMAGE};
use crate::upload::Upload;
use crate::work::Answered;
use crate::{App, Problem, Shared, Weight};
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use flatclip::methods::Kind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

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

impl SessionBody {
    fn of(app: &App, id: String) -> Result<Self, Problem> {
        let session = app.sessions.find(&id)?;
        let (model, method) = (session.model.clone(), session.classifier.method().to_owned());
        Ok(Self { id, model, method, idle_seconds: app.sessions.lifetime.as_secs() })
    }
}

/// The next image of a stream.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionClassifyRequest {
    /// An image in base64.
    #[schema(nullable = false, value_type = Option<String>, example = json!(IMAGE))]
    image: Option<Encoded>,
    /// Number of classes in the answer; by default 5.
    #[schema(nullable = false)]
    top_k: Option<usize>,
}

/// Opens a session. A method that learns has a state of its own in it, which no other client sees.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = Settings,
    responses((status = 201, description = "The session", body = SessionBody))
)]
pub(crate) async fn open(mut upload: Upload) -> Result<(StatusCode, Json<SessionBody>), Problem> {
    let settings: Settings = upload.json().await?;
    let caller = upload.into_caller();
    let app = &caller.app;
    let recipe = Recipe::find(app, settings).await?;
    if recipe.kind == Kind::Batch {
        recipe.check_episodic()?;
    }
    recipe.weight(app, 1)?;
    let place = app.sessions.place(caller.client)?;
    let memory = app.builds.classifiers.charge(state_bytes(&recipe))?;
    let classifier = recipe.classifier(&caller).await?;
    let stream = classifier.stream()?;
    let id = app.sessions.open(stream, recipe.model_name, classifier, (place, memory))?;
    Ok((StatusCode::CREATED, Json(SessionBody::of(app, id)?)))
}

/// Maximum bytes of a method's state: a few features per class, and a shared part.
fn state_bytes(recipe: &Recipe) -> usize {
    let width = recipe.order.model.width();
    (8 * recipe.classes + 2 * width).saturating_mul(width * 4)
}

/// A session and its settings.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionBody))
)]
pub(crate) async fn show(app: Shared, Path(id): Path<String>) -> Result<Json<SessionBody>, Problem> {
    SessionBody::of(&app, id).map(Json)
}

/// Closes a session.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses((status = 204, description = "Closed"))
)]
pub(crate) async fn close(app: Shared, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    app.sessions.close(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer for the next image of the stream, which the method learns from.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/classify", tag = "sessions", request_body = SessionClassifyRequest,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The answer", body = AnswerBody))
)]
pub(crate) async fn classify(Path(id): Path<String>, mut upload: Upload) -> Result<Response, Problem> {
    let caller = upload.caller.clone();
    let session = caller.app.sessions.find(&id)?;
    let request: SessionClassifyRequest = upload.fields().await?;
    let image = upload.image(request.image)?;
    let classifier = Arc::clone(&session.classifier);
    let top = request.top_k.unwrap_or(5).max(1);
    let names = classifier.classes().iter().map(String::len).max().unwrap_or(0) * 2 + 80;
    let memory = caller.answer_memory(top.min(classifier.classes().len()) * names + classifier.views() * 48 + 512)?;
    // One image of a stream at a time; a waiting request does not hold a ticket of the queue.
    let free = tokio::time::timeout_at(caller.deadline.into(), Arc::clone(&session.stream).lock_owned());
    let mut stream = free.await.map_err(|_| Problem::late())?;
    let weight = Weight::new(classifier.views(), 0.0).with_decoding(image.decoding_bytes());
    let ticket = caller.admit(1, weight)?;
    crate::metrics::count_image(&session.model, classifier.method());
    let (pixels, own) = (caller.app.pixels.clone(), Arc::clone(&classifier));
    let work = move || {
        let start = Instant::now();
        let _held = pixels.wait(image.decoding_bytes() + own.work_bytes);
        let answer = stream.answer(&image.image(&own.decode_options())?)?;
        Ok(Answered { answer, explained: None, took: start.elapsed() })
    };
    let answered = caller.run(ticket, work).await?;
    let asked = Asked { model: session.model.clone(), classifier, top, explain: false, panic: false };
    let body = AnswerBody::new(&asked, &answered);
    Ok((timing(answered.took), json_response(&body, memory)?).into_response())
}
