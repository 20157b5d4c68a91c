//! `POST /v1/slice`: the loss of one view around the prompt, streamed row by row until the client disconnects.

use crate::ask::{Recipe, request};
use crate::routes::classify::error_line;
use crate::stream::{Form, Pieces, pieces};
use crate::typed::{Encoded, IMAGE};
use crate::upload::{Upload, Uploaded};
use crate::{App, Problem, Weight};
use axum::response::Response;
use flatclip::{Classifier, Error, SliceRequest};
use serde_json::json;
use std::time::Instant;

request! {
    /// The loss of a view on a grid around the prompt.
    SliceRequestBody {
        /// An image in base64.
        #[schema(nullable = false, value_type = Option<String>, example = json!(IMAGE))]
        image: Option<Encoded>,
        /// Which view; by default the image itself.
        #[schema(nullable = false)]
        view: Option<usize>,
        /// Grid points along each axis; by default 11.
        #[schema(nullable = false, example = 3)]
        points: Option<usize>,
        /// Length of both directions; by default 0.5, the radius of STSS.
        #[schema(nullable = false)]
        radius: Option<f32>,
    }
}

/// The entropy of one view on a grid of two random directions around the prompt: one line of JSON per row, or events. The
/// work ends when the client leaves.
#[utoipa::path(
    post, path = "/v1/slice", tag = "flatclip", request_body = SliceRequestBody,
    responses((status = 200, description = "Rows of the surface", body = String, content_type = "application/x-ndjson"))
)]
pub(crate) async fn slice(mut upload: Upload) -> Result<Response, Problem> {
    let form = if upload.accepts("text/event-stream") { Form::Events } else { Form::Lines };
    let mut request: SliceRequestBody = upload.fields().await?;
    let caller = upload.caller.clone();
    let (app, image) = (&caller.app, upload.image(request.image.take())?);
    let what = check(&request, app)?;
    let recipe = Recipe::find(app, request.take_settings()).await?;
    recipe.check_episodic()?;
    if what.view >= recipe.views {
        let message = format_args!("expected less than {} (the views), found {}", recipe.views, what.view);
        return Err(Problem::invalid("view", message).with_hint("views are counted from 0; ask for more with views"));
    }
    recipe.weight(app, 1)?;
    let texts = recipe.classes.saturating_mul(what.points * what.points);
    let weight = Weight::new(recipe.views, recipe.text_seconds(app, "classes x points x points", texts)?);
    let weight = weight.with_decoding(image.decoding_bytes());
    let memory = caller.answer_memory(what.points * what.points * 32 + 4096)?;
    let classifier = recipe.classifier(&caller).await?;
    let ticket = caller.admit(1, weight)?;
    Ok(pieces(form, what.points + 2, memory, move |out| async move {
        let (rows, pixels, deadline) = (out.clone(), caller.app.pixels.clone(), caller.deadline);
        let work = move || {
            let _held = pixels.wait(image.decoding_bytes() + classifier.work_bytes);
            compute(&classifier, &image, what, deadline, &rows)
        };
        if let Err(problem) = caller.run(ticket, work).await {
            out.send("error", &error_line(None, &problem));
        }
    }))
}

fn check(request: &SliceRequestBody, app: &App) -> Result<SliceRequest, Problem> {
    let (points, radius) = (request.points.unwrap_or(11), request.radius.unwrap_or(0.5));
    if points > app.config.limits.slice_points {
        return Err(Problem::too_much("points", points, app.config.limits.slice_points));
    }
    if points < 2 || !(radius.is_finite() && radius > 0.0) {
        return Err(Problem::invalid("points", "expected at least 2 points and a radius above 0"));
    }
    Ok(SliceRequest { view: request.view.unwrap_or(0), points, radius, seed: 1 })
}

fn compute(
    classifier: &Classifier,
    image: &Uploaded,
    what: SliceRequest,
    deadline: Instant,
    out: &Pieces,
) -> Result<(), Problem> {
    let views = classifier.answer_and_features(&image.image(&classifier.decode_options())?)?.1;
    let mut row = 0;
    let surface = classifier.loss_slice(&views, what, |values| {
        let values: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
        let line = json!({ "row": row, "points": what.points, "values": values });
        row += 1;
        match out.send("row", &line) {
            true if Instant::now() < deadline => Ok(()),
            true => Err(Error::Interrupted("the deadline has passed".to_owned())),
            false => Err(Error::Interrupted("the client has left".to_owned())),
        }
    })?;
    let (low, high) = surface.range();
    let centre = surface.values.get(what.points / 2).and_then(|row| row.get(what.points / 2)).copied();
    let (view, radius) = (what.view, what.radius);
    let last =
        json!({ "done": true, "view": view, "radius": radius, "lowest": low, "highest": high, "centre": centre });
    out.send("done", &last);
    Ok(())
}
