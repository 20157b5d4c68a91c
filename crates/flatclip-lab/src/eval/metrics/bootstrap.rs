//! Percentile bootstrap intervals, drawn from a named stream so that a report repeats to the last digit.

use flatclip::rng::Stream;
use serde::{Deserialize, Serialize};

/// A two-sided 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// 2.5 % quantile.
    pub low: f64,
    /// 97.5 % quantile.
    pub high: f64,
}

/// Interval of the share of `true`. `None` without samples or resamples.
pub(crate) fn accuracy_interval(correct: &[bool], resamples: usize, seed: u64) -> Option<Interval> {
    let values: Vec<f64> = correct.iter().map(|&c| f64::from(u8::from(c))).collect();
    mean_interval(&values, resamples, seed, "accuracy")
}

/// Interval of the difference of two accuracies on the same samples (second minus first): samples are drawn in pairs.
pub(crate) fn paired_interval(first: &[bool], second: &[bool], resamples: usize, seed: u64) -> Option<Interval> {
    let difference = |(&a, &b): (&bool, &bool)| f64::from(i8::from(b) - i8::from(a));
    let values: Vec<f64> = first.iter().zip(second).map(difference).collect();
    mean_interval(&values, resamples, seed, "paired")
}

fn mean_interval(values: &[f64], resamples: usize, seed: u64, purpose: &str) -> Option<Interval> {
    if values.is_empty() || resamples == 0 {
        return None;
    }
    let mut stream = Stream::new(seed, &["bootstrap", purpose]);
    let draw = |stream: &mut Stream| values[stream.below(values.len())];
    let mut means: Vec<f64> = (0..resamples)
        .map(|_| (0..values.len()).map(|_| draw(&mut stream)).sum::<f64>() / values.len() as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((share * resamples as f64) as usize).min(resamples - 1)];
    Some(Interval { low: at(0.025), high: at(0.975) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_as_wide_as_the_binomial_one_and_repeats() {
        let correct: Vec<bool> = (0..400).map(|i| i % 4 != 0).collect();
        let interval = accuracy_interval(&correct, 2000, 1).unwrap();
        let half = 1.96 * (0.75f64 * 0.25 / 400.0).sqrt();
        assert!((interval.low - (0.75 - half)).abs() < 0.008, "{interval:?}");
        assert!((interval.high - (0.75 + half)).abs() < 0.008, "{interval:?}");
        assert_eq!(accuracy_interval(&correct, 2000, 1), Some(interval));
    }

    #[test]
    fn pairs_that_agree_have_a_narrow_difference() {
        let first: Vec<bool> = (0..400).map(|i| i % 2 == 0).collect();
        let mut second = first.clone();
        second[1] = true;
        let interval = paired_interval(&first, &second, 1000, 0).unwrap();
        assert!(interval.low >= 0.0 && interval.high < 0.015, "{interval:?}");
        assert_eq!(paired_interval(&[], &[], 1000, 0), None);
    }
}
