//! Kernels for frozen CLIP towers: matrix products with fused epilogues, attention, norms, softmax, and the gradient of
//! each with respect to its *input*. Weights are frozen, so no weight gradient exists and no autodiff is needed.
//!
//! No files, no images, no CLIP: only numbers. This is the one crate with `unsafe`, and each block says why it is sound.

pub mod gemm;
pub mod matrix;
pub mod ops;

pub use gemm::{Activation, Linear};
pub use matrix::Matrix;
