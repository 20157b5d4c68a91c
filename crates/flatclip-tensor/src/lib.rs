//! Kernels for frozen CLIP towers: matrix products with fused epilogues, attention, norms, softmax, and the gradient of
//! each with respect to its *input*. Weights are frozen, so no weight gradient exists and no autodiff is needed.
//!
//! This crate does not handle files, image formats or CLIP models. It is the only crate with `unsafe`, and each block states
//! why it is sound.

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
