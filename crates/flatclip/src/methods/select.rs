//! Selectors: rank the views of an image and keep some.

use super::probability::{argmax, dot, entropies, logits};
use super::{Explanation, Task, ViewSet};
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

/// A rule that chooses views.
pub trait Selector {
    /// Chooses from `views`, whose image features are `features`.
    fn select(&self, features: &Matrix, views: &ViewLogits) -> Selection;
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

/// TPT's confidence filter: the views of lowest entropy.
#[derive(Clone, Copy, Debug)]
pub struct LowestEntropy {
    /// Fraction of the views to keep.
    pub fraction: f64,
}

impl Selector for LowestEntropy {
    fn select(&self, _features: &Matrix, views: &ViewLogits) -> Selection {
        let ranking = ranking(&views.entropies);
        let selected = ranking[..keep_count(self.fraction, ranking.len())].to_vec();
        Selection { scores: views.entropies.clone(), ranking, selected }
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
}

impl Selector for CosineThenEntropy {
    fn select(&self, _features: &Matrix, views: &ViewLogits) -> Selection {
        let mut pool = vec![0];
        pool.extend(self.nearest(views));
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
        assert_eq!(keep_count(0.1, 64), 6);
        assert_eq!(keep_count(0.8, 127), 101);
        assert_eq!(keep_count(0.3, 102), 30);
        assert_eq!(keep_count(0.3, 64), 19);
        assert_eq!(keep_count(0.1, 1), 1);
        assert_eq!(keep_count(1.0, 5), 5);
    }

    #[test]
    fn equal_scores_keep_the_order_of_views() {
        assert_eq!(ranking(&[0.5, 0.1, 0.5, 0.1]), [1, 3, 0, 2]);
    }

    #[test]
    fn the_original_passes_the_cosine_filter_even_alone() {
        let logits = Matrix::from_vec(3, 2, vec![1.0, 0.0, 0.0, 5.0, 2.0, 0.1]);
        let views = ViewLogits { entropies: entropies(&logits), logits };
        let none = CosineThenEntropy { cosine: 0.0, entropy: 1.0 }.select(&Matrix::zeros(3, 1), &views);
        assert_eq!(none.selected, [0]);
        let near = CosineThenEntropy { cosine: 0.5, entropy: 1.0 }.select(&Matrix::zeros(3, 1), &views);
        assert_eq!(near.selected, [2, 0]);
    }
}
