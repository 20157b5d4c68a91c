//! Differences between rows, with intervals that count images and draws of the shots as drawn.

use super::answers::{Answers, Row};
use serde::Serialize;

/// What images a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Where {
    /// The style that prompts are tuned on.
    Photos,
    /// The six others.
    Shifts,
}

impl Where {
    pub(super) fn name(self) -> &'static str {
        match self {
            Where::Photos => "photos",
            Where::Shifts => "shifts",
        }
    }

    fn holds(self, domain: usize) -> bool {
        (domain == 0) == (self == Where::Photos)
    }
}

/// A mean and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    pub(super) mean: f64,
    /// Half of the interval.
    pub(super) half: f64,
}

/// What a difference says about a claim that it is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// The interval lies above zero.
    Significant,
    /// It holds zero.
    NoDifference,
    /// It lies below zero.
    OppositeSign,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Significant => "significant",
            Verdict::NoDifference => "no significant difference",
            Verdict::OppositeSign => "opposite sign",
        }
    }
}

impl Difference {
    pub(super) fn verdict(self) -> Verdict {
        match () {
            () if self.mean > self.half => Verdict::Significant,
            () if self.mean < -self.half => Verdict::OppositeSign,
            () => Verdict::NoDifference,
        }
    }

    /// Of two rows on the same images and draws, the first minus the second. A row with one draw stands against every draw of
    /// the other. Styles have equal numbers of images, so the mean over images is the mean over styles.
    ///
    /// The variance is that of the mean over images (of each image's difference, averaged over draws) plus that of the mean over draws.
    pub(super) fn of(answers: &Answers, first: &Row, second: &Row, place: Where) -> Self {
        let seeds = first.right.len().max(second.right.len());
        let at = |row: &Row, seed: usize, image: usize| row.right[seed.min(row.right.len() - 1)][image];
        let images: Vec<usize> = (0..answers.shown.len()).filter(|&i| place.holds(answers.shown[i].domain)).collect();
        let delta =
            |seed: usize, image: usize| f64::from(i8::from(at(first, seed, image)) - i8::from(at(second, seed, image)));
        let by_image: Vec<f64> =
            images.iter().map(|&p| (0..seeds).map(|s| delta(s, p)).sum::<f64>() / seeds as f64).collect();
        let by_seed: Vec<f64> =
            (0..seeds).map(|s| images.iter().map(|&p| delta(s, p)).sum::<f64>() / images.len() as f64).collect();
        let (mean, of_images) = mean_and_variance(&by_image);
        Self { mean, half: 1.96 * (of_images + mean_and_variance(&by_seed).1).sqrt() }
    }

    /// Of paired values, one for each draw.
    pub(super) fn paired(first: &[f64], second: &[f64]) -> Self {
        let deltas: Vec<f64> = first.iter().zip(second).map(|(a, b)| a - b).collect();
        let (mean, variance) = mean_and_variance(&deltas);
        Self { mean, half: 1.96 * variance.sqrt() }
    }

    /// In points, with its interval.
    pub(super) fn points(self) -> String {
        let [mean, low, high] = [self.mean, self.mean - self.half, self.mean + self.half].map(|x| 100.0 * x);
        format!("{mean:+.1} ({low:+.1} to {high:+.1})")
    }
}

/// The mean, and the variance of the mean: none can be told from one value.
fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_holds_zero_shows_nothing() {
        let verdict = |mean: f64, half: f64| Difference { mean, half }.verdict();
        assert_eq!(verdict(0.02, 0.01), Verdict::Significant);
        assert_eq!(verdict(0.02, 0.03), Verdict::NoDifference);
        assert_eq!(verdict(-0.02, 0.01), Verdict::OppositeSign);
    }

    #[test]
    fn pairs_vary_by_their_difference_alone() {
        let constant = Difference::paired(&[1.5, 2.5, 9.5], &[1.0, 2.0, 9.0]);
        assert_eq!((constant.mean, constant.half), (0.5, 0.0));
        let two = Difference::paired(&[1.0, 3.0], &[0.0, 0.0]);
        assert!((two.mean - 2.0).abs() < 1e-12 && (two.half - 1.96).abs() < 1e-12, "{two:?}");
    }
}
