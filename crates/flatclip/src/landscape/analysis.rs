//! What the paper's theory says of scores, measured: are they lower on the nearer data, and how far is entropy from
//! cross-entropy.

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

    /// Whether the theorem's conclusion is seen: a threshold at which the nearer set has more scores below.
    pub fn holds(&self) -> bool {
        self.largest.1 > 0.0
    }

    /// Whether it is seen at every threshold: the nearer set's scores are lower throughout.
    pub(crate) fn holds_everywhere(&self) -> bool {
        self.holds() && self.smallest.1 >= 0.0
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
}

impl EntropyGap {
    /// Checks the inequality on probability rows and their labels. The theorem needs every probability to be at least `eta`;
    /// outputs and one-hot labels are raised to it and scaled back to sum 1.
    pub fn measure<'a>(rows: impl Iterator<Item = (&'a [f32], usize)>, eta: f64) -> Self {
        let mut gap = Self { eta, ..Self::default() };
        for (probabilities, label) in rows {
            let f = floored(probabilities.iter().map(|&p| f64::from(p)), eta);
            let y = floored((0..f.len()).map(|k| f64::from(u8::from(k == label))), eta);
            let cross: f64 = y.iter().zip(&f).map(|(y, f)| -y * f.ln()).sum();
            let entropy: f64 = f.iter().map(|f| -f * f.ln()).sum();
            let distance: f64 = y.iter().zip(&f).map(|(y, f)| (y - f).abs()).sum();
            // Scaling back to sum 1 lowers the floor a little; the bound is taken at the floor that is really there.
            let floor = y.iter().chain(&f).copied().fold(f64::INFINITY, f64::min);
            let bound = -floor.ln() * distance + distance * distance / floor;
            gap.count += 1;
            gap.holding += usize::from((cross - entropy).abs() <= bound);
            gap.mean_gap += (cross - entropy).abs();
            gap.mean_bound += bound;
        }
        let count = gap.count.max(1) as f64;
        gap.mean_gap /= count;
        gap.mean_bound /= count;
        gap
    }
}

fn floored(values: impl Iterator<Item = f64>, eta: f64) -> Vec<f64> {
    let values: Vec<f64> = values.map(|v| v.max(eta)).collect();
    let sum: f64 = values.iter().sum();
    values.into_iter().map(|v| v / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_set_is_below_at_every_threshold() {
        let s = Separation::measure(&[0.1, 0.2, 0.3], &[0.25, 0.4, 0.5]).unwrap();
        assert!(s.holds_everywhere());
        assert!((s.largest.1 - 2.0 / 3.0).abs() < 1e-12, "{:?}", s.largest);
    }

    #[test]
    fn equal_sets_show_nothing_and_reversed_sets_say_so() {
        assert!(!Separation::measure(&[1.0, 2.0], &[1.0, 2.0]).unwrap().holds());
        assert!(!Separation::measure(&[2.0], &[1.0]).unwrap().holds());
        assert!(Separation::measure(&[], &[1.0]).is_none());
    }

    #[test]
    fn the_gap_of_a_right_and_a_wrong_output() {
        let right: &[f32] = &[0.9, 0.1];
        let wrong: &[f32] = &[0.1, 0.9];
        let gap = EntropyGap::measure([(right, 0), (wrong, 0)].into_iter(), 1e-3);
        assert_eq!((gap.count, gap.holding), (2, 2));
        assert!(gap.mean_gap > 0.0 && gap.mean_gap < gap.mean_bound);
    }
}
