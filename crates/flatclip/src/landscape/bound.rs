//! The terms of the paper's bound on the worst-case entropy of a test image (Theorem "main") that can be measured:
//!
//! ```text
//! H^rho(test) <= M/2 d(S; T) + Q(delta/2) + hat H^rho_S + 2 sqrt(2) mu R_n + M sqrt(ln(2/delta) / 2n)
//!              + ln(1/eta) E|y - f|_1 + E|y - f|_1^2 / eta        (holds with probability 1 - delta)
//! ```
//!
//! The divergence `d` and the complexity `R_n` are suprema, estimated from below in [`Divergence`](super::Divergence) and
//! [`Rademacher`](super::Rademacher); [`Theory`](super::Theory) puts all terms together. The rest is measured here, from below
//! where it is a maximum.

use super::WorstCase;
use serde::{Deserialize, Serialize};

/// The measured terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// How often the bound may fail.
    pub delta: f64,
    /// The floor of all probabilities that the theorem asks for.
    pub eta: f64,
    /// `hat H^rho_S` and what belongs to it.
    pub worst_case: WorstCase,
    /// M: the largest loss seen on training images within the ball; the true largest loss is not smaller.
    pub largest_loss: f64,
    /// `M sqrt(ln(2/delta) / 2n)`.
    pub confidence: f64,
    /// `Q(delta/2)`, the larger of both sets.
    pub quantile: f64,
    /// `ln(1/eta) E|y - f|_1 + E|y - f|_1^2 / eta` on the training images at their worst contexts.
    pub entropy_gap: f64,
    /// The left side: mean worst-case entropy of the nearer and of the farther set.
    pub left: (f64, f64),
}

impl Bound {
    /// Puts the terms together; `quantiles` and `left` are of the nearer and of the farther set.
    pub fn new(worst_case: WorstCase, delta: f64, eta: f64, quantiles: (f64, f64), left: (f64, f64)) -> Self {
        let largest_loss = worst_case.largest;
        Self {
            delta,
            eta,
            largest_loss,
            confidence: largest_loss * ((2.0 / delta).ln() / (2.0 * worst_case.images.max(1) as f64)).sqrt(),
            quantile: quantiles.0.max(quantiles.1),
            entropy_gap: -eta.ln() * worst_case.distance + worst_case.distance_squared / eta,
            left,
            worst_case,
        }
    }

    /// The sum of the terms of the right side that need neither divergence nor complexity.
    pub fn measured(&self) -> f64 {
        self.quantile + self.worst_case.per_image + self.confidence + self.entropy_gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_images_make_the_confidence_term_smaller_and_the_sum_holds_every_term() {
        let worst = |images: usize| WorstCase {
            radius: 0.5,
            images,
            centre: 0.1,
            shared: 0.2,
            per_image: 0.3,
            largest: 2.0,
            distance: 0.1,
            distance_squared: 0.02,
            contexts: 1,
            own_gradients: 0,
        };
        let bound = |images: usize| Bound::new(worst(images), 0.05, 0.01, (0.4, 0.6), (1.0, 2.0));
        let expected = 2.0 * (40f64.ln() / 200.0).sqrt();
        assert!((bound(100).confidence - expected).abs() < 1e-12);
        assert!((bound(400).confidence - expected / 2.0).abs() < 1e-12);
        let gap = 100f64.ln() * 0.1 + 2.0;
        assert!((bound(100).measured() - (0.6 + 0.3 + expected + gap)).abs() < 1e-12);
    }
}
