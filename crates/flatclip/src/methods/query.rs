//! What online adapters see of an image: the mean of its most confident views, or the single view it has.

use super::probability::{argmax, dot, entropy_of, mean_probability, mean_row};
use super::select::{LowestScore, Selection, ViewLogits};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;

#[derive(Clone, Debug)]
pub struct Query {
    /// Mean of the kept unit features, *not* normalised again (TDA's and DPE's code).
    pub feature: Vec<f32>,
    /// Mean of their logits.
    pub logits: Vec<f32>,
    /// Mean of their probabilities.
    pub probabilities: Vec<f32>,
    /// Entropy in nats of the mean distribution.
    pub entropy: f32,
    /// Class of the mean logits.
    pub prediction: usize,
}

crate::choices! {
    /// What represents the image.
    pub enum Represented {
        /// View 0: its feature, logits and entropy.
        View0 = "view-0",
        /// The mean feature and mean logits of the confident views, and the entropy of their mean distribution.
        ConfidentMean = "confident-mean",
    }
}

impl Represented {
    /// The image, some views of which were selected.
    pub fn query(self, features: &Matrix, views: &ViewLogits, selection: &Selection) -> Query {
        match self {
            Self::View0 => Query::of(features, views, &[0]),
            Self::ConfidentMean => Query::of(features, views, &selection.selected),
        }
    }
}

impl Query {
    /// The views of lowest score together.
    pub fn confident(features: &Matrix, views: &ViewLogits, lowest: LowestScore) -> (Self, Selection) {
        let selection = lowest.select(views);
        (Self::of(features, views, &selection.selected), selection)
    }

    /// The listed views together.
    pub fn of(features: &Matrix, views: &ViewLogits, kept: &[usize]) -> Self {
        let mean = mean_probability(&views.logits, kept);
        let logits = mean_row(&views.logits, kept);
        Self {
            feature: mean_row(features, kept),
            entropy: entropy_of(&mean) as f32,
            probabilities: mean.iter().map(|&p| p as f32).collect(),
            prediction: argmax(&logits),
            logits,
        }
    }
}

/// Entropy over its "maximum" as TDA and DPE compute it: nats over `log2 K`, so it ends at ln 2, not at 1. The thresholds
/// published for both methods are on this scale.
pub fn normalised_entropy(entropy: f32, classes: usize) -> f32 {
    if classes < 2 { 0.0 } else { (f64::from(entropy) / (classes as f64).log2()) as f32 }
}

/// The cosine of a unit feature with what it reads from some rows: `f.c`, `c = normalise(sum_r exp(-beta (1 - f.r)) r)`.
pub fn read_out<'r>(feature: &[f32], rows: impl Iterator<Item = &'r [f32]>, beta: f64) -> f32 {
    let mut sum = vec![0.0f32; feature.len()];
    for row in rows {
        let weight = affinity(1.0, beta, dot(feature, row)) as f32;
        sum.iter_mut().zip(row).for_each(|(s, x)| *s += weight * x);
    }
    (dot(&sum, feature) / l2_norm(&sum).max(f64::MIN_POSITIVE)) as f32
}

/// `alpha * exp(-beta (1 - similarity))`, the weight of a remembered image.
pub fn affinity(alpha: f64, beta: f64, similarity: f64) -> f64 {
    alpha * (-beta * (1.0 - similarity)).exp()
}
