//! Two methods on the same samples: is one better, or was it luck?

use super::bootstrap::{Interval, paired_interval};
use serde::{Deserialize, Serialize};

/// Comparison of a second run with a first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Samples that both answered.
    pub count: usize,
    /// Right only in the first.
    pub only_first: usize,
    /// Right only in the second.
    pub only_second: usize,
    /// Accuracy of the second minus accuracy of the first.
    pub difference: f64,
    /// 95 % paired bootstrap interval of the difference.
    pub interval: Option<Interval>,
    /// McNemar's exact two-sided p-value.
    pub p_value: f64,
}

/// Compares two lists of right and wrong over the same samples.
pub fn paired(first: &[bool], second: &[bool], resamples: usize, seed: u64) -> Paired {
    let count = first.len().min(second.len());
    let pairs = || first.iter().zip(second);
    let only_first = pairs().filter(|(a, b)| **a && !**b).count();
    let only_second = pairs().filter(|(a, b)| !**a && **b).count();
    Paired {
        count,
        only_first,
        only_second,
        difference: (only_second as f64 - only_first as f64) / count.max(1) as f64,
        interval: paired_interval(first, second, resamples, seed),
        p_value: mcnemar(only_first, only_second),
    }
}

/// Exact two-sided binomial test of the discordant pairs: `min(1, 2 P(X <= min(b, c)))`, `X ~ Bin(b + c, 1/2)`.
pub(crate) fn mcnemar(only_first: usize, only_second: usize) -> f64 {
    let n = only_first + only_second;
    if n == 0 {
        return 1.0;
    }
    // ln C(n, k) grown step by step: no factorial overflows, however many pairs disagree.
    let (mut log_term, mut sum) = (-(n as f64) * std::f64::consts::LN_2, 0.0f64);
    for k in 0..=only_first.min(only_second) {
        sum += log_term.exp();
        log_term += ((n - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_test_agrees_with_the_binomial_table() {
        // 2 * (1 + 10 + 45) / 1024
        assert!((mcnemar(2, 8) - 0.109_375).abs() < 1e-12);
        assert_eq!(mcnemar(5, 5), 1.0);
        assert_eq!(mcnemar(0, 0), 1.0);
        let large = mcnemar(4000, 4400);
        assert!(large > 1e-6 && large < 1e-4, "{large}");
    }

    #[test]
    fn discordant_pairs_are_counted_by_side() {
        let p = paired(&[true, true, false, false], &[true, false, true, true], 200, 0);
        assert_eq!((p.only_first, p.only_second, p.difference), (1, 2, 0.25));
    }
}
