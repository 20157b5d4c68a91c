//! NEON.

use super::runner;
use super::two_vectors::TwoVectors;
use crate::gemm::driver::{self, Job, Kernel};
use crate::simd::Neon;
use std::ops::Range;

/// 5 x 16: a vector is two registers, so twenty of the thirty-two hold sums and four a row of the panel. With six rows the
/// compiler spills registers to the stack.
pub(in crate::gemm) type NeonKernel<const ROUNDED: bool> = TwoVectors<Neon, 5, ROUNDED>;

runner! {
    /// Runs a job with a kernel written for NEON.
    ///
    /// # Safety
    /// The machine has NEON, and `K` needs no more.
    run_neon, "neon"
}
