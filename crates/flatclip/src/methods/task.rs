//! What an adapter is given (task, sample) and what it gives back (answer).

use crate::{Error, Result};
use flatclip_tensor::Matrix;

/// Everything that stays the same over a stream of images.
pub struct Task<'a> {
    /// Class names, in the order of the answers.
    pub classes: &'a [String],
    /// Unit-norm `[K, D]`, the prompt's text features.
    pub text_features: Matrix,
    /// `exp(logit_scale)`: 100 for OpenAI's weights.
    pub logit_scale: f32,
    /// Seed of every draw.
    pub seed: u64,
    /// Where computed text banks are kept between runs.
    pub store: Option<&'a dyn TextStore>,
}

/// Keeps what [`Adapter::prepare`](super::Adapter::prepare) computed, so that a second run need not. Adapters see no paths:
/// whoever evaluates gives them this.
pub trait TextStore: Sync {
    /// What was saved under `key`.
    fn load(&self, key: &str) -> Option<Matrix>;
    /// Keeps `rows` under `key`; a store that cannot is allowed to forget.
    fn save(&self, key: &str, rows: &Matrix);
}

impl<'a> Task<'a> {
    /// A task from class embeddings alone: what needs no text tower works with it.
    pub fn new(classes: &'a [String], text_features: Matrix, logit_scale: f32, seed: u64) -> Result<Self> {
        if text_features.rows() != classes.len() || classes.is_empty() {
            let reason = format!("{} text features for {} classes", text_features.rows(), classes.len());
            return Err(Error::config("classes", reason));
        }
        if !(logit_scale.is_finite() && logit_scale > 0.0) {
            return Err(Error::config("logit_scale", format!("expected a positive number, found {logit_scale}")));
        }
        finite("text features", text_features.data())?;
        Ok(Self { classes, text_features, logit_scale, seed, store: None })
    }

    /// Number of classes.
    pub fn class_count(&self) -> usize {
        self.text_features.rows()
    }
}

/// One test image as its views.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// A name that is unique in the stream.
    pub id: &'a str,
    /// Unit-norm `[V, D]`; row 0 is the original.
    pub features: &'a Matrix,
    /// Norms of the raw features, one per view (empty when they are not known).
    pub norms: &'a [f32],
    /// The views' normalised pixels `[V, 3, H, W]`, for adapters that run the image tower.
    pub pixels: Option<&'a [f32]>,
    /// Unit-norm features `[G, D]` of generated views, for DiffTPT.
    pub generated: Option<&'a Matrix>,
}

impl<'a> Sample<'a> {
    /// A sample of features alone.
    pub fn new(id: &'a str, features: &'a Matrix) -> Self {
        Self { id, features, norms: &[], pixels: None, generated: None }
    }

    /// Refuses features that do not fit the task or are not finite: they would end as a confident wrong answer.
    pub(crate) fn check(&self, task: &Task<'_>) -> Result<()> {
        let (found, expected) = (self.features.cols(), task.text_features.cols());
        if self.features.rows() == 0 || found != expected {
            let reason = format!("{} views of width {found}, text features of width {expected}", self.features.rows());
            return Err(Error::config(format!("sample {}", self.id), reason));
        }
        finite(self.id, self.features.data())
    }
}

fn finite(place: &str, values: &[f32]) -> Result<()> {
    if values.iter().all(|x| x.is_finite()) {
        return Ok(());
    }
    Err(Error::NotFinite {
        place: place.to_string(),
        reason: "features hold NaN or infinity; look at the input".into(),
    })
}

/// The answer for one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Index of the class.
    pub prediction: usize,
    /// One per class, summing to 1.
    pub probabilities: Vec<f32>,
    /// What the method ranks the classes by: logits, or votes. Top-5 is computed on it.
    pub class_scores: Vec<f32>,
    /// Why.
    pub explanation: Explanation,
}

/// Which views decided, and what each of them said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The views that were kept, best first.
    pub selected: Vec<usize>,
    /// What the selector ranked by, one per view, lower is better.
    pub scores: Vec<f32>,
    /// Entropy in nats of every view at the unadapted prompt.
    pub entropies: Vec<f32>,
    /// Class of every view at the unadapted prompt.
    pub predictions: Vec<usize>,
}
