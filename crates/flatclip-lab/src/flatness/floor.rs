//! The floor eta of the paper's theorem: it assumes that outputs and labels are at least eta in every class. Real outputs and
//! one-hot labels are not, so they are raised to it; what lies above pays in proportion, so that the sum stays 1 and the
//! smallest entry is eta exactly. Cross-entropy is then at most `ln(1/eta)`, the theorem's M.

use flatclip::methods::probability::{cross_entropy, entropy_of, softmax};
use flatclip::{Error, Result};

/// The smallest probability that is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    eta: f64,
}

/// What one image gives at one context, in nats.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowLoss {
    /// `H(y, f)`.
    pub(super) cross: f64,
    /// `H(f)`.
    pub(super) entropy: f64,
    /// `|y - f|_1`.
    pub(super) distance: f64,
    /// `H(y, f)` without the floor.
    pub(super) plain: f64,
}

impl Floor {
    /// Outputs and labels as they are.
    pub const NONE: Self = Self { eta: 0.0 };

    /// A floor for outputs over so many classes.
    pub fn new(eta: f64, classes: usize) -> Result<Self> {
        if eta > 0.0 && eta * (classes as f64) < 1.0 {
            return Ok(Self { eta });
        }
        let most = 1.0 / classes.max(1) as f64;
        let reason = format!("expected a floor above 0 and below 1/K = {most} for {classes} classes, found {eta}");
        Err(Error::config("eta", reason))
    }

    /// The floor itself.
    pub fn eta(self) -> f64 {
        self.eta
    }

    /// Raises a distribution to the floor.
    pub fn raise(self, p: &mut [f64]) {
        if self.eta == 0.0 {
            return;
        }
        let above: f64 = p.iter().map(|p| (p - self.eta).max(0.0)).sum();
        let scale = (1.0 - self.eta * p.len() as f64) / above.max(f64::MIN_POSITIVE);
        p.iter_mut().for_each(|p| *p = self.eta + (*p - self.eta).max(0.0) * scale);
    }

    /// A one-hot label, raised: the entry of its class and of every other class.
    pub(super) fn label(self, classes: usize) -> (f64, f64) {
        (1.0 - self.eta * classes.saturating_sub(1) as f64, self.eta)
    }

    /// Whether an output lies below.
    pub(super) fn is_above(self, p: &[f64]) -> bool {
        p.iter().any(|&p| p < self.eta)
    }

    /// Entropy of the raised output of a row of logits.
    pub fn entropy(self, row: &[f32]) -> f64 {
        let mut p = softmax(row);
        self.raise(&mut p);
        entropy_of(&p)
    }

    /// The losses of a row of logits with its label.
    pub(super) fn losses(self, row: &[f32], label: usize) -> RowLoss {
        let plain = f64::from(cross_entropy(row, label));
        let mut f = softmax(row);
        self.raise(&mut f);
        let (own, other) = self.label(f.len());
        let y = |k: usize| if k == label { own } else { other };
        let cross = match self.eta {
            0.0 => plain,
            _ => f.iter().enumerate().map(|(k, f)| -y(k) * f.ln()).sum(),
        };
        let distance = f.iter().enumerate().map(|(k, f)| (y(k) - f).abs()).sum();
        RowLoss { cross, entropy: entropy_of(&f), distance, plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_distribution_has_the_floor_exactly_and_sums_to_one() {
        let floor = Floor::new(0.01, 4).unwrap();
        let mut p = [0.985, 0.015, 0.0, 0.0];
        assert!(floor.is_above(&p));
        floor.raise(&mut p);
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{p:?}");
        assert!((p[2] - 0.01).abs() < 1e-15 && p[1] > 0.01 && p[0] < 0.985, "{p:?}");
        assert!(!floor.is_above(&p));
    }

    #[test]
    fn no_loss_exceeds_the_logarithm_of_the_floor() {
        let floor = Floor::new(1e-4, 3).unwrap();
        let wrong = floor.losses(&[60.0, 0.0, 0.0], 1);
        assert!(wrong.plain > 50.0 && wrong.cross <= -(1e-4f64.ln()) && wrong.cross > 9.0, "{wrong:?}");
        assert!(
            (Floor::NONE.losses(&[1.0, 2.0, 3.0], 1).cross - Floor::NONE.losses(&[1.0, 2.0, 3.0], 1).plain).abs()
                == 0.0
        );
    }

    #[test]
    fn a_floor_that_leaves_no_room_is_refused() {
        for (eta, classes) in [(0.0, 3), (0.5, 2), (1e-4, 20_000), (f64::NAN, 2)] {
            assert!(Floor::new(eta, classes).unwrap_err().to_string().starts_with("eta: "), "{eta} {classes}");
        }
    }
}
