//! Numbers about a run, all computed from its [`Outcome`]s: what was right, how sure, how calibrated, how certain.
//!
//! Accuracy is over images (micro) unless it says "per class". Confidence is the probability of the predicted class;
//! where the original reports the maximum of the softmax and predicts by votes, the two may differ, and every table says
//! which confidence it used.

mod bootstrap;
mod calibration;
mod confusion;
mod paired;
mod quantile;
mod temperature;

pub use bootstrap::Interval;
pub(crate) use bootstrap::accuracy_interval;
pub use calibration::{Calibration, ReliabilityBin, calibration};
pub(crate) use confusion::{confusion_matrix, confusions};
pub use paired::{Paired, paired};
pub use quantile::QuantileBin;
pub(crate) use quantile::by_score;
pub use temperature::Temperature;

use serde::{Deserialize, Serialize};

/// What one sample contributes to every metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The true class.
    pub label: usize,
    /// The answered class.
    pub prediction: usize,
    /// Whether the true class is among the five best.
    pub in_top5: bool,
    /// Probability of the answered class.
    pub confidence: f64,
    /// Probability of the true class.
    pub label_probability: f64,
    /// Sum of the squared probabilities of all classes, for the Brier score.
    pub square_sum: f64,
    /// The mean sharpness (or entropy) score of the selected views, if the method ranks views.
    pub score: Option<f64>,
}

impl Outcome {
    pub(crate) fn is_correct(&self) -> bool {
        self.label == self.prediction
    }
}

/// All metrics of one run. Fractions, not per cent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// How many samples.
    pub count: usize,
    /// Share of samples whose answer is the label.
    pub top1: f64,
    /// Share of samples whose label is among the five best.
    pub top5: f64,
    /// Mean over the classes that occur of the share of their samples that is right.
    pub mean_per_class: f64,
    /// Mean of `-ln p(label)`; `None` (null in JSON) where it is undefined, because the label has probability zero in some
    /// answer.
    pub nll: Option<f64>,
    /// Answers that give their label probability zero, so that their `-ln p(label)` is infinite.
    pub infinite_nll: usize,
    /// Mean over samples of `sum_k (p_k - [k = label])^2`.
    pub brier: f64,
    /// Expected calibration error and its bins.
    pub calibration: Calibration,
    /// 95 % bootstrap interval of top-1.
    pub top1_interval: Option<Interval>,
}

/// How to compute them.
#[derive(Clone, Copy, Debug)]
pub struct MetricOptions {
    /// Bins of the calibration error: right-closed, equal width. C-TPT and TTABC use 20.
    pub bins: usize,
    /// Bootstrap resamples; 0 leaves the interval out.
    pub resamples: usize,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Default for MetricOptions {
    fn default() -> Self {
        Self { bins: 20, resamples: 1000, seed: 0 }
    }
}

/// Computes all metrics.
pub fn metrics(outcomes: &[Outcome], classes: usize, options: MetricOptions) -> Metrics {
    let mean = |value: &dyn Fn(&Outcome) -> f64| mean(outcomes.iter().map(value));
    let confidences: Vec<(f64, bool)> = outcomes.iter().map(|o| (o.confidence, o.is_correct())).collect();
    let correct: Vec<bool> = outcomes.iter().map(Outcome::is_correct).collect();
    let infinite_nll = outcomes.iter().filter(|o| o.label_probability <= 0.0).count();
    Metrics {
        count: outcomes.len(),
        top1: mean(&|o| f64::from(u8::from(o.is_correct()))),
        top5: mean(&|o| f64::from(u8::from(o.in_top5))),
        mean_per_class: mean_per_class(outcomes, classes),
        nll: (infinite_nll == 0).then(|| mean(&|o| -o.label_probability.ln())),
        infinite_nll,
        brier: mean(&|o| o.square_sum - 2.0 * o.label_probability + 1.0),
        calibration: calibration(&confidences, options.bins),
        top1_interval: accuracy_interval(&correct, options.resamples, options.seed),
    }
}

/// The mean; 0 of nothing.
pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    if count == 0 { 0.0 } else { values.sum::<f64>() / count as f64 }
}

