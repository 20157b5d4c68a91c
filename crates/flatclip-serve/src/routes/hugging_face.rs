//! Hugging Face's task `zero-shot-image-classification`.

use crate::Problem;
use crate::answer::json_response;
use crate::ask::{Recipe, Settings};
use crate::routes::classify::answer;
use crate::typed::{Encoded, IMAGE, Names};
use crate::upload::Upload;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An image and the labels to choose from.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskRequest {
    /// An image in base64.
    #[schema(value_type = String, example = json!(IMAGE))]
    inputs: Encoded,
    parameters: TaskParameters,
}

/// The labels and the method.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskParameters {
    /// The labels.
    #[schema(value_type = Vec<String>, example = json!(["fish", "lamp"]))]
    candidate_labels: Names,
    /// A text with `{}` for the label; by default "This is a photo of {}.".
    #[schema(nullable = false, example = "This is a photo of {}.")]
    hypothesis_template: Option<String>,
    /// Name of a model; by default the first.
    #[schema(nullable = false, example = "pocket")]
    model: Option<String>,
    /// Method; by default `zero-shot`.
    #[schema(nullable = false, example = "zero-shot")]
    method: Option<String>,
    /// Rotate images per EXIF and scale 16-bit grey (the default); `false` reads them as Pillow does.
    #[schema(nullable = false)]
    exif: Option<bool>,
}

/// A label and its score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LabelScore {
    label: String,
    score: f64,
}

/// The template of the task's reference pipeline.
const TEMPLATE: &str = "This is a photo of {}.";

/// Labels with their scores, the highest first, as `huggingface_hub`'s `InferenceClient` reads them. `POST /` is the same.
#[utoipa::path(
    post, path = "/hf/zero-shot-image-classification", tag = "other forms", request_body = TaskRequest,
    responses((status = 200, description = "Labels by score", body = Vec<LabelScore>))
)]
pub(crate) async fn task(mut upload: Upload) -> Result<Response, Problem> {
    let TaskRequest { inputs, parameters } = upload.json().await?;
    let caller = upload.caller.clone();
    let image = upload.image(Some(inputs))?;
    let settings = Settings {
        model: parameters.model,
        classes: Some(parameters.candidate_labels),
        template: Some(parameters.hypothesis_template.unwrap_or_else(|| TEMPLATE.to_owned())),
        method: parameters.method,
        exif: parameters.exif,
        ..Settings::default()
    };
    let recipe = Recipe::find(&caller.app, settings).await?;
    recipe.check_episodic()?;
    let weight = recipe.weight(&caller.app, 1)?.with_decoding(image.decoding_bytes());
    let memory = caller.answer_memory(recipe.answer_bytes(usize::MAX, false))?;
    let asked = recipe.asked(&caller, (usize::MAX, false, false)).await?;
    let answered = answer(&caller, &asked, image, weight).await?;
    let score = |(_, label, score): (_, &str, _)| LabelScore { label: label.to_owned(), score: f64::from(score) };
    let scores: Vec<LabelScore> = answered.answer.ranked(asked.top).into_iter().map(score).collect();
    json_response(&scores, memory)
}
