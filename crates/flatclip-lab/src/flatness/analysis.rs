//! What the paper's theory says of scores, measured: are they lower on the nearer data, and how far is entropy from
//! cross-entropy.

use super::floor::Floor;
use flatclip::methods::probability::softmax;
use serde::{Deserialize, Serialize};

/// The empirical form of the paper's main theorem: some threshold `xi` with
/// `P(score < xi | nearer) > P(score < xi | farther)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Separation {
    /// Thresholds, ascending: every score that occurs.
    pub thresholds: Vec<f32>,
    /// Share of the nearer set's scores below each threshold.
    pub near: Vec<f64>,
    /// Share of the farther set's scores below each threshold.
    pub far: Vec<f64>,
    /// The largest `near - far` over all thresholds, and where.
    pub largest: (f32, f64),
    /// The smallest `near - far` (negative where the order is reversed), and where.
    pub smallest: (f32, f64),
}

impl Separation {
    /// Compares two sets of scores; `None` when one is empty.
    pub fn measure(near: &[f32], far: &[f32]) -> Option<Self> {
        if near.is_empty() || far.is_empty() {
            return None;
        }
        let sorted = |scores: &[f32]| {
            let mut scores = scores.to_vec();
            scores.sort_by(f32::total_cmp);
            scores
        };
        let (near, far) = (sorted(near), sorted(far));
        let mut thresholds = [near.as_slice(), far.as_slice()].concat();
        thresholds.sort_by(f32::total_cmp);
        thresholds.dedup();
        let below = |scores: &[f32], xi: f32| scores.partition_point(|&s| s < xi) as f64 / scores.len() as f64;
        let near: Vec<f64> = thresholds.iter().map(|&xi| below(&near, xi)).collect();
        let far: Vec<f64> = thresholds.iter().map(|&xi| below(&far, xi)).collect();
        let gaps = || thresholds.iter().zip(near.iter().zip(&far)).map(|(&xi, (n, f))| (xi, n - f));
        let largest = gaps().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let smallest = gaps().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Self { thresholds, near, far, largest, smallest })
    }
}

/// The paper's bound on the difference between cross-entropy and entropy, on real outputs:
/// `|H(y, f) - H(f)| <= ln(1/eta) |y - f|_1 + |y - f|_1^2 / eta`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EntropyGap {
    /// Outputs looked at.
    pub count: usize,
    /// Outputs for which the inequality holds.
    pub holding: usize,
    /// Mean of the left side.
    pub mean_gap: f64,
    /// Mean of the right side: how loose the bound is.
    pub mean_bound: f64,
    /// The floor that both distributions were raised to.
    pub eta: f64,
    /// Share of the outputs that had an entry below the floor before they were raised.
    pub below_floor: f64,
}

impl EntropyGap {
    /// Checks the inequality on rows of logits and their labels. The theorem needs every probability to be at least `eta`;
    /// outputs and one-hot labels are raised to it.
    pub fn measure<'a>(rows: impl Iterator<Item = (&'a [f32], usize)>, floor: Floor) -> Self {
        let mut gap = Self { eta: floor.eta(), ..Self::default() };
        for (row, label) in rows {
            let loss = floor.losses(row, label);
            let bound = -gap.eta.ln() * loss.distance + loss.distance.powi(2) / gap.eta;
            gap.count += 1;
            gap.holding += usize::from((loss.cross - loss.entropy).abs() <= bound);
            gap.mean_gap += (loss.cross - loss.entropy).abs();
            gap.mean_bound += bound;
            gap.below_floor += f64::from(u8::from(floor.is_above(&softmax(row))));
        }
        let count = gap.count.max(1) as f64;
        gap.mean_gap /= count;
        gap.mean_bound /= count;
        gap.below_floor /= count;
        gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_set_is_below_at_every_threshold() {
        let s = Separation::measure(&[0.1, 0.2, 0.3], &[0.25, 0.4, 0.5]).unwrap();
        assert!(s.smallest.1 >= 0.0);
        assert!((s.largest.1 - 2.0 / 3.0).abs() < 1e-12, "{:?}", s.largest);
    }

    #[test]
    fn equal_sets_have_no_gap_and_reversed_sets_the_other_one() {
        assert_eq!(Separation::measure(&[1.0, 2.0], &[1.0, 2.0]).unwrap().largest.1, 0.0);
        let reversed = Separation::measure(&[2.0], &[1.0]).unwrap();
        assert_eq!((reversed.largest.1, reversed.smallest.1), (0.0, -1.0));
        assert!(Separation::measure(&[], &[1.0]).is_none());
    }

    #[test]
    fn the_gap_of_a_right_and_a_wrong_output_and_the_share_below_the_floor() {
        let right: &[f32] = &[2.2, 0.0];
        let wrong: &[f32] = &[0.0, 9.0];
        let gap = EntropyGap::measure([(right, 0), (wrong, 0)].into_iter(), Floor::new(1e-3, 2).unwrap());
        assert_eq!((gap.count, gap.holding, gap.below_floor), (2, 2, 0.5));
        assert!(gap.mean_gap > 0.0 && gap.mean_gap < gap.mean_bound);
    }
}
