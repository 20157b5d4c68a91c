//! The `f32` kernels. All sum in the same order (by increasing k, fused if the machine has FMA), so AVX2, AVX-512 and NEON
//! give bitwise equal results.

use super::driver::{self, Job, Kernel, Operands, Tile, convert_row, copy_row};
use super::panels::{Element, PANEL, bf16_round};
use std::ops::Range;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod two_vectors;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use two_vectors::TwoVectors;

/// 6 x 16: twelve sums, two vectors of the panel and a broadcast fill the sixteen registers.
#[cfg(target_arch = "x86_64")]
pub(super) type Avx2Kernel<const ROUNDED: bool> = TwoVectors<crate::simd::Avx2, 6, ROUNDED>;

/// 12 x 32: twenty-four sums of the thirty-two registers.
#[cfg(target_arch = "x86_64")]
pub(super) type Avx512Kernel<const ROUNDED: bool> = TwoVectors<crate::simd::Avx512, 12, ROUNDED>;

/// 5 x 16: a vector is two registers, so twenty of the thirty-two hold sums and four a row of the panel. With six rows the
/// compiler spills registers to the stack.
#[cfg(target_arch = "aarch64")]
pub(super) type NeonKernel<const ROUNDED: bool> = TwoVectors<crate::simd::Neon, 5, ROUNDED>;

/// Contiguous k values of a packed row: they are copied as one vector, and kernels unroll over them.
const STEP: usize = <f32 as Element>::STEP;

/// Rows of a tile of the plain kernel.
const ROWS: usize = 2;

/// Portable Rust, which the compiler vectorises for the target. `ROUNDED` rounds inputs to bfloat16: the precision of tiles on
/// machines without them.
pub(super) struct PlainKernel<const ROUNDED: bool>;

impl<const ROUNDED: bool> Kernel for PlainKernel<ROUNDED> {
    type Element = f32;
    type Lanes = f32;
    const ROWS: usize = ROWS;
    const PANELS: usize = 1;
    const BLOCK: usize = 240;

    unsafe fn start() -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [f32], r: usize) {
        pack_floats::<Self, ROUNDED>(from, tile, r);
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<f32>, tile: &mut Tile) {
        // SAFETY: the length that the trait promises.
        let a = unsafe { std::slice::from_raw_parts(of.a, of.depth * Self::ROWS) };
        // SAFETY: as above.
        let b = unsafe { std::slice::from_raw_parts(of.b[0], of.depth * PANEL) };
        let mut sums = [[0.0f32; PANEL]; ROWS];
        for (a, b) in a.chunks_exact(Self::ROWS * STEP).zip(b.chunks_exact(STEP * PANEL)) {
            for (i, b) in b.chunks_exact(PANEL).enumerate() {
                for row in 0..Self::ROWS {
                    let x = a[row * STEP + i];
                    for column in 0..PANEL {
                        sums[row][column] += x * b[column];
                    }
                }
            }
        }
        tile.0[..Self::ROWS * PANEL].copy_from_slice(sums.as_flattened());
    }
}

/// [`Kernel::pack_row`] of `f32` kernels.
#[inline(always)]
fn pack_floats<K: Kernel<Element = f32>, const ROUNDED: bool>(from: &[f32], tile: &mut [f32], r: usize) {
    if ROUNDED { convert_row::<K>(from, tile, r, bf16_round) } else { copy_row::<K>(from, tile, r) }
}

/// A kernel for any machine.
///
/// # Safety
/// Neither the kernel nor its lanes use instructions that a machine could lack.
pub(super) unsafe trait Portable: Kernel {}
// SAFETY: plain Rust.
unsafe impl<const ROUNDED: bool> Portable for PlainKernel<ROUNDED> {}

/// Runs a job with a kernel for any machine.
pub(super) fn run_plain<K: Portable>(job: Job<'_, K::Element>) {
    job.run::<K>(|job: &Job<'_, K::Element>, rows: Range<usize>, panels: Range<usize>| {
        // SAFETY: a portable kernel, and `run` hands out disjoint blocks.
        unsafe { driver::block::<K>(job, rows, panels) }
    });
}

/// Functions that run a job with a kernel compiled for the named features, and what the machine must have for each.
macro_rules! runners {
    ($($target:literal $name:ident, $features:literal: $needs:literal;)*) => {$(
        /// Runs a job with a kernel written for these instructions.
        ///
        /// # Safety
        #[doc = concat!("The machine has ", $needs, ".")]
        #[cfg(target_arch = $target)]
        pub(super) unsafe fn $name<K: Kernel>(job: Job<'_, K::Element>) {
            #[target_feature(enable = $features)]
            unsafe fn block<K: Kernel>(job: &Job<'_, K::Element>, rows: Range<usize>, panels: Range<usize>) {
                // SAFETY: passed on unchanged; only called below.
                unsafe { driver::block::<K>(job, rows, panels) }
            }
            job.run::<K>(|job: &Job<'_, K::Element>, rows, panels| {
                // SAFETY: the caller promised the instructions, and `run` hands out disjoint blocks.
                unsafe { block::<K>(job, rows, panels) }
            });
        }
    )*};
}

runners! {
    "x86_64" run_avx2, "avx2,fma": "AVX2 and FMA, and `K` needs no more";
    "x86_64" run_avx_vnni, "avx2,fma,avxvnni": "AVX2, FMA and AVX-VNNI, and `K` needs no more";
    // For tiles, AMX is inside the kernel.
    "x86_64" run_avx512, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl":
        "AVX-512 F, BW, DQ and VL, and whatever else `K` needs";
    "x86_64" run_avx512_vnni, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni":
        "AVX-512 F, BW, DQ, VL and VNNI, and `K` needs no more";
    "aarch64" run_neon, "neon": "NEON, and `K` needs no more";
}
