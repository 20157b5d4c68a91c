//! logits = tau z tᵀ and their mean cross-entropy, with the gradients of both sides.

use flatclip::methods::probability::argmax;
use flatclip_tensor::gemm::product_nn;
use flatclip_tensor::{Matrix, ops};

/// Mean cross-entropy of some logits.
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// The mean over the batch.
    pub loss: f32,
    /// Rows whose label has the highest logit (the first, on a tie).
    pub correct: usize,
    /// Its gradient, `[B, K]`.
    pub d_logits: Matrix,
}

/// Mean cross-entropy of `[B, K]` logits. Labels must be below K.
pub fn cross_entropy(logits: &Matrix, labels: &[usize]) -> CrossEntropy {
    let count = labels.len().max(1);
    let mut d_logits = Matrix::zeros(logits.rows(), logits.cols());
    let (mut total, mut correct) = (0.0f64, 0);
    for (row, &label) in labels.iter().enumerate() {
        total += f64::from(ops::loss::cross_entropy_gradient(logits.row(row), label, d_logits.row_mut(row)));
        correct += usize::from(argmax(logits.row(row)) == label);
    }
    d_logits.data_mut().iter_mut().for_each(|d| *d /= count as f32);
    CrossEntropy { loss: (total / count as f64) as f32, correct, d_logits }
}

impl CrossEntropy {
    /// Gradient of the text features `[K, D]`.
    pub fn d_text(&self, images: &Matrix, scale: f32) -> Matrix {
        scaled_product(self.d_logits.transpose(), images, scale)
    }

    /// Gradient of the image features `[B, D]`.
    pub fn d_images(&self, text: &Matrix, scale: f32) -> Matrix {
        scaled_product(self.d_logits.clone(), text, scale)
    }
}

fn scaled_product(mut left: Matrix, right: &Matrix, scale: f32) -> Matrix {
    left.data_mut().iter_mut().for_each(|d| *d *= scale);
    let mut out = Matrix::zeros(left.rows(), right.cols());
    product_nn(left.data(), left.rows(), right.data(), right.cols(), left.cols(), out.data_mut());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::prompt::logits;

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let images = Matrix::from_vec(2, 3, vec![0.6, 0.8, 0.0, 0.0, -0.6, 0.8]);
        let text = Matrix::from_vec(2, 3, vec![1.0, 0.0, 0.0, 0.0, 0.28, 0.96]);
        let labels = [0, 1];
        let loss = |images: &Matrix, text: &Matrix| cross_entropy(&logits(images, text, 3.0), &labels).loss;
        let found = cross_entropy(&logits(&images, &text, 3.0), &labels);
        assert_eq!(found.correct, 2);
        let (d_text, d_images) = (found.d_text(&images, 3.0), found.d_images(&text, 3.0));
        let step = 1e-2;
        for at in 0..6 {
            let shifted = |matrix: &Matrix, by: f32| {
                let mut other = matrix.clone();
                other.data_mut()[at] += by;
                other
            };
            let numeric = (loss(&images, &shifted(&text, step)) - loss(&images, &shifted(&text, -step))) / (2.0 * step);
            assert!((numeric - d_text.data()[at]).abs() < 1e-3, "text {at}: {numeric} {}", d_text.data()[at]);
            let numeric = (loss(&shifted(&images, step), &text) - loss(&shifted(&images, -step), &text)) / (2.0 * step);
            assert!((numeric - d_images.data()[at]).abs() < 1e-3, "images {at}");
        }
    }
}
