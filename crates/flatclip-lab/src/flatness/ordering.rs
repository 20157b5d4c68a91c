//! The theorem's conclusion, tested: is there a threshold `xi` with `P(score < xi | nearer) > P(score < xi | farther)`?
//!
//! The largest gap over all thresholds is positive for almost any two samples, also of one set. So it gets an interval, is
//! compared with what two draws of the nearer set alone give, and printed next to the same for the plain entropy, which needs no
//! perturbation at all.

use super::Separation;
use super::scores::quantile;
use flatclip::rng::Stream;
use serde::{Deserialize, Serialize};

/// Draws of the bootstrap.
const DRAWS: usize = 1000;
/// Confidence of the intervals.
const LEVEL: f64 = 0.95;

/// Scores of both sets, of one kind.
#[derive(Clone, Debug)]
pub struct ScoreKind<'a> {
    /// What the score is.
    pub name: String,
    /// Of the nearer set.
    pub near: &'a [f32],
    /// Of the farther set.
    pub far: &'a [f32],
}

/// The ordering of one kind of score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderClaim {
    /// What the score is.
    pub score: String,
    /// Images of the nearer and of the farther set.
    pub images: (usize, usize),
    /// The largest `P(score < xi | nearer) - P(score < xi | farther)`.
    pub gap: f64,
    /// Its 95 % interval: the basic bootstrap, which subtracts that a maximum is too large on average.
    pub interval: (f64, f64),
    /// The same gap between two draws of the nearer set, of the same sizes: mean and 95 % quantile.
    pub null: (f64, f64),
    /// Whether the interval is above zero and the gap above the quantile of the null comparison.
    pub holds: bool,
}

/// All kinds of score, and whether the first orders more than the second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ordering {
    /// The claims, the score itself first, the entropy at the prompt second.
    pub claims: Vec<OrderClaim>,
    /// Gap of the first less gap of the second.
    pub difference: f64,
    /// Its 95 % interval, from the same draws of images for both.
    pub difference_interval: (f64, f64),
}

