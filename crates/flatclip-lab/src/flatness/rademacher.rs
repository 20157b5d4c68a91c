//! The Rademacher complexity of the prompts within a radius, from below: for random signs, the largest correlation that gradient
//! ascent finds between signs and outputs. `R_n = E_sigma sup_f 1/n sum_i sigma_i' f(x_i)`, `f` the probabilities of the classes.
//!
//! Signs come in pairs sigma and -sigma. What both correlate with at the prompt cancels, so a pair gives
//! `(sup_f <sigma, f> - inf_f <sigma, f>) / 2`, which cannot be negative and varies far less than a single draw. Pairs are added
//! until the standard error of their mean is small.

use super::ball::Ball;
use flatclip::methods::probability::softmax;
use flatclip::methods::update::text_gradient;
use flatclip::prompt::logits;
use flatclip::rng::Stream;
use flatclip::{Matrix, Result};
use serde::{Deserialize, Serialize};

/// Pairs of draws that are made together: few enough to stop early, enough for a standard error.
const ROUND: usize = 8;

/// How hard the supremum is looked for, and how exactly its mean is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RademacherSearch {
    /// The standard error that ends it, as a share of the estimate.
    pub precision: f64,
    /// At most so many pairs of draws.
    pub most_pairs: usize,
    /// Steps of ascent for each draw.
    pub steps: usize,
    /// Seed of the signs.
    pub seed: u64,
}

impl Default for RademacherSearch {
    fn default() -> Self {
        Self { precision: 0.05, most_pairs: 64, steps: 4, seed: 1 }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rademacher {
    /// Mean over the pairs: a lower estimate, because ascent may miss the supremum.
    pub estimate: f64,
    /// Standard error of that mean.
    pub standard_error: f64,
    /// Pairs of draws.
    pub pairs: usize,
    /// Steps of ascent for each draw.
    pub steps: usize,
    /// Images.
    pub images: usize,
    /// The class of functions: prompts within this radius of the given one.
    pub radius: f64,
}

impl Rademacher {
    /// On unit-norm image features, over the prompts of a ball.
    pub fn measure(ball: &Ball<'_>, features: &Matrix, search: &RademacherSearch) -> Result<Self> {
        ball.check("class radius")?;
        let mut pairs: Vec<f64> = Vec::new();
        let count = features.rows() * ball.classes.classes.len();
        loop {
            let signs: Vec<Vec<f32>> =
                (pairs.len()..pairs.len() + ROUND).flat_map(|pair| antithetic(count, search.seed, pair)).collect();
            let mut best = vec![f64::NEG_INFINITY; signs.len()];
            ball.ascend(vec![ball.zero(); signs.len()], search.steps, |draw, text| {
                let (value, slope) = correlation(&logits(features, text, ball.scale), &signs[draw]);
                best[draw] = best[draw].max(value);
                Ok(text_gradient(features, &slope, ball.scale))
            })?;
            pairs.extend(best.chunks(2).map(|pair| pair.iter().sum::<f64>() / 2.0));
            let (estimate, standard_error) = mean_and_error(&pairs);
            if standard_error <= search.precision * estimate || pairs.len() + ROUND > search.most_pairs {
                let (pairs, steps, images) = (pairs.len(), search.steps, features.rows());
                return Ok(Self { estimate, standard_error, pairs, steps, images, radius: ball.radius });
            }
        }
    }
}

/// Random signs, and the same turned round.
fn antithetic(count: usize, seed: u64, pair: usize) -> [Vec<f32>; 2] {
    let mut stream = Stream::new(seed, &["rademacher", &pair.to_string()]);
    let signs: Vec<f32> = (0..count).map(|_| if stream.unit() < 0.5 { -1.0 } else { 1.0 }).collect();
    let turned = signs.iter().map(|sign| -sign).collect();
    [signs, turned]
}

/// The mean and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (square / n).sqrt())
}

/// `1/n sum_i sigma_i' softmax(z_i)` and its slope on the logits.
fn correlation(outputs: &Matrix, signs: &[f32]) -> (f64, Matrix) {
    let (n, classes) = (outputs.rows().max(1), outputs.cols());
    let mut slope = Matrix::zeros(outputs.rows(), classes);
    let mut total = 0.0;
    for (row, sign) in (0..outputs.rows()).zip(signs.chunks(classes.max(1))) {
        let p = softmax(outputs.row(row));
        let mean: f64 = p.iter().zip(sign).map(|(p, &s)| p * f64::from(s)).sum();
        total += mean / n as f64;
        let to = slope.row_mut(row).iter_mut().zip(p.iter().zip(sign));
        to.for_each(|(d, (p, &s))| *d = (p * (f64::from(s) - mean) / n as f64) as f32);
    }
    (total, slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flatness::worst_case::tests::pocket;

    #[test]
    fn the_slope_of_the_correlation_matches_differences() {
        let outputs = Matrix::from_vec(2, 3, vec![0.3, -0.2, 0.9, 1.1, 0.4, -0.7]);
        let signs = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0];
        let (_, slope) = correlation(&outputs, &signs);
        for index in 0..6 {
            let at = |by: f32| {
                let mut moved = outputs.clone();
                moved.data_mut()[index] += by;
                correlation(&moved, &signs).0
            };
            let measured = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((f64::from(slope.data()[index]) - measured).abs() < 1e-4, "{index}");
        }
    }

    /// Single draws scatter around zero by what the signs do at the prompt itself; pairs do not.
    #[test]
    fn pairs_are_never_negative_and_seeds_agree_within_the_standard_error() {
        let (task, probe) = pocket();
        let at = |radius: f64, seed: u64| {
            let ball = Ball::of(&task, "test", radius).unwrap();
            let search = RademacherSearch { most_pairs: 32, seed, ..RademacherSearch::default() };
            Rademacher::measure(&ball, &probe.features, &search).unwrap()
        };
        assert!(at(0.0, 1).estimate.abs() < 1e-9, "one function correlates with no signs");
        let found: Vec<Rademacher> = (1..6).map(|seed| at(0.05, seed)).collect();
        for (a, b) in found.iter().zip(&found[1..]) {
            assert!(a.estimate > 0.0 && a.standard_error > 0.0 && a.pairs >= ROUND, "{a:?}");
            let apart = (a.estimate - b.estimate).abs();
            assert!(apart < 5.0 * a.standard_error.hypot(b.standard_error), "{a:?} {b:?}");
        }
    }
}
