//! `POST /v1/classify`.

use crate::answer::{AnswerBody, json_response, timing};
use crate::ask::{Recipe, request};
use crate::cache::Kept;
use crate::queue::{Ticket, wait};
use crate::stream::{Form, Pieces, pieces};
use crate::typed::{Encoded, IMAGE, Images};
use crate::upload::{Upload, Uploaded, weight_of};
use crate::work::{AnswerWork, Answered, Work};
use crate::{App, Problem};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

request! {
    /// Classify images.
    ClassifyRequest {
        /// An image in base64.
        #[schema(nullable = false, value_type = Option<String>, example = json!(IMAGE))]
        image: Option<Encoded>,
        /// Several images in base64; they are answered as lines of JSON.
        #[schema(nullable = false, value_type = Option<Vec<String>>)]
        images: Option<Images>,
        /// Number of classes in the answer, per image; by default 5.
        #[schema(nullable = false)]
        top_k: Option<usize>,
        /// Also return prediction and crop of each view.
        #[schema(nullable = false)]
        explain: Option<bool>,
    }
}

/// What all images of a request share.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) classifier: Kept,
    pub(crate) top: usize,
    pub(crate) explain: bool,
    pub(crate) panic: bool,
}

/// Classify images: JSON with base64, or a form with files called `image`.
///
/// One image is answered as JSON, several as lines of JSON (NDJSON); with `Accept: text/event-stream` progress events
/// precede the answer.
#[utoipa::path(
    post, path = "/v1/classify", tag = "flatclip", request_body = ClassifyRequest,
    responses((status = 200, description = "The answer", body = AnswerBody))
)]
pub(crate) async fn classify(State(app): State<Arc<App>>, mut upload: Upload) -> Result<Response, Problem> {
    let deadline = app.deadline();
    let (mut request, files) = upload.fields::<ClassifyRequest>().await?;
    let settings = request.take_settings();
    let (client, headers) = (upload.client, upload.headers.clone());
    let (is_events, is_lines) = (upload.accepts("text/event-stream"), upload.accepts("application/x-ndjson"));
    let encoded = request.image.into_iter().chain(request.images.unwrap_or_default().0).collect();
    let mut images = upload.images(files, encoded)?;
    let total = images.len();
    check_count(total, &app)?;
    let recipe = Recipe::find(&app, settings).await?;
    recipe.check_episodic()?;
    let weight = weight_of(&images, recipe.weight(&app, total)?);
    let (top, explain) = (request.top_k.unwrap_or(5).max(1), request.explain.unwrap_or(false));
    let memory = app.answer_memory(client, total.saturating_mul(recipe.answer_bytes(top, explain)))?;
    let panic = wants_panic(&app, &headers)?;
    let form = if is_events {
        Form::Events
    } else if total > 1 || is_lines {
        Form::Lines
    } else {
        let classifier = recipe.classifier(&app, client, deadline).await?;
        let ticket = app.queue.admit(client, 1, weight)?;
        let asked = Asked { model: recipe.model_name.clone(), classifier, top, explain, panic };
        let image = images.pop().ok_or_else(|| Problem::invalid("image", "expected an image, found none"))?;
        let answered = answer(&app, &asked, image, ticket, deadline).await?;
        let body = AnswerBody::new(&asked.model, &asked.classifier, &answered, asked.top);
        return Ok((timing(answered.took), json_response(&body, memory)?).into_response());
    };
    // A refusal is sent as the status, except if the class list has to be built first: that may take a while, and no ticket of
    // the queue is held meanwhile.
    let admitted = recipe.is_kept(&app).then(|| app.queue.admit(client, total, weight)).transpose()?;
    Ok(pieces(form, 2 * total + 3, memory, move |out| async move {
        if out.tells_progress() && !out.send("progress", &json!({ "stage": "classes" })) {
            return;
        }
        let ready = async {
            let classifier = recipe.classifier(&app, client, deadline).await?;
            let ticket = admitted.map_or_else(|| app.queue.admit(client, total, weight), Ok)?;
            Ok((classifier, ticket))
        };
        match ready.await {
            Ok((classifier, ticket)) => {
                let asked = Asked { model: recipe.model_name.clone(), classifier, top, explain, panic };
                answer_pieces(&app, &asked, images, ticket, deadline, &out).await;
            }
            Err(problem) => {
                out.send("error", &error_line(None, &problem));
            }
        }
    }))
}