fn mean_per_class(outcomes: &[Outcome], classes: usize) -> f64 {
    let mut counts = vec![(0usize, 0usize); classes];
    for outcome in outcomes {
        if let Some((right, all)) = counts.get_mut(outcome.label) {
            *right += usize::from(outcome.is_correct());
            *all += 1;
        }
    }
    let shares: Vec<f64> =
        counts.iter().filter(|(_, all)| *all > 0).map(|&(right, all)| right as f64 / all as f64).collect();
    mean(shares.into_iter())
}

/// The classes sorted by falling score (ties: lower class first), as many as asked for.
pub fn top_classes(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.truncate(count);
    order
}

/// Whether the label is among the first `count` of [`top_classes`]: of equal scores at the border the lower classes count.
pub fn is_in_top(scores: &[f32], label: usize, count: usize) -> bool {
    let Some(own) = scores.get(label) else { return false };
    let is_before = |(class, other): (usize, &f32)| other.total_cmp(own).then(label.cmp(&class)).is_gt();
    scores.iter().enumerate().filter(|&entry| is_before(entry)).count() < count
}

#[cfg(test)]
pub(super) fn outcome(label: usize, prediction: usize, confidence: f64) -> Outcome {
    let label_probability = if label == prediction { confidence } else { 1.0 - confidence };
    let square_sum = confidence.powi(2) + (1.0 - confidence).powi(2);
    Outcome { label, prediction, in_top5: true, confidence, label_probability, square_sum, score: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_per_class_ignores_classes_without_samples() {
        let outcomes = [outcome(0, 0, 0.9), outcome(0, 0, 0.9), outcome(0, 1, 0.9), outcome(2, 0, 0.6)];
        let m = metrics(&outcomes, 5, MetricOptions::default());
        assert_eq!(m.top1, 0.5);
        assert!((m.mean_per_class - (2.0 / 3.0 + 0.0) / 2.0).abs() < 1e-12);
        assert_eq!(m.count, 4);
    }

    #[test]
    fn brier_and_nll_are_those_of_the_definitions() {
        let outcomes = [outcome(0, 0, 0.75), outcome(1, 0, 0.75)];
        let m = metrics(&outcomes, 2, MetricOptions::default());
        let brier = ((0.25f64.powi(2) * 2.0) + (0.75f64.powi(2) * 2.0)) / 2.0;
        assert!((m.brier - brier).abs() < 1e-12, "{} {brier}", m.brier);
        assert!((m.nll.unwrap() + (0.75f64.ln() + 0.25f64.ln()) / 2.0).abs() < 1e-12);
        assert_eq!(m.infinite_nll, 0);
    }

    #[test]
    fn a_label_of_probability_zero_leaves_the_nll_undefined_and_is_counted() {
        let outcomes = [outcome(1, 0, 1.0), outcome(0, 0, 1.0), outcome(1, 0, 1.0)];
        let m = metrics(&outcomes, 2, MetricOptions::default());
        assert_eq!((m.nll, m.infinite_nll), (None, 2));
        let json = serde_json::to_value(&m).unwrap();
        assert!(json["nll"].is_null() && json["infinite_nll"] == 2, "{json}");
        assert_eq!(metrics(&[], 3, MetricOptions::default()).top1, 0.0);
    }

    #[test]
    fn equal_scores_rank_the_lower_class_first() {
        assert_eq!(top_classes(&[0.1, 0.4, 0.4, 0.2], 3), [1, 2, 3]);
        assert!(is_in_top(&[0.4, 0.1, 0.2], 2, 2) && !is_in_top(&[0.4, 0.2, 0.1], 2, 2) && !is_in_top(&[0.1], 3, 5));
        // A tie at the border goes to the lower class, as in the list.
        let scores = [0.4, 0.1, 0.1, 0.0, 0.0];
        let hits: Vec<bool> = (0..5).map(|label| is_in_top(&scores, label, 2)).collect();
        assert_eq!(hits, [true, true, false, false, false]);
        assert!((0..5).all(|label| is_in_top(&scores, label, 3) == top_classes(&scores, 3).contains(&label)));
    }
}
