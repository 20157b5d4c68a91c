//! NEON.

use super::runner;
use super::two_vectors::TwoVectors;
use crate::gemm::driver::{self, Job, Kernel};
use crate::simd::Neon;
use std::ops::Range;

/// 6 x 16, as on AVX2; a vector is two registers here, so twenty-four of the thirty-two hold sums.
pub(in crate::gemm) type NeonKernel = TwoVectors<Neon, 6>;

runner! {
    /// Runs a job with a kernel written for NEON.
    ///
    /// # Safety
    /// The machine has NEON, and `K` needs no more.
    run_neon, "neon"
}
