//! Selectors: rank the views of an image and keep some.

use super::probability::{argmax, dot, entropies, entropy, logits, softmax};
use super::{Explanation, Task, ViewSet};
use crate::options::{Choice, OptionKind, OptionValue, Value};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;

/// What every view says at the unadapted prompt.
#[derive(Clone, Debug)]
pub struct ViewLogits {
    /// `[V, K]`.
    pub logits: Matrix,
    /// Entropy of each view, in nats.
    pub entropies: Vec<f32>,
}

impl ViewLogits {
    /// Views with these features under `text` (`[K, D]`).
    pub fn new(features: &Matrix, text: &Matrix, scale: f32) -> Self {
        Self::from_logits(logits(features, text, scale))
    }

    /// The views of an image under the task's own text features.
    pub fn of(task: &Task, image: &ViewSet<'_>) -> Self {
        Self::from_logits(task.logits(image.features))
    }

    /// Views whose logits came from elsewhere.
    pub fn from_logits(logits: Matrix) -> Self {
        let entropies = entropies(&logits);
        Self { logits, entropies }
    }

    /// The explanation of an answer that kept `selection`.
    pub fn explain(self, selection: Selection) -> Explanation {
        Explanation {
            predictions: self.logits.iter_rows().map(argmax).collect(),
            selected: selection.selected,
            scores: selection.scores,
            entropies: self.entropies,
            ..Explanation::default()
        }
    }
}

/// Views in order of preference.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// One per view, lower is better.
    pub scores: Vec<f32>,
    /// All views of the pool, best first.
    pub ranking: Vec<usize>,
    /// The kept ones, best first.
    pub selected: Vec<usize>,
}

/// `int(fraction * views)` as Python truncates it, but never 0: an image always has an answer.
pub fn keep_count(fraction: f64, views: usize) -> usize {
    ((fraction * views as f64) as usize).clamp(1, views.max(1))
}

/// Indices by ascending score; equal scores keep the order of the views.
pub fn ranking(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    order
}

/// What views are ranked by: a loss of a view that has no label, lower is better.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Score {
    /// Entropy of its probabilities, in nats.
    #[default]
    Entropy,
    /// Tsallis entropy `(1 - sum_k p_k^q) / (q - 1)`; q = 1 is the entropy.
    Tsallis(f64),
    /// One minus the gap between its two largest probabilities.
    Margin,
    /// Minus the logarithm of its largest probability.
    Confidence,
}

impl OptionValue for Score {
    const KIND: OptionKind = OptionKind::Choice(&[
        Choice { name: "entropy", sentence: "Entropy of its probabilities." },
        Choice { name: "tsallis:Q", sentence: "Tsallis entropy with exponent Q; 1 is the entropy." },
        Choice { name: "margin", sentence: "One minus the gap between its two largest probabilities." },
        Choice { name: "confidence", sentence: "Minus the logarithm of its largest probability." },
    ]);

    fn from_value(value: &Value) -> Option<Self> {
        let OptionKind::Choice(choices) = Self::KIND else { return None };
        match value.as_str()? {
            "entropy" => Some(Self::Entropy),
            "margin" => Some(Self::Margin),
            "confidence" => Some(Self::Confidence),
            text => choices[1].parameter(text).map(Self::Tsallis),
        }
    }

    fn to_value(&self) -> Value {
        Value::String(match self {
            Self::Entropy => "entropy".to_owned(),
            Self::Tsallis(q) => format!("tsallis:{q}"),
            Self::Margin => "margin".to_owned(),
            Self::Confidence => "confidence".to_owned(),
        })
    }
}

impl Score {
    /// Of one row of logits.
    pub fn of(self, row: &[f32]) -> f32 {
        let p = match self {
            Self::Entropy | Self::Tsallis(1.0) => return entropy(row),
            _ => softmax(row),
        };
        let (mut first, mut second) = (0.0f64, 0.0f64);
        p.iter().for_each(|&p| (first, second) = (first.max(p), second.max(first.min(p))));
        match self {
            Self::Tsallis(q) => ((1.0 - p.iter().map(|p| p.powf(q)).sum::<f64>()) / (q - 1.0)) as f32,
            Self::Margin => (1.0 - (first - second)) as f32,
            _ => -first.ln() as f32,
        }
    }

    /// Of every view.
    pub fn of_views(self, views: &ViewLogits) -> Vec<f32> {
        match self {
            Self::Entropy => views.entropies.clone(),
            other => views.logits.iter_rows().map(|row| other.of(row)).collect(),
        }
    }
}

/// The views of lowest score; by entropy it is TPT's confidence filter.
#[derive(Clone, Copy, Debug)]
pub struct LowestScore {
    /// Fraction of the views to keep.
    pub fraction: f64,
    /// What they are ranked by.
    pub score: Score,
}

