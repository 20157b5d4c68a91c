//! The terms of the paper's bound on the worst-case entropy of a test image (its Theorem 4):
//!
//! ```text
//! H^rho(test) <= M/2 d(S; T) + Q(delta/2) + hat H^rho_S + c mu R_n + M sqrt(ln(2/delta) / 2n)
//!              + ln(1/eta) E_S|y - f|_1 + E_S|y - f|_1^2 / eta        (holds with probability 1 - delta)
//! ```
//!
//! with c = 2 as Theorem 4 is printed, and c = 2 sqrt(2) as Theorem 1 and the proof of Theorem 4 have it. `d` and `R_n` are
//! estimated in [`Divergence`](super::Divergence) and [`Rademacher`](super::Rademacher); [`Theory`](super::Theory) puts all terms
//! together. Under the floor eta a cross-entropy is at most `ln(1/eta)`, which is M.

use super::WorstCase;
use serde::{Deserialize, Serialize};

/// The left side of a set, in nats, with outputs raised to the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// Mean worst-case entropy.
    pub mean: f64,
    /// `Q(delta/2)`: how far above that mean all but a share delta/2 of the images are below.
    pub quantile: f64,
    /// The worst-case entropy that all but a share delta of the images are below.
    pub pointwise: f64,
}

/// The terms that need neither divergence nor complexity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// How often the bound may fail.
    pub delta: f64,
    /// The floor of all probabilities that the theorem requires.
    pub eta: f64,
    /// K.
    pub classes: usize,
    /// `ln K`: no entropy is larger, so a bound above it says nothing.
    pub largest_entropy: f64,
    /// `hat H^rho_S` and what belongs to it.
    pub worst_case: WorstCase,
    /// M: `ln(1/eta)`, an upper bound of the cross-entropy under the floor.
    pub loss_bound: f64,
    /// `M sqrt(ln(2/delta) / 2n)`.
    pub confidence: f64,
    /// `Q(delta/2)`, the larger of both sets.
    pub quantile: f64,
    /// `ln(1/eta) E|y - f|_1 + E|y - f|_1^2 / eta` over the training images, each at its theta-tilde.
    pub entropy_gap: f64,
    /// The left side of the nearer and of the farther set, by random directions.
    pub left: (Left, Left),
}

impl Bound {
    /// Puts the terms together.
    pub fn new(worst_case: WorstCase, classes: usize, delta: f64, eta: f64, left: (Left, Left)) -> Self {
        let loss_bound = -eta.ln();
        Self {
            delta,
            eta,
            classes,
            largest_entropy: (classes as f64).ln(),
            loss_bound,
            confidence: loss_bound * ((2.0 / delta).ln() / (2.0 * worst_case.images.max(1) as f64)).sqrt(),
            quantile: left.0.quantile.max(left.1.quantile),
            entropy_gap: loss_bound * worst_case.distance + worst_case.distance_squared / eta,
            left,
            worst_case,
        }
    }

    /// The sum of these terms of the right side.
    pub fn measured(&self) -> f64 {
        self.quantile + self.worst_case.per_image + self.confidence + self.entropy_gap
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn worst(images: usize) -> WorstCase {
        WorstCase {
            radius: 0.5,
            images,
            centre: 0.1,
            shared: 0.2,
            per_image: 0.3,
            largest_found: 11.6,
            distance: 0.1,
            distance_squared: 0.02,
            below_floor: 0.25,
            contexts: 33,
            steps: 8,
            starts: 2,
            directions: 16,
            own_images: 8,
            own_steps: 6,
        }
    }

    #[test]
    fn more_images_make_the_confidence_term_smaller_and_the_sum_holds_every_term() {
        let left = |quantile| Left { quantile, ..Left::default() };
        let bound = |images: usize| Bound::new(worst(images), 32, 0.05, 0.01, (left(0.4), left(0.6)));
        let m = 100f64.ln();
        let expected = m * (40f64.ln() / 200.0).sqrt();
        assert!((bound(100).confidence - expected).abs() < 1e-12);
        assert!((bound(400).confidence - expected / 2.0).abs() < 1e-12);
        let gap = m * 0.1 + 2.0;
        assert!((bound(100).measured() - (0.6 + 0.3 + expected + gap)).abs() < 1e-12);
    }

    /// M bounds the loss from above whatever ascent finds: 11.6 nats were found without the floor.
    #[test]
    fn m_is_the_logarithm_of_the_floor_and_not_the_largest_loss_that_was_found() {
        let bound = Bound::new(worst(8), 32, 0.05, 1e-4, (Left::default(), Left::default()));
        assert!((bound.loss_bound - 9.210_340_37).abs() < 1e-8);
        assert!((bound.largest_entropy - 32f64.ln()).abs() < 1e-12);
    }
}
