//! `POST /v1/classify`.

use crate::answer::{AnswerBody, json_response, timing};
use crate::ask::{Asked, Recipe, request};
use crate::queue::Ticket;
use crate::stream::{Form, Pieces, pieces};
use crate::typed::{Encoded, IMAGE, Images};
use crate::upload::{Upload, Uploaded, weight_of};
use crate::work::{AnswerWork, Answered, Work};
use crate::{App, Caller, Problem, Weight};
use axum::http::HeaderValue;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot::{self, Receiver};

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

/// Classify images: JSON with base64, or a form with files called `image`.
///
/// One image is answered as JSON, several as lines of JSON (NDJSON); with `Accept: text/event-stream` progress events
/// precede the answer.
#[utoipa::path(
    post, path = "/v1/classify", tag = "flatclip", request_body = ClassifyRequest,
    responses((status = 200, description = "The answer", body = AnswerBody))
)]
pub(crate) async fn classify(mut upload: Upload) -> Result<Response, Problem> {
    let mut request: ClassifyRequest = upload.fields().await?;
    let settings = request.take_settings();
    let (is_events, is_lines) = (upload.accepts("text/event-stream"), upload.accepts("application/x-ndjson"));
    let (caller, panic) = (upload.caller.clone(), wants_panic(&upload));
    let app = &caller.app;
    let mut images = upload.images(request.image, request.images)?;
    let total = images.len();
    check_count(total, app)?;
    let recipe = Recipe::find(app, settings).await?;
    recipe.check_episodic()?;
    let weight = weight_of(&images, recipe.weight(app, total)?);
    let (top, explain) = (request.top_k.unwrap_or(5).max(1), request.explain.unwrap_or(false));
    let memory = caller.answer_memory(total.saturating_mul(recipe.answer_bytes(top, explain)))?;
    let how = (top, explain, panic);
    let form = if is_events {
        Form::Events
    } else if let Some(image) = images.pop_if(|_| total == 1 && !is_lines) {
        let asked = recipe.asked(&caller, how).await?;
        let answered = answer(&caller, &asked, image, weight).await?;
        let body = AnswerBody::new(&asked, &answered);
        return Ok((timing(answered.took), json_response(&body, memory)?).into_response());
    } else {
        Form::Lines
    };
    // A refusal is sent as the status, except if the class list has to be built first: that may take a while, and no ticket of
    // the queue is held meanwhile.
    let admitted = recipe.is_cached(app).then(|| caller.admit(total, weight)).transpose()?;
    Ok(pieces(form, 2 * total + 3, memory, move |out| async move {
        if out.tells_progress() && !out.send("progress", &json!({ "stage": "classes" })) {
            return;
        }
        let ready = async {
            let asked = recipe.asked(&caller, how).await?;
            Ok((asked, admitted.map_or_else(|| caller.admit(total, weight), Ok)?))
        };
        match ready.await {
            Ok((asked, ticket)) => answer_pieces(&caller, &asked, images, ticket, &out).await,
            Err(problem) => drop(out.send("error", &error_line(None, &problem))),
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

/// Admits one image and waits for its answer.
pub(crate) async fn answer(
    caller: &Caller,
    asked: &Asked,
    image: Uploaded,
    weight: Weight,
) -> Result<Answered, Problem> {
    // The ticket is returned when the job is done.
    let answer = start(caller, asked, image, &caller.admit(1, weight)?);
    caller.wait(answer).await
}

/// Puts an image into the queue.
pub(crate) fn start(
    caller: &Caller,
    asked: &Asked,
    image: Uploaded,
    ticket: &Ticket,
) -> Receiver<Result<Answered, Problem>> {
    let (reply, answer) = oneshot::channel();
    crate::metrics::count_image(&asked.model, asked.classifier.method());
    let work = Work::Answer(AnswerWork { asked: asked.clone(), image, reply });
    caller.app.queue.push(work, ticket, caller.deadline);
    answer
}

/// Sends answers in the order of the images, each as soon as it and all before it are ready.
async fn answer_pieces(caller: &Caller, asked: &Asked, images: Vec<Uploaded>, ticket: Ticket, out: &Pieces) {
    let total = images.len();
    let waiting: Vec<_> = images.into_iter().map(|image| start(caller, asked, image, &ticket)).collect();
    drop(ticket); // returned when the jobs are done, whether or not the client reads
    for (place, answer) in waiting.into_iter().enumerate() {
        if out.tells_progress() {
            out.send("progress", &json!({ "stage": "images", "done": place, "total": total }));
        }
        let is_sent = match caller.wait(answer).await {
            Ok(answered) => {
                let (asked, out) = (asked.clone(), out.clone());
                let classes = asked.top.min(asked.classifier.classes().len());
                let write = move || {
                    let body = AnswerBody::new(&asked, &answered);
                    Ok(out.send("answer", &Line { image: place, body }))
                };
                caller.app.apart(classes > MANY_CLASSES, write).await.unwrap_or(false)
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
fn wants_panic(upload: &Upload) -> bool {
    match upload.headers.get("x-flatclip-fault").filter(|_| upload.caller.app.config.faults).map(HeaderValue::as_bytes)
    {
        Some(b"handler") => std::panic::panic_any("injected"),
        fault => fault == Some(b"worker"),
    }
}
