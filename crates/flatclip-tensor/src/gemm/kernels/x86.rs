//! AVX2 and AVX-512.

use super::STEP;
use crate::gemm::driver::{self, Job, Kernel, Operands, Tile, convert_row};
use crate::gemm::panels::PANEL;
use crate::simd::{Avx2, Avx512, Lanes};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::marker::PhantomData;
use std::ops::Range;

/// `ROWS` rows times two vectors: what differs between AVX2 and AVX-512 is how many rows fill the registers, and whether two
/// vectors are one panel or two.
pub(in crate::gemm) struct TwoVectors<L, const ROWS: usize>(PhantomData<L>);

/// 6 x 16: twelve sums, two vectors of the panel and a broadcast fill the sixteen registers.
pub(in crate::gemm) type Avx2Kernel = TwoVectors<Avx2, 6>;

/// 12 x 32: twenty-four sums of the thirty-two registers.
pub(in crate::gemm) type Avx512Kernel = TwoVectors<Avx512, 12>;

impl<L: Lanes, const ROWS: usize> Kernel for TwoVectors<L, ROWS> {
    type Element = f32;
    type Lanes = L;
    const ROWS: usize = ROWS;
    const PANELS: usize = 2 * L::WIDTH / PANEL;
    const BLOCK: usize = 40 * ROWS;

    #[inline(always)]
    unsafe fn start() -> Self {
        Self(PhantomData)
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [f32], r: usize) {
        convert_row::<Self>(from, tile, r, |x| x);
    }
    #[inline(always)]
    fn prefetch(to: *const f32) {
        // SAFETY: a hint, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.cast()) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<f32>, tile: &mut Tile) {
        // SAFETY: inside the lengths that the trait promises; a started kernel has its instructions.
        unsafe {
            let mut sums = [[L::splat(0.0); 2]; ROWS];
            let (mut a, b) = (of.a, of.b);
            let [mut left, mut right] = if Self::PANELS == 1 { [b[0], b[0].add(L::WIDTH)] } else { b };
            for _ in 0..of.depth / STEP {
                for i in 0..STEP {
                    let columns = [L::load(left.add(i * PANEL)), L::load(right.add(i * PANEL))];
                    for row in 0..ROWS {
                        let x = L::splat(*a.add(row * STEP + i));
                        sums[row][0] = x.mul_add(columns[0], sums[row][0]);
                        sums[row][1] = x.mul_add(columns[1], sums[row][1]);
                    }
                }
                a = a.add(ROWS * STEP);
                left = left.add(STEP * PANEL);
                right = right.add(STEP * PANEL);
            }
            for row in 0..ROWS {
                let to = tile.0.as_mut_ptr().add(row * 2 * L::WIDTH);
                sums[row][0].store(to);
                sums[row][1].store(to.add(L::WIDTH));
            }
        }
    }
}

/// A function that runs a job with a kernel compiled for the named features.
macro_rules! runner {
    ($(#[$attribute:meta])* $name:ident, $features:literal) => {
        $(#[$attribute])*
        pub(in crate::gemm) unsafe fn $name<K: Kernel>(job: Job<'_, K::Element>) {
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
    };
}

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
