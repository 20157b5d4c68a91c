//! AVX2 and AVX-512.

use super::{DEPTH, STEP};
use crate::gemm::driver::{self, Job, Kernel, Tile};
use crate::gemm::panels::PANEL;
use crate::simd::{Avx2, Avx512};
use std::arch::x86_64::*;
use std::ops::Range;

/// 6 x 16: twelve sums, two vectors of the panel and a broadcast fill the sixteen registers.
pub(in crate::gemm) struct Avx2Kernel;

impl Kernel for Avx2Kernel {
    type Element = f32;
    type Lanes = Avx2;
    const ROWS: usize = 6;
    const PANELS: usize = 1;
    const DEPTH: usize = DEPTH;
    const BLOCK: usize = 240;

    #[inline(always)]
    fn start() -> Self {
        Self
    }
    #[inline(always)]
    fn convert(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn prefetch(to: *const f32) {
        // SAFETY: a hint, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.cast()) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, a: *const f32, b: [*const f32; 2], depth: usize, tile: &mut Tile) {
        // SAFETY: inside the lengths that the trait promises; the caller is compiled for AVX2 and FMA.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); 2]; Self::ROWS];
            let (mut a, mut b) = (a, b[0]);
            for _ in 0..depth / STEP {
                for i in 0..STEP {
                    let (b0, b1) = (_mm256_load_ps(b.add(i * PANEL)), _mm256_load_ps(b.add(i * PANEL + 8)));
                    for row in 0..Self::ROWS {
                        let x = _mm256_broadcast_ss(&*a.add(row * STEP + i));
                        sums[row][0] = _mm256_fmadd_ps(x, b0, sums[row][0]);
                        sums[row][1] = _mm256_fmadd_ps(x, b1, sums[row][1]);
                    }
                }
                a = a.add(Self::ROWS * STEP);
                b = b.add(STEP * PANEL);
            }
            for row in 0..Self::ROWS {
                _mm256_store_ps(tile.0.as_mut_ptr().add(row * PANEL), sums[row][0]);
                _mm256_store_ps(tile.0.as_mut_ptr().add(row * PANEL + 8), sums[row][1]);
            }
        }
    }
}

/// 12 x 32: twenty-four sums of the thirty-two registers.
pub(in crate::gemm) struct Avx512Kernel;

impl Kernel for Avx512Kernel {
    type Element = f32;
    type Lanes = Avx512;
    const ROWS: usize = 12;
    const PANELS: usize = 2;
    const DEPTH: usize = DEPTH;
    const BLOCK: usize = 480;

    #[inline(always)]
    fn start() -> Self {
        Self
    }
    #[inline(always)]
    fn convert(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn prefetch(to: *const f32) {
        // SAFETY: a hint, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.cast()) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, a: *const f32, b: [*const f32; 2], depth: usize, tile: &mut Tile) {
        // SAFETY: inside the lengths that the trait promises; the caller is compiled for AVX-512.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); 2]; Self::ROWS];
            let (mut a, mut b0, mut b1) = (a, b[0], b[1]);
            for _ in 0..depth / STEP {
                for i in 0..STEP {
                    let (c0, c1) = (_mm512_load_ps(b0.add(i * PANEL)), _mm512_load_ps(b1.add(i * PANEL)));
                    for row in 0..Self::ROWS {
                        let x = _mm512_set1_ps(*a.add(row * STEP + i));
                        sums[row][0] = _mm512_fmadd_ps(x, c0, sums[row][0]);
                        sums[row][1] = _mm512_fmadd_ps(x, c1, sums[row][1]);
                    }
                }
                a = a.add(Self::ROWS * STEP);
                b0 = b0.add(STEP * PANEL);
                b1 = b1.add(STEP * PANEL);
            }
            for row in 0..Self::ROWS {
                _mm512_store_ps(tile.0.as_mut_ptr().add(row * 2 * PANEL), sums[row][0]);
                _mm512_store_ps(tile.0.as_mut_ptr().add(row * 2 * PANEL + PANEL), sums[row][1]);
            }
        }
    }
}

/// Runs a job with a kernel written for AVX2.
///
/// # Safety
/// The machine has AVX2 and FMA.
pub(in crate::gemm) unsafe fn run_avx2<K: Kernel>(job: &Job<'_, K::Element>) {
    #[target_feature(enable = "avx2,fma")]
    fn block<K: Kernel>(job: &Job<'_, K::Element>, rows: Range<usize>, panels: Range<usize>) {
        // SAFETY: only called below.
        unsafe { driver::block::<K>(job, rows, panels) }
    }
    job.run((K::ROWS, K::PANELS), K::BLOCK, |job: &Job<'_, K::Element>, rows, panels| {
        // SAFETY: the caller promised the instructions, and `run` hands out disjoint blocks.
        unsafe { block::<K>(job, rows, panels) }
    });
}

/// Runs a job with a kernel written for AVX-512 (and, for tiles, AMX inside it).
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ and VL.
pub(in crate::gemm) unsafe fn run_avx512<K: Kernel>(job: &Job<'_, K::Element>) {
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    fn block<K: Kernel>(job: &Job<'_, K::Element>, rows: Range<usize>, panels: Range<usize>) {
        // SAFETY: only called below.
        unsafe { driver::block::<K>(job, rows, panels) }
    }
    job.run((K::ROWS, K::PANELS), K::BLOCK, |job: &Job<'_, K::Element>, rows, panels| {
        // SAFETY: the caller promised the instructions, and `run` hands out disjoint blocks.
        unsafe { block::<K>(job, rows, panels) }
    });
}
