//! The scores of one set of images, and what they say about its answers.

use super::Left;
use serde::{Deserialize, Serialize};

/// What was found for every image of a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// STSS's score of the image as it is with lambda 1: the largest entropy over random directions, a lower estimate of the
    /// worst-case entropy `H^rho`.
    pub scores: Vec<f32>,
    /// Entropy at the prompt itself.
    pub entropies: Vec<f32>,
    /// The score with outputs raised to the floor.
    pub floored: Vec<f32>,
    /// Whether the answer was right.
    pub right: Vec<bool>,
    /// Distance to the nearest class mean of the training images.
    pub distances: Vec<f32>,
}

/// A tenth of the images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decile {
    /// Mean score.
    pub score: f64,
    /// Share of right answers.
    pub accuracy: f64,
}

const DECILES: usize = 10;

impl Scores {
    /// Share of right answers.
    pub fn accuracy(&self) -> f64 {
        mean(self.right.iter().copied())
    }

    /// The left side of the bound.
    pub(crate) fn left(&self, delta: f64) -> Left {
        let mean = mean(self.floored.iter().copied());
        let below = |delta: f64| quantile(self.floored.iter().copied().map(f64::from).collect(), 1.0 - delta);
        Left { mean, quantile: below(delta / 2.0) - mean, pointwise: below(delta) }
    }

    /// Ten groups of equal size, lowest scores first.
    pub(crate) fn deciles(&self) -> Vec<Decile> {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        order.sort_by(|&a, &b| self.scores[a].total_cmp(&self.scores[b]));
        let group = |bin: usize| &order[bin * order.len() / DECILES..(bin + 1) * order.len() / DECILES];
        (0..DECILES)
            .map(|bin| Decile {
                score: mean(group(bin).iter().map(|&i| self.scores[i])),
                accuracy: mean(group(bin).iter().map(|&i| self.right[i])),
            })
            .collect()
    }
}

/// The value that a share of the values does not exceed; 0 without any.
pub(super) fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (share * values.len() as f64).ceil() as usize;
    values.get(place.clamp(1, values.len().max(1)) - 1).copied().unwrap_or_default()
}

/// Zero for no value.
pub(crate) fn mean(values: impl Iterator<Item = impl Into<f64>>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value.into(), count + 1));
    sum / count.max(1) as f64
}

/// Spearman's rank correlation; equal values share the mean of their ranks.
pub(crate) fn rank_correlation(x: &[f32], y: &[f32]) -> f64 {
    let (x, y) = (ranks(x), ranks(y));
    let mean = (x.len() as f64 - 1.0) / 2.0;
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    sum(&x, &y) / (sum(&x, &x) * sum(&y, &y)).sqrt().max(1e-30)
}

fn ranks(values: &[f32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = start as f64 + (group.len() as f64 - 1.0) / 2.0;
        group.iter().for_each(|&i| ranks[i] = rank);
        start += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_agree_correlate_fully_and_equal_values_say_nothing() {
        assert!((rank_correlation(&[1.0, 2.0, 9.0], &[0.1, 0.2, 0.3]) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[1.0, 2.0, 9.0], &[0.3, 0.2, 0.1]) + 1.0).abs() < 1e-12);
        assert_eq!(rank_correlation(&[1.0, 1.0, 1.0], &[0.3, 0.2, 0.1]), 0.0);
    }

    #[test]
    fn deciles_go_from_low_scores_to_high() {
        let set = Scores {
            scores: (0..20).map(|i| i as f32).collect(),
            right: (0..20).map(|i| i < 10).collect(),
            ..Scores::default()
        };
        let groups = set.deciles();
        assert_eq!(groups[0], Decile { score: 0.5, accuracy: 1.0 });
        assert_eq!(groups[9], Decile { score: 18.5, accuracy: 0.0 });
        assert_eq!(set.accuracy(), 0.5);
    }

    #[test]
    fn the_quantile_leaves_its_share_above() {
        let set = Scores { floored: (1..=100).map(|i| i as f32).collect(), ..Scores::default() };
        assert_eq!(set.left(0.1), Left { mean: 50.5, quantile: 95.0 - 50.5, pointwise: 90.0 });
        assert_eq!(Scores::default().left(0.05), Left::default());
    }
}