impl LowestScore {
    /// The views of lowest score.
    pub fn select(&self, views: &ViewLogits) -> Selection {
        Self::of_scores(self.fraction, self.score.of_views(views))
    }

    /// The same fraction of given scores.
    pub fn of_scores(fraction: f64, scores: Vec<f32>) -> Selection {
        let ranking = ranking(&scores);
        let selected = ranking[..keep_count(fraction, ranking.len())].to_vec();
        Selection { scores, ranking, selected }
    }
}

/// DiffTPT's two filters: the views whose logits are most similar to view 0's, then the most confident of them and view 0.
#[derive(Clone, Copy, Debug)]
pub struct CosineThenEntropy {
    /// Fraction of views `1..V` that pass the first filter.
    pub cosine: f64,
    /// Fraction of the rest that passes the second.
    pub entropy: f64,
}

impl CosineThenEntropy {
    /// Cosine of view 0's logits with those of every other view.
    pub fn cosines(views: &ViewLogits) -> Vec<f32> {
        let first = views.logits.row(0);
        let cosine = |row: &[f32]| (dot(first, row) / (l2_norm(first) * l2_norm(row)).max(f64::MIN_POSITIVE)) as f32;
        views.logits.iter_rows().skip(1).map(cosine).collect()
    }

    /// The views that pass the first filter beside view 0, nearest first.
    pub fn nearest(&self, views: &ViewLogits) -> Vec<usize> {
        let distance: Vec<f32> = Self::cosines(views).into_iter().map(|cosine| -cosine).collect();
        // Unlike `keep_count`, keeping none of the others is possible here: view 0 is always in.
        let near = (self.cosine * distance.len() as f64) as usize;
        ranking(&distance).into_iter().take(near).map(|index| index + 1).collect()
    }

    /// The views that pass both filters.
    pub fn select(&self, views: &ViewLogits) -> Selection {
        let pool = [vec![0], self.nearest(views)].concat();
        let scores: Vec<f32> = pool.iter().map(|&view| views.entropies[view]).collect();
        let ranking: Vec<usize> = ranking(&scores).into_iter().map(|index| pool[index]).collect();
        let selected = ranking[..keep_count(self.entropy, ranking.len())].to_vec();
        Selection { scores: views.entropies.clone(), ranking, selected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_truncated_as_the_originals_do() {
        for (fraction, views, kept) in
            [(0.1, 64, 6), (0.8, 127, 101), (0.3, 102, 30), (0.3, 64, 19), (0.1, 1, 1), (1.0, 5, 5)]
        {
            assert_eq!(keep_count(fraction, views), kept, "{fraction} of {views}");
        }
    }

    #[test]
    fn equal_scores_keep_the_order_of_views() {
        assert_eq!(ranking(&[0.5, 0.1, 0.5, 0.1]), [1, 3, 0, 2]);
    }

    #[test]
    fn scores_order_a_sure_view_before_an_unsure_one() {
        for score in [Score::Entropy, Score::Tsallis(0.3), Score::Tsallis(2.0), Score::Margin, Score::Confidence] {
            assert!(score.of(&[5.0, 0.0, 0.0]) < score.of(&[1.0, 0.5, 0.0]), "{score:?}");
            assert!(score.of(&[2.0]).abs() < 1e-6);
            assert_eq!(Score::from_value(&score.to_value()), Some(score));
        }
    }

    #[test]
    fn tsallis_entropy_goes_over_into_entropy_and_refuses_what_is_no_exponent() {
        let row = [2.0, 1.0, -1.0, 0.5];
        let at = |q| Score::Tsallis(q).of(&row);
        assert_eq!(at(1.0), Score::Entropy.of(&row));
        assert!((at(1.0 + 1e-7) - at(1.0)).abs() < 1e-5 && at(0.9) > at(1.0) && at(1.1) < at(1.0));
        for text in ["tsallis", "tsallis:", "tsallis:0", "tsallis:-1", "tsallis:nan", "tsallis:Q", "shannon"] {
            assert_eq!(Score::from_value(&Value::String(text.to_owned())), None, "{text}");
        }
    }

    #[test]
    fn the_original_passes_the_cosine_filter_even_alone() {
        let logits = Matrix::from_vec(3, 2, vec![1.0, 0.0, 0.0, 5.0, 2.0, 0.1]);
        let views = ViewLogits::from_logits(logits);
        let none = CosineThenEntropy { cosine: 0.0, entropy: 1.0 }.select(&views);
        assert_eq!(none.selected, [0]);
        let near = CosineThenEntropy { cosine: 0.5, entropy: 1.0 }.select(&views);
        assert_eq!(near.selected, [2, 0]);
    }
}
