//! The paper's divergence `d(S; T) = 2 sup_A |P_S(A) - P_T(A)|`, twice the total variation, from below: any event gives a lower
//! bound, and a two-sample classifier on image features finds one. It is trained on one half of both sets and read off on the
//! other, so that what it learned by heart does not count.

use flatclip::rng::Stream;
use flatclip_tensor::Matrix;
use serde::{Deserialize, Serialize};

/// Steps of the classifier's training.
const STEPS: usize = 300;
/// Its weight decay: features have unit norm, so this keeps its weights from growing without bound.
const DECAY: f64 = 1e-3;

/// An estimate from below.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// `2 |P_S(A) - P_T(A)|` of the classifier's event on held-out images.
    pub estimate: f64,
    /// The same less what chance may add, with probability 1 - delta (Hoeffding).
    pub limit: f64,
    /// Held-out images of the source and of the target.
    pub held_out: (usize, usize),
}

impl Divergence {
    /// Of two sets of unit-norm features; `None` when one has fewer than four images.
    pub fn measure(source: &Matrix, target: &Matrix, delta: f64, seed: u64) -> Option<Self> {
        if source.rows() < 4 || target.rows() < 4 {
            return None;
        }
        let (s_learn, s_held) = halves(source, seed, "source");
        let (t_learn, t_held) = halves(target, seed, "target");
        let weights = classifier(&s_learn, &t_learn);
        let threshold = best_threshold(&scores(&s_learn, &weights), &scores(&t_learn, &weights));
        let above = |set: &Matrix| {
            let count = scores(set, &weights).into_iter().filter(|&score| score > threshold).count();
            count as f64 / set.rows() as f64
        };
        let gap = above(&s_held) - above(&t_held);
        let chance = |n: usize| ((2.0 / delta).ln() / (2.0 * n as f64)).sqrt();
        let held_out = (s_held.rows(), t_held.rows());
        let limit = gap - chance(held_out.0) - chance(held_out.1);
        Some(Self { estimate: 2.0 * gap.max(0.0), limit: 2.0 * limit.max(0.0), held_out })
    }
}

fn halves(set: &Matrix, seed: u64, name: &str) -> (Matrix, Matrix) {
    let mut order: Vec<usize> = (0..set.rows()).collect();
    Stream::new(seed, &["divergence", name]).shuffle(&mut order);
    let (learn, held) = order.split_at(set.rows() / 2);
    (set.select_rows(learn), set.select_rows(held))
}

fn dot(row: &[f32], weights: &[f64]) -> f64 {
    row.iter().zip(weights).map(|(&x, w)| f64::from(x) * w).sum()
}

fn scores(set: &Matrix, weights: &[f64]) -> Vec<f64> {
    set.iter_rows().map(|row| dot(row, weights)).collect()
}

/// Logistic regression, both sets with the same weight; the intercept is left to the threshold.
fn classifier(source: &Matrix, target: &Matrix) -> Vec<f64> {
    let width = source.cols();
    let mut centre = vec![0.0; width];
    for set in [source, target] {
        for row in set.iter_rows() {
            centre.iter_mut().zip(row).for_each(|(c, &x)| *c += 0.5 * f64::from(x) / set.rows() as f64);
        }
    }
    let mut weights = vec![0.0; width];
    for _ in 0..STEPS {
        let shift = centre.iter().zip(&weights).map(|(c, w)| c * w).sum::<f64>();
        let mut gradient: Vec<f64> = weights.iter().map(|w| DECAY * w).collect();
        for (set, label) in [(source, 1.0), (target, 0.0)] {
            for row in set.iter_rows() {
                let p = 1.0 / (1.0 + (shift - dot(row, &weights)).exp());
                let slope = 0.5 * (p - label) / set.rows() as f64;
                gradient
                    .iter_mut()
                    .zip(row.iter().zip(&centre))
                    .for_each(|(g, (&x, c))| *g += slope * (f64::from(x) - c));
            }
        }
        // The loss of unit-norm rows has a slope that changes by at most a quarter: steps of four are safe.
        weights.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= 4.0 * g);
    }
    weights
}

/// Where the shares above differ most.
fn best_threshold(source: &[f64], target: &[f64]) -> f64 {
    let mut all: Vec<(f64, f64)> = source.iter().map(|&s| (s, 1.0 / source.len() as f64)).collect();
    all.extend(target.iter().map(|&t| (t, -1.0 / target.len() as f64)));
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut best, mut place, mut gap) = (0.0, f64::INFINITY, 0.0);
    for pair in all.windows(2) {
        gap += pair[0].1;
        if gap > best && pair[0].0 > pair[1].0 {
            (best, place) = (gap, 0.5 * (pair[0].0 + pair[1].0));
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(centre: f32, count: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(seed, &["cloud"]);
        let rows = (0..count).flat_map(|_| [centre + 0.3 * stream.normal() as f32, stream.normal() as f32 * 0.3]);
        Matrix::from_vec(count, 2, rows.collect())
    }

    #[test]
    fn distant_sets_have_almost_two_and_equal_ones_almost_nothing() {
        let far = Divergence::measure(&cloud(0.0, 200, 1), &cloud(4.0, 200, 2), 0.05, 1).unwrap();
        assert!(far.estimate > 1.9 && far.limit > 1.0 && far.limit < far.estimate, "{far:?}");
        let same = Divergence::measure(&cloud(0.0, 400, 3), &cloud(0.0, 400, 4), 0.05, 1).unwrap();
        assert!(same.estimate < 0.4 && same.limit == 0.0, "{same:?}");
        assert!(Divergence::measure(&cloud(0.0, 3, 1), &cloud(0.0, 9, 1), 0.05, 1).is_none());
    }
}
