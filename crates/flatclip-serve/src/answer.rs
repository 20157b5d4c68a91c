//! Answers as JSON. Numbers are written as the command line writes them.

use crate::ask::Asked;
use crate::work::{Answered, Explained};
use crate::{Charge, Problem};
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// The answer for an image.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerBody {
    /// Name of the model.
    pub(crate) model: String,
    /// Name of the method.
    pub(crate) method: String,
    /// Name of the answered class.
    pub(crate) prediction: String,
    /// Its index in the class list.
    pub(crate) index: usize,
    /// What the image tower multiplies in: `f32`, `i16`, ...
    pub(crate) precision: String,
    /// Views that were encoded for this answer.
    pub(crate) views: usize,
    /// How the image was read: `exif` (as a person sees it) or `pillow`.
    pub(crate) read: String,
    /// The most probable classes.
    pub(crate) top: Vec<TopClass>,
    /// The views that decided, best first; none for methods that choose none.
    pub(crate) selected_views: Vec<usize>,
    /// What views were ranked by, lower is better.
    pub(crate) view_scores: Vec<f64>,
    /// Views whose score is a lower bound: it was enough to know that they are not selected. None with `explain`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) view_score_bounds: Vec<usize>,
    /// Prediction and crop of each view, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) explain: Option<ExplainBody>,
}

/// A class and its probability.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopClass {
    pub(crate) class: String,
    pub(crate) index: usize,
    pub(crate) probability: f64,
    /// Of a model with a logit bias (SigLIP): the score of this class by itself, for the un-augmented image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) sigmoid: Option<f64>,
}

/// Explanation of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplainBody {
    /// Columns of the image as it was decoded.
    width: usize,
    /// Rows of the image.
    height: usize,
    /// The highest score of a selected view.
    #[schema(required)]
    threshold: Option<f64>,
    /// Every view, the image itself first.
    views: Vec<ViewBody>,
}

/// One view.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ViewBody {
    index: usize,
    /// Whether it was selected.
    selected: bool,
    /// What views were ranked by, lower is better.
    #[schema(required)]
    score: Option<f64>,
    /// Entropy of its own probabilities in nats.
    #[schema(required)]
    entropy: Option<f64>,
    /// Prediction of this view alone.
    top: Vec<TopClass>,
    /// The part of the image: left, top, width, height; absent for the image itself.
    #[schema(required)]
    crop: Option<[usize; 4]>,
    /// Mirrored left to right.
    flip: bool,
}

impl AnswerBody {
    pub(crate) fn new(asked: &Asked, answered: &Answered) -> Self {
        let answer = &answered.answer;
        let why = answer.explanation();
        let sigmoid = |index| answer.sigmoid().and_then(|scores| scores.get(index)).map(|&score| f64::from(score));
        let class = |(index, class, p)| TopClass { sigmoid: sigmoid(index), ..TopClass::new(index, class, p) };
        Self {
            model: asked.model.clone(),
            method: asked.classifier.method().to_owned(),
            prediction: answer.label().to_owned(),
            index: answer.index(),
            precision: answer.precision().unwrap_or_default().to_owned(),
            views: answer.views().unwrap_or_default(),
            read: answer.read().unwrap_or_default().to_owned(),
            top: answer.ranked(asked.top).into_iter().map(class).collect(),
            selected_views: why.selected.clone(),
            view_scores: why.scores.iter().map(|&score| f64::from(score)).collect(),
            view_score_bounds: why.bounds.clone(),
            explain: answered.explained.as_ref().map(|explained| ExplainBody::new(answered, explained)),
        }
    }
}

impl TopClass {
    fn new(index: usize, class: &str, probability: f32) -> Self {
        Self { class: class.to_owned(), index, probability: f64::from(probability), sigmoid: None }
    }
}

impl ExplainBody {
    fn new(answered: &Answered, explained: &Explained) -> Self {
        let answer = &answered.answer;
        let (classes, number) = (answer.classes(), |value: Option<f32>| value.map(f64::from));
        let threshold = answer.selected().into_iter().filter_map(|view| view.score).max_by(f32::total_cmp);
        let view = |(index, draw): (usize, &flatclip::image::views::Draw)| {
            let seen = answer.view(index);
            let says = explained.says.get(index).map(Vec::as_slice).unwrap_or_default();
            ViewBody {
                index,
                selected: seen.selected,
                score: number(seen.score),
                entropy: number(seen.entropy),
                top: says.iter().map(|&(class, p)| TopClass::new(class, &classes[class], p)).collect(),
                crop: draw.crop.map(|crop| [crop.left, crop.top, crop.width, crop.height]),
                flip: draw.flip,
            }
        };
        let (width, height) = explained.size;
        let views = explained.draws.iter().enumerate().map(view).collect();
        Self { width, height, threshold: number(threshold), views }
    }
}

/// A JSON body that cannot fail for our own types.
pub(crate) fn json_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|_| Problem::internal())
}

/// A JSON response that counts against the budget until the client has read it.
pub(crate) fn json_response<T: Serialize>(value: &T, memory: Charge) -> Result<Response, Problem> {
    let body = counted(json_bytes(value)?, memory);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Bytes that count against the budget until the client has read them.
pub(crate) fn counted(bytes: Vec<u8>, mut memory: Charge) -> Body {
    struct Counted(Vec<u8>, #[allow(dead_code)] Charge);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    memory.shrink_to(bytes.len());
    Body::from(Bytes::from_owner(Counted(bytes, memory)))
}

/// A row of numbers, written with the digits of an f64.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) Vec<f32>);

impl Serialize for Row {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|&x| f64::from(x)))
    }
}

/// Bytes of a number in JSON, and of the number itself.
pub(crate) const NUMBER: usize = 28;

/// The `Server-Timing` header with the duration of the job.
pub(crate) fn timing(took: std::time::Duration) -> [(HeaderName, HeaderValue); 1] {
    let text = format!("work;dur={:.2}", took.as_secs_f64() * 1e3);
    let value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("work"));
    [(HeaderName::from_static("server-timing"), value)]
}