impl Ordering {
    /// Tests every kind of score; the first two must be of the same images. `None` when a set is empty.
    pub fn measure(
        score: &ScoreKind<'_>,
        control: &ScoreKind<'_>,
        others: &[ScoreKind<'_>],
        seed: u64,
    ) -> Option<Self> {
        let mut claims = Vec::new();
        let mut drawn = Vec::new();
        for kind in [score, control].into_iter().chain(others) {
            let (claim, gaps) = claim(kind, seed)?;
            claims.push(claim);
            drawn.push(gaps);
        }
        let difference = claims[0].gap - claims[1].gap;
        let apart: Vec<f64> = drawn[0].iter().zip(&drawn[1]).map(|(a, b)| a - b).collect();
        Some(Self { difference, difference_interval: basic(difference, apart), claims })
    }
}

/// One claim, and the gap of every draw. Draws depend on the sizes and the seed alone, so kinds of the same images share them.
fn claim(kind: &ScoreKind<'_>, seed: u64) -> Option<(OrderClaim, Vec<f64>)> {
    let (near, far) = (kind.near, kind.far);
    let gap = Separation::measure(near, far)?.largest.1;
    let draws = |purpose: &str, far: &[f32]| -> Vec<f64> {
        let mut stream = Stream::new(seed, &["ordering", purpose]);
        let mut draw = |scores: &[f32], count: usize| -> Vec<f32> {
            (0..count).map(|_| scores[stream.below(scores.len())]).collect()
        };
        (0..DRAWS).map(|_| largest_gap(draw(near, near.len()), draw(far, kind.far.len()))).collect()
    };
    let (gaps, null) = (draws("bootstrap", far), draws("null", near));
    let interval = basic(gap, gaps.clone());
    let null = (null.iter().sum::<f64>() / DRAWS as f64, quantile(null, LEVEL));
    let holds = interval.0 > 0.0 && gap > null.1;
    let images = (near.len(), far.len());
    Some((OrderClaim { score: kind.name.clone(), images, gap, interval, null, holds }, gaps))
}

/// The largest difference of both shares below a threshold.
fn largest_gap(mut near: Vec<f32>, mut far: Vec<f32>) -> f64 {
    near.sort_unstable_by(f32::total_cmp);
    far.sort_unstable_by(f32::total_cmp);
    let (mut j, mut best) = (0, 0.0f64);
    for (i, &score) in near.iter().enumerate() {
        // Just above a score of the nearer set, all up to it are below.
        while j < far.len() && far[j] <= score {
            j += 1;
        }
        best = best.max((i + 1) as f64 / near.len() as f64 - j as f64 / far.len() as f64);
    }
    best
}

/// The basic bootstrap interval of a value from its draws.
fn basic(value: f64, draws: Vec<f64>) -> (f64, f64) {
    let tail = (1.0 - LEVEL) / 2.0;
    let (low, high) = (quantile(draws.clone(), tail), quantile(draws, 1.0 - tail));
    (2.0 * value - high, 2.0 * value - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(shift: f64, count: usize, seed: u64) -> Vec<f32> {
        let mut stream = Stream::new(seed, &["scores"]);
        (0..count).map(|_| (shift + stream.normal()) as f32).collect()
    }

    fn kind<'a>(name: &str, near: &'a [f32], far: &'a [f32]) -> ScoreKind<'a> {
        ScoreKind { name: name.into(), near, far }
    }

    /// A positive gap is no evidence: two draws of one distribution have one too.
    #[test]
    fn two_draws_of_one_distribution_show_nothing_although_their_gap_is_positive() {
        let (mut shown, mut positive) = (0, 0);
        for seed in 0..20 {
            let (near, far) = (scores(0.0, 60, 2 * seed), scores(0.0, 60, 2 * seed + 1));
            positive += usize::from(Separation::measure(&near, &far).unwrap().largest.1 > 0.0);
            let found = Ordering::measure(&kind("a", &near, &far), &kind("b", &near, &far), &[], 1).unwrap();
            shown += usize::from(found.claims[0].holds);
        }
        assert!(positive >= 18 && shown <= 2, "{positive} positive, {shown} shown of 20");
    }

    #[test]
    fn a_shift_is_shown_with_an_interval_around_it_and_a_control_of_the_same_order_is_no_less() {
        let (near, far) = (scores(0.0, 300, 1), scores(1.0, 300, 2));
        let found = Ordering::measure(&kind("score", &near, &far), &kind("entropy", &near, &far), &[], 1).unwrap();
        let claim = &found.claims[0];
        // Two normals one standard deviation apart differ by 2 Phi(1/2) - 1.
        assert!(claim.holds && claim.interval.0 < 0.383 && 0.383 < claim.interval.1, "{claim:?}");
        assert!(claim.null.0 < claim.null.1 && claim.null.1 < 0.15, "{claim:?}");
        assert_eq!((found.difference, found.difference_interval), (0.0, (0.0, 0.0)));
        let apart = Ordering::measure(&kind("s", &near, &far), &kind("e", &near, &near), &[], 1).unwrap();
        assert!(apart.difference_interval.0 > 0.1, "{apart:?}");
        assert!(Ordering::measure(&kind("s", &near, &[]), &kind("e", &near, &[]), &[], 1).is_none());
    }

    #[test]
    fn the_quick_gap_is_that_of_all_thresholds() {
        for seed in 0..20 {
            let rounded = |v: Vec<f32>| v.into_iter().map(|x| (3.0 * x).round()).collect::<Vec<f32>>();
            let (near, far) = (rounded(scores(0.0, 17, seed)), rounded(scores(0.3, 23, seed + 50)));
            let all = Separation::measure(&near, &far).unwrap().largest.1.max(0.0);
            assert!((largest_gap(near, far) - all).abs() < 1e-12);
        }
    }
}
