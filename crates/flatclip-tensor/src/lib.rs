//! Kernels for frozen CLIP towers: matrix products with fused epilogues, attention, norms, softmax, and the gradient of
//! each with respect to its *input*. Weights are frozen, so no weight gradient exists and no autodiff is needed.
//!
//! No files, no images, no CLIP: only numbers. This is the one crate with `unsafe`, and each block says why it is sound.

pub mod gemm;
pub mod isa;
mod math;
pub mod matrix;
pub mod ops;
pub mod pages;
pub mod pixels;
mod simd;
pub mod threads;

pub use gemm::{Activation, Linear, Precision};
pub use isa::Isa;
pub use matrix::Matrix;
