//! Accuracy by score quantile: does a lower sharpness score mean a more reliable answer?

use super::{Outcome, mean};
use serde::{Deserialize, Serialize};

/// Samples between two quantiles of the score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantileBin {
    /// Lowest score inside.
    pub low: f64,
    /// Highest score inside.
    pub high: f64,
    /// How many samples.
    pub count: usize,
    /// Share of them that is right.
    pub accuracy: f64,
}

/// Cuts the samples that have a score into `bins` groups of equal size, from low to high score.
pub(crate) fn by_score(outcomes: &[Outcome], bins: usize) -> Vec<QuantileBin> {
    let mut scored: Vec<(f64, bool)> =
        outcomes.iter().filter_map(|o| Some((o.score.filter(|s| s.is_finite())?, o.is_correct()))).collect();
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = scored.len();
    let cut = |i: usize| i * n / bins.max(1);
    let group = |i: usize| {
        let group = &scored[cut(i)..cut(i + 1)];
        let (first, last) = (group.first()?, group.last()?);
        let accuracy = mean(group.iter().map(|(_, correct)| f64::from(u8::from(*correct))));
        Some(QuantileBin { low: first.0, high: last.0, count: group.len(), accuracy })
    };
    (0..bins).filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::super::outcome;
    use super::*;

    #[test]
    fn groups_are_equal_and_ordered_by_score() {
        let scored = |i: usize| Outcome { score: Some(10.0 - i as f64), ..outcome(usize::from(i < 5), 0, 0.5) };
        let outcomes: Vec<Outcome> = (0..10).map(scored).chain([outcome(0, 0, 0.5)]).collect();
        let bins = by_score(&outcomes, 2);
        assert_eq!(bins.iter().map(|b| (b.count, b.accuracy)).collect::<Vec<_>>(), [(5, 1.0), (5, 0.0)]);
        assert!(bins[0].high < bins[1].low);
        assert!(by_score(&[], 4).is_empty());
    }
}
