//! The worst-case entropy of unlabelled images, `H^rho(x) = max_{|eps| <= rho} H(f_{theta + eps}(x))`: what an STSS score with
//! lambda 1 estimates by the largest of R random directions, and what projected gradient ascent of each image's own entropy comes
//! closer to. Both are found inside the ball, so both are lower estimates.

use super::{Ball, Floor};
use flatclip::methods::probability::{entropy, logits, mean_entropy};
use flatclip::methods::update::on_text;
use flatclip::{Matrix, Result};
use serde::{Deserialize, Serialize};

/// The largest entropy that is found for one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntropyFound {
    /// Of the output as it is.
    pub plain: f64,
    /// Of the output raised to the floor.
    pub floored: f64,
}

impl EntropyFound {
    /// At the outputs of these rows of logits, whichever is largest.
    pub fn over<'r>(rows: impl Iterator<Item = &'r [f32]>, floor: Floor) -> Self {
        let nothing = Self { plain: f64::NEG_INFINITY, floored: f64::NEG_INFINITY };
        rows.fold(nothing, |found, row| found.larger(Self::at(row, floor)))
    }

    fn at(row: &[f32], floor: Floor) -> Self {
        Self { plain: f64::from(entropy(row)), floored: floor.entropy(row) }
    }

    /// The larger of two.
    pub fn larger(self, other: Self) -> Self {
        Self { plain: self.plain.max(other.plain), floored: self.floored.max(other.floored) }
    }
}

/// Projected ascent of the entropy of every row of unit-norm features, each with an eps of its own, from the prompt.
pub fn ascend_entropy(ball: &Ball<'_>, features: &Matrix, steps: usize, floor: Floor) -> Result<Vec<EntropyFound>> {
    let mut found = vec![EntropyFound { plain: f64::NEG_INFINITY, floored: f64::NEG_INFINITY }; features.rows()];
    ball.ascend(vec![ball.zero(); features.rows()], steps, |image, text| {
        let one = features.select_rows(&[image]);
        found[image] = found[image].larger(EntropyFound::at(logits(&one, text, ball.scale).row(0), floor));
        Ok(on_text(&one, text, ball.scale, mean_entropy).gradient)
    })?;
    Ok(found)
}

/// Both estimates on the same images of a set, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorstEntropy {
    /// Images that both were computed for, spread over the set.
    pub images: usize,
    /// Their mean entropy at the prompt.
    pub entropy: f64,
    /// Mean of the largest over random directions: their mean score.
    pub random: f64,
    /// How many directions.
    pub directions: usize,
    /// Mean of the largest that ascent or a random direction found.
    pub ascent: f64,
    /// Steps of the ascent, which starts at the prompt.
    pub steps: usize,
    /// The ascent's mean with outputs raised to the floor: the left side of the bound, on these images.
    pub ascent_floored: f64,
}

impl WorstEntropy {
    /// How much more ascent finds.
    pub fn ratio(&self) -> f64 {
        self.ascent / self.random.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flatness::worst_case::tests::pocket;

    #[test]
    fn ascent_finds_more_than_random_directions_and_starts_at_the_entropy() {
        let (task, probe) = pocket();
        let ball = Ball::of(&task, "test", 0.2).unwrap();
        let mean = |found: &[EntropyFound]| found.iter().map(|f| f.plain).sum::<f64>() / found.len() as f64;
        let at = |steps| ascend_entropy(&ball, &probe.features, steps, Floor::NONE).unwrap();
        let here = task.logits(&probe.features);
        for (found, row) in at(0).iter().zip(here.iter_rows()) {
            assert!((found.plain - f64::from(entropy(row))).abs() < 1e-4, "{found:?}");
        }
        let mut random = vec![EntropyFound { plain: 0.0, floored: 0.0 }; 4];
        let directions = ball.random(16, 1, "test");
        ball.visit(&directions, |_, text| {
            let rows = logits(&probe.features, text, task.logit_scale);
            for (found, row) in random.iter_mut().zip(rows.iter_rows()) {
                *found = found.larger(EntropyFound::over([row].into_iter(), Floor::NONE));
            }
            Ok(())
        })
        .unwrap();
        assert!(mean(&at(6)) > 1.02 * mean(&random), "{} by ascent, {} by chance", mean(&at(6)), mean(&random));
    }
}
