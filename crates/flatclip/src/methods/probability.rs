//! Softmax, entropies, and the losses on logits with their gradients.

use flatclip_tensor::Matrix;
use flatclip_tensor::ops::{loss, normalise, normalise_backward, wide};

pub use crate::prompt::logits;
pub use crate::prompt::scaled;
pub use flatclip_tensor::ops::wide::dot;

/// Index of the largest value, the first of equals.
pub fn argmax<T: PartialOrd>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

/// Softmax of one row, in f64.
pub fn softmax(row: &[f32]) -> Vec<f64> {
    softmax_f64(to_f64(row))
}

/// The same of values in f64.
pub(crate) fn softmax_f64(mut row: Vec<f64>) -> Vec<f64> {
    let width = row.len();
    loss::softmax(&mut row, width);
    row
}

/// The values in f64.
pub(crate) fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// The values rounded to f32.
pub(crate) fn to_f32(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

/// The same, rounded to what answers carry.
pub fn softmax_f32(row: &[f32]) -> Vec<f32> {
    to_f32(&softmax(row))
}

/// `sigmoid(z + bias)` of scaled cosines: how a model with a logit bias scores each pair of image and text by itself. The
/// scores of an image do not add to 1.
pub fn sigmoid_scores(scaled: &[f32], bias: f32) -> Vec<f32> {
    scaled.iter().map(|&z| (1.0 / (1.0 + (-f64::from(z) - f64::from(bias)).exp())) as f32).collect()
}

/// Entropy in nats of the softmax of one row of logits; 0 of an empty row.
pub fn entropy(row: &[f32]) -> f32 {
    wide::entropies(row, row.len()).first().copied().unwrap_or(0.0)
}

/// Cross-entropy in nats of the softmax of one row of logits with a label: `-ln softmax(z)[label]`.
pub fn cross_entropy(row: &[f32], label: usize) -> f32 {
    let mut log_p = to_f64(row);
    loss::log_softmax(&mut log_p, row.len());
    -log_p[label] as f32
}

/// Entropy of every row.
pub fn entropies(logits: &Matrix) -> Vec<f32> {
    wide::entropies(logits.data(), logits.cols())
}

/// Entropy in nats of a distribution.
pub fn entropy_of(p: &[f64]) -> f64 {
    -p.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>()
}

/// Mean of the listed rows.
pub fn mean_row(rows: &Matrix, indices: &[usize]) -> Vec<f32> {
    let mut sum = vec![0.0f64; rows.cols()];
    for &index in indices {
        sum.iter_mut().zip(rows.row(index)).for_each(|(s, &x)| *s += f64::from(x));
    }
    sum.into_iter().map(|s| (s / indices.len() as f64) as f32).collect()
}

/// Mean softmax of the listed rows.
pub fn mean_probability(logits: &Matrix, indices: &[usize]) -> Vec<f64> {
    let mut mean = vec![0.0f64; logits.cols()];
    for &index in indices {
        mean.iter_mut().zip(softmax(logits.row(index))).for_each(|(m, p)| *m += p);
    }
    mean.iter_mut().for_each(|m| *m /= indices.len() as f64);
    mean
}

/// A loss on logits and its gradient with respect to them.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The loss.
    pub value: f32,
    /// Its gradient, of the shape of the logits.
    pub gradient: Matrix,
}

/// TPT's loss, the entropy of the mean distribution: `P = mean_n softmax(z_n)`, `L = -sum_k P_k ln P_k`. In f64: one AdamW step
/// follows the signs of what comes of it.
pub fn marginal_entropy(logits: &Matrix) -> Loss {
    let mut gradient = vec![0.0; logits.data().len()];
    let value = loss::marginal_entropy_gradient(&to_f64(logits.data()), logits.cols(), &mut gradient);
    Loss { value: value as f32, gradient: Matrix::from_vec(logits.rows(), logits.cols(), to_f32(&gradient)) }
}

/// The mean of the rows' entropies: `L = mean_n H(softmax(z_n))`.
pub fn mean_entropy(logits: &Matrix) -> Loss {
    let count = logits.rows() as f64;
    let (mut value, mut gradient) = (0.0, Vec::with_capacity(logits.data().len()));
    for row in logits.iter_rows() {
        let mut slope = vec![0.0; row.len()];
        value += loss::entropy_gradient(&to_f64(row), &mut slope) / count;
        gradient.extend(slope.iter().map(|g| (g / count) as f32));
    }
    Loss { value: value as f32, gradient: Matrix::from_vec(logits.rows(), logits.cols(), gradient) }
}

/// Divides every row by its L2 norm; returns the norms. A row of zeros stays zero.
pub fn normalise_rows(rows: &mut Matrix) -> Vec<f32> {
    let width = rows.cols();
    normalise(rows.data_mut(), width)
}

/// The gradient through [`normalise_rows`], in place.
pub fn normalise_rows_gradient(unit: &Matrix, norms: &[f32], gradient: &mut Matrix) {
    let at_unit = gradient.data().to_vec();
    normalise_backward(unit.data(), norms, &at_unit, gradient.data_mut());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::{assert_close, assert_gradient};
    use crate::rng::Stream;

    fn noise(rows: usize, cols: usize, scale: f64) -> Matrix {
        let mut stream = Stream::new(5, &["probability"]);
        Matrix::from_vec(rows, cols, (0..rows * cols).map(|_| (stream.normal() * scale) as f32).collect())
    }

    #[test]
    fn loss_gradients_match_differences() {
        let at = noise(3, 5, 2.0);
        for loss in [marginal_entropy, mean_entropy] {
            assert_gradient(&at, loss(&at).gradient.data(), 1e-2, 2e-4, |z| f64::from(loss(z).value));
        }
    }

    #[test]
    fn entropy_of_logits_equals_entropy_of_their_softmax_and_is_bounded() {
        let z = noise(4, 7, 30.0);
        for row in z.iter_rows() {
            assert!((f64::from(entropy(row)) - entropy_of(&softmax(row))).abs() < 1e-6);
        }
        assert!((entropy(&[3.0; 8]) - 8f32.ln()).abs() < 1e-6);
        assert_eq!(entropy(&[1e4, 0.0, -1e4]), 0.0);
        assert!((cross_entropy(&[0.0, 0.0], 1) - 2f32.ln()).abs() < 1e-6);
        assert_eq!(cross_entropy(&[1e3, -1e3], 1), 2e3);
    }

    #[test]
    fn one_row_makes_both_losses_the_same() {
        let z = noise(1, 6, 3.0);
        let (marginal, mean) = (marginal_entropy(&z), mean_entropy(&z));
        assert!((marginal.value - mean.value).abs() < 1e-6);
        assert_close(marginal.gradient.data(), mean.gradient.data(), 1e-6);
    }
}
