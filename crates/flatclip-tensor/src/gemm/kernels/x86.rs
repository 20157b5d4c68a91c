//! AVX2 and AVX-512.

use super::runner;
use super::two_vectors::TwoVectors;
use crate::gemm::driver::{self, Job, Kernel};
use crate::simd::{Avx2, Avx512};
use std::ops::Range;

/// 6 x 16: twelve sums, two vectors of the panel and a broadcast fill the sixteen registers.
pub(in crate::gemm) type Avx2Kernel<const ROUNDED: bool> = TwoVectors<Avx2, 6, ROUNDED>;

/// 12 x 32: twenty-four sums of the thirty-two registers.
pub(in crate::gemm) type Avx512Kernel<const ROUNDED: bool> = TwoVectors<Avx512, 12, ROUNDED>;

runner! {
    /// Runs a job with a kernel written for AVX2.
    ///
    /// # Safety
    /// The machine has AVX2 and FMA, and `K` needs no more.
    run_avx2, "avx2,fma"
}
runner! {
    /// Runs a job with a kernel written for AVX-VNNI.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and AVX-VNNI, and `K` needs no more.
    run_avx_vnni, "avx2,fma,avxvnni"
}
runner! {
    /// Runs a job with a kernel written for AVX-512 (and, for tiles, AMX inside it).
    ///
    /// # Safety
    /// The machine has AVX-512 F, BW, DQ and VL, and whatever else `K` needs.
    run_avx512, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"
}
runner! {
    /// Runs a job with a kernel written for AVX512-VNNI.
    ///
    /// # Safety
    /// The machine has AVX-512 F, BW, DQ, VL and VNNI, and `K` needs no more.
    run_avx512_vnni, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
}
