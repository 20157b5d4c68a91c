//! Expected calibration error: how far confidence is from accuracy, in right-closed bins of equal width.

use serde::{Deserialize, Serialize};

/// One bar of a reliability diagram: confidences in `(low, high]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Lower edge, excluded.
    pub low: f64,
    /// Upper edge, included.
    pub high: f64,
    /// How many samples.
    pub count: usize,
    /// Share of them that is right; 0 in an empty bin.
    pub accuracy: f64,
    /// Their mean confidence; 0 in an empty bin.
    pub confidence: f64,
}

/// Calibration of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `sum_b (n_b / n) |accuracy_b - confidence_b|`.
    pub ece: f64,
    /// The largest `|accuracy_b - confidence_b|` of a bin that is not empty.
    pub mce: f64,
    /// The bins, from low to high.
    pub bins: Vec<ReliabilityBin>,
}

/// Bins `(confidence, correct)` pairs as C-TPT's `ECE_Loss` does: `((i)/n, (i+1)/n]`; a confidence of exactly 0 is in no bin.
pub fn calibration(samples: &[(f64, bool)], bins: usize) -> Calibration {
    // The original compares with f32 edges; a confidence that sits on an edge must fall on the same side.
    let edge = |i: usize| f64::from(linspace_edge(i, bins));
    let mut sums = vec![(0usize, 0usize, 0.0f64); bins];
    for &(confidence, correct) in samples {
        let guess = (confidence * bins as f64) as usize;
        let found =
            (guess.saturating_sub(1)..bins.min(guess + 2)).find(|&i| confidence > edge(i) && confidence <= edge(i + 1));
        if let Some(bin) = found {
            sums[bin].0 += 1;
            sums[bin].1 += usize::from(correct);
            sums[bin].2 += confidence;
        }
    }
    let total = samples.len().max(1) as f64;
    let (mut ece, mut mce) = (0.0f64, 0.0f64);
    let mut result = Vec::with_capacity(bins);
    for (i, (count, right, confidence)) in sums.into_iter().enumerate() {
        let n = count.max(1) as f64;
        let (accuracy, confidence) = (right as f64 / n, confidence / n);
        let gap = (accuracy - confidence).abs();
        ece += gap * count as f64 / total;
        mce = mce.max(gap);
        result.push(ReliabilityBin { low: edge(i), high: edge(i + 1), count, accuracy, confidence });
    }
    Calibration { ece, mce, bins: result }
}

/// Entry `i` of torch's f32 `linspace(0, 1, bins + 1)`, which counts from the nearer end.
fn linspace_edge(i: usize, bins: usize) -> f32 {
    let step = 1.0f32 / bins as f32;
    if i < bins.div_ceil(2) { step * i as f32 } else { 1.0 - step * (bins - i) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_closed_on_the_right() {
        let c = calibration(&[(0.5, true), (0.500001, true), (1.0, true), (0.0, false)], 2);
        assert_eq!(c.bins.iter().map(|b| b.count).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn every_confidence_above_zero_falls_in_exactly_one_bin() {
        for bins in [1, 2, 7, 10, 15, 20, 33] {
            let samples: Vec<_> = (1..=1000).map(|i| (f64::from(i as f32 / 1000.0), i % 3 == 0)).collect();
            let c = calibration(&samples, bins);
            assert_eq!(c.bins.iter().map(|b| b.count).sum::<usize>(), 1000, "{bins} bins");
        }
    }

    #[test]
    fn a_sure_and_always_wrong_run_has_error_one() {
        let c = calibration(&[(1.0, false), (1.0, false)], 20);
        assert_eq!((c.ece, c.mce), (1.0, 1.0));
        assert_eq!(calibration(&[], 20).ece, 0.0);
    }
}