/// Refuses none, and more than the limit.
pub(crate) fn check_count(images: usize, app: &App) -> Result<(), Problem> {
    match images {
        0 => Err(Problem::invalid("image", "expected an image, found none")
            .with_hint("send the image as base64 in JSON, or as a file called image in a form (multipart/form-data)")),
        n if n > app.config.limits.images => Err(Problem::too_much("images", n, app.config.limits.images)),
        _ => Ok(()),
    }
}

/// The answer for one image.
pub(crate) async fn answer(
    app: &App,
    asked: &Asked,
    image: Uploaded,
    ticket: Ticket,
    deadline: Instant,
) -> Result<Answered, Problem> {
    let answer = start(app, asked, image, &ticket, deadline);
    drop(ticket); // returned when the job is done
    wait(answer, deadline).await
}

/// Puts an image into the queue.
pub(crate) fn start(
    app: &App,
    asked: &Asked,
    image: Uploaded,
    ticket: &Ticket,
    deadline: Instant,
) -> oneshot::Receiver<Result<Answered, Problem>> {
    let (reply, answer) = oneshot::channel();
    let work =
        AnswerWork { classifier: asked.classifier.clone(), image, explain: asked.explain, panic: asked.panic, reply };
    crate::metrics::count_image(&asked.model, asked.classifier.method());
    app.queue.push(Work::Answer(work), ticket, deadline);
    answer
}

/// Sends answers in the order of the images, each as soon as it and all before it are ready.
async fn answer_pieces(
    app: &App,
    asked: &Asked,
    images: Vec<Uploaded>,
    ticket: Ticket,
    deadline: Instant,
    out: &Pieces,
) {
    let total = images.len();
    let waiting: Vec<_> = images.into_iter().map(|image| start(app, asked, image, &ticket, deadline)).collect();
    drop(ticket); // returned when the jobs are done, whether or not the client reads
    for (place, answer) in waiting.into_iter().enumerate() {
        if out.tells_progress() {
            out.send("progress", &json!({ "stage": "images", "done": place, "total": total }));
        }
        let is_sent = match wait(answer, deadline).await {
            Ok(answered) => {
                let (asked, out) = (asked.clone(), out.clone());
                let classes = asked.top.min(asked.classifier.classes().len());
                let write = move || {
                    let body = AnswerBody::new(&asked.model, &asked.classifier, &answered, asked.top);
                    Ok(out.send("answer", &Line { image: place, body }))
                };
                app.apart(classes > MANY_CLASSES, write).await.unwrap_or(false)
            }
            Err(problem) => out.send("error", &error_line(Some(place), &problem)),
        };
        if !is_sent {
            return;
        }
    }
}

/// One of several answers.
#[derive(Serialize)]
struct Line {
    image: usize,
    #[serde(flatten)]
    body: AnswerBody,
}

/// Answers with more classes are serialised outside of the threads that serve connections.
const MANY_CLASSES: usize = 256;

/// An error inside a stream of answers.
pub(crate) fn error_line(place: Option<usize>, problem: &Problem) -> Value {
    let error = problem.detail();
    match place {
        Some(place) => json!({ "image": place, "error": error }),
        None => json!({ "error": error }),
    }
}

/// For tests, a header can make this handler or a worker panic.
pub(crate) fn wants_panic(app: &App, headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get("x-flatclip-fault").filter(|_| app.config.faults).map(|value| value.as_bytes()) {
        Some(b"handler") => std::panic::panic_any("injected"),
        Some(b"worker") => Ok(true),
        _ => Ok(false),
    }
}
