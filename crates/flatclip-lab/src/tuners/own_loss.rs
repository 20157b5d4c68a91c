//! A loss of the caller's own in the place of the cross-entropy.

use super::cross_entropy::CrossEntropy;
use flatclip::methods::probability::argmax;
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A loss of logits `[B, K]` and labels, with its gradient.
pub trait OwnLoss: Send + Sync + std::fmt::Debug {
    /// The loss and its gradient by the logits, of their shape.
    fn loss(&self, logits: &Matrix, labels: &[usize]) -> Result<(f64, Matrix)>;

    /// Names it and its code: a run of an edited loss is not resumed.
    fn identity(&self) -> String;
}

/// The loss, and whether its gradient was compared with finite differences.
#[derive(Clone, Debug)]
pub(super) struct CheckedLoss {
    loss: Arc<dyn OwnLoss>,
    checked: Arc<AtomicBool>,
}

/// Steps of the finite differences: a loss with a corner is right at one of them.
const STEPS: [f64; 3] = [0.05, 0.01, 0.2];
/// How far the gradient may be from the difference, of the larger one of the two.
const TOLERANCE: f64 = 0.05;
/// Differences below this are rounding.
const NOISE: f64 = 2e-4;

impl CheckedLoss {
    pub(super) fn new(loss: Arc<dyn OwnLoss>) -> Self {
        Self { loss, checked: Arc::default() }
    }

    /// The loss of a batch; at the first one its gradient is checked.
    pub(super) fn of(&self, logits: &Matrix, labels: &[usize]) -> Result<CrossEntropy> {
        let (value, d_logits) = self.loss.loss(logits, labels)?;
        if !self.checked.load(Ordering::Relaxed) {
            self.check(logits, labels, &d_logits)?;
            self.checked.store(true, Ordering::Relaxed);
        }
        let correct = labels.iter().enumerate().filter(|&(row, &label)| argmax(logits.row(row)) == label).count();
        Ok(CrossEntropy { loss: value as f32, correct, d_logits })
    }

    /// Central differences along the gradient and two random directions.
    fn check(&self, logits: &Matrix, labels: &[usize], gradient: &Matrix) -> Result<()> {
        let mut stream = Stream::new(0, &["own loss"]);
        let mut random = || (0..logits.data().len()).map(|_| stream.normal()).collect::<Vec<f64>>();
        let along: Vec<f64> = gradient.data().iter().map(|&value| f64::from(value)).collect();
        for direction in [along, random(), random()] {
            let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
            if length == 0.0 {
                continue;
            }
            let unit: Vec<f64> = direction.iter().map(|x| x / length).collect();
            let expected: f64 = unit.iter().zip(gradient.data()).map(|(u, &g)| u * f64::from(g)).sum();
            let mut found = Vec::new();
            for step in STEPS {
                let moved = |by: f64| -> Result<f64> {
                    let mut moved = logits.clone();
                    moved.data_mut().iter_mut().zip(&unit).for_each(|(x, u)| *x = (f64::from(*x) + by * u) as f32);
                    Ok(self.loss.loss(&moved, labels)?.0)
                };
                found.push((moved(step)? - moved(-step)?) / (2.0 * step));
            }
            let fits =
                |numeric: &f64| (numeric - expected).abs() <= NOISE + TOLERANCE * numeric.abs().max(expected.abs());
            if !found.iter().any(fits) {
                let reason = format!(
                    "its gradient is not that of its value: along a direction of unit length the gradient says {expected:.5}, \
                     finite differences {:.5}; is it the gradient of a sum where the value is a mean?",
                    found[0]
                );
                return Err(Error::MethodFailed { method: self.loss.identity(), reason });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cross_entropy::cross_entropy;
    use super::*;

    /// The cross-entropy with a gradient that is too long.
    #[derive(Debug)]
    struct Scaled(f32);

    impl OwnLoss for Scaled {
        fn loss(&self, logits: &Matrix, labels: &[usize]) -> Result<(f64, Matrix)> {
            let mut found = cross_entropy(logits, labels);
            found.d_logits.data_mut().iter_mut().for_each(|d| *d *= self.0);
            Ok((f64::from(found.loss), found.d_logits))
        }

        fn identity(&self) -> String {
            "scaled".to_owned()
        }
    }

    #[test]
    fn a_right_gradient_passes_once_and_a_wrong_one_is_refused() {
        let logits = Matrix::from_vec(3, 4, vec![9.0, 8.5, -3.0, 2.0, 0.1, 0.2, 0.3, 0.1, 30.0, 10.0, 29.0, 4.0]);
        let labels = [1, 2, 0];
        let right = CheckedLoss::new(Arc::new(Scaled(1.0)));
        let (found, plain) = (right.of(&logits, &labels).unwrap(), cross_entropy(&logits, &labels));
        assert_eq!((found.loss, found.correct, found.d_logits), (plain.loss, plain.correct, plain.d_logits));
        assert!(right.checked.load(Ordering::Relaxed));
        for factor in [3.0, 0.8, -1.0, 0.0] {
            let error = CheckedLoss::new(Arc::new(Scaled(factor))).of(&logits, &labels).unwrap_err();
            assert!(error.code() == "method.failed" && error.to_string().contains("finite differences"), "{error}");
        }
    }
}
