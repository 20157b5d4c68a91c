//! Updaters: how a loss on logits moves what made the text features.

use flatclip_tensor::Matrix;
use flatclip_tensor::gemm::product_nn;

/// The gradient with respect to text features `[K, D]` of a loss whose gradient on `logits = scale * F Tᵀ` is known.
pub fn text_gradient(features: &Matrix, logit_gradient: &Matrix, scale: f32) -> Matrix {
    let transposed = logit_gradient.transpose();
    let mut out = Matrix::zeros(transposed.rows(), features.cols());
    product_nn(transposed.data(), transposed.rows(), features.data(), features.cols(), features.rows(), out.data_mut());
    out.data_mut().iter_mut().for_each(|g| *g *= scale);
    out
}
