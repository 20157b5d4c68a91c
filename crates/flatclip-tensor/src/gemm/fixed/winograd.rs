//! Winograd's inner product (1968) for AVX2: half of the multiplications become 16-bit additions.
//!
//! ```text
//! (a1 + b2) (a2 + b1) = a1 b1 + a2 b2 + a1 a2 + b1 b2
//! ```
//!
//! The last two terms depend only on the row and only on the column: they are summed while packing and subtracted at the
//! end. All sums are modulo 2^32; the result is exact because it fits into 32 bits. Per 32 products this takes two `vpaddw`, one
//! `vpmaddwd` and one `vpaddd`, where plain pairs take two `vpmaddwd` and two `vpaddd`: as many instructions, but only one
//! of them needs a multiplier, and multipliers are the bottleneck.
//!
//! The loop is in assembly, because the compiler's code from intrinsics spills registers, which cancels the gain.

use super::x86::pack_row;
use super::{ROW_TOP, Row, STEP, WEIGHT_TOP};
use crate::gemm::driver::{Kernel, Operands, Tile};
use crate::gemm::panels::PANEL;
use crate::simd::{Avx2, Lanes};
use std::arch::asm;
use std::arch::x86_64::*;

// Sums of a row's and a column's value must fit 16 bits.
const _: () = assert!(ROW_TOP + WEIGHT_TOP <= i16::MAX as i32);

/// 4 x 16: eight sums, four vectors of the panel, four for the current row.
pub(super) struct Winograd(());

const ROWS: usize = 4;

impl Kernel for Winograd {
    type Element = i16;
    type Lanes = Avx2;
    const ROWS: usize = ROWS;
    const PANELS: usize = 1;
    const BLOCK: usize = 192;
    const BLOCK_PANELS: usize = 64;

    #[inline(always)]
    unsafe fn start() -> Self {
        Self(())
    }
    #[inline(always)]
    fn prefetch(to: *const f32) {
        // SAFETY: a hint, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.cast()) }
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [i16], r: usize) -> Row {
        // SAFETY: promised by the caller.
        unsafe { pack_row::<ROWS>(from, tile, r) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<i16>, tile: &mut Tile) {
        // SAFETY: the lengths that the trait promises; a started kernel has its instructions.
        unsafe {
            let sums = sums(of.a, of.b[0], of.depth);
            let columns = &*of.columns[0];
            for half in 0..2 {
                let scales = Avx2::load(columns.scales[8 * half..].as_ptr());
                let crosses = _mm256_loadu_si256(columns.crosses[8 * half..].as_ptr().cast());
                for r in 0..ROWS {
                    let row = *of.rows.add(r);
                    let sum = _mm256_sub_epi32(sums[2 * r + half], _mm256_set1_epi32(row.cross));
                    let sum = Avx2::of(_mm256_cvtepi32_ps(_mm256_sub_epi32(sum, crosses)));
                    let to = tile.0.as_mut_ptr().add(r * PANEL + 8 * half);
                    sum.mul(scales.like(row.scale).mul(scales)).store(to);
                }
            }
        }
    }
}

/// Four k of a row, at `$a`: adds to the sums `$left` and `$right`.
macro_rules! row {
    ($a:literal, $left:literal, $right:literal) => {
        concat!(
            "vpbroadcastd ymm12, dword ptr [{a} + ",
            $a,
            "]\n",
            "vpbroadcastd ymm13, dword ptr [{a} + ",
            $a,
            " + 4]\n",
            "vpaddw ymm14, ymm12, ymm10\n",
            "vpaddw ymm15, ymm13, ymm8\n",
            "vpaddw ymm12, ymm12, ymm11\n",
            "vpaddw ymm13, ymm13, ymm9\n",
            "vpmaddwd ymm14, ymm14, ymm15\n",
            "vpmaddwd ymm12, ymm12, ymm13\n",
            "vpaddd ",
            $left,
            ", ",
            $left,
            ", ymm14\n",
            "vpaddd ",
            $right,
            ", ",
            $right,
            ", ymm12\n",
        )
    };
}

/// Four k of all rows, whose values are at `$a..` and those of the panel at `$b`.
macro_rules! quad {
    ($b:literal, $a0:literal, $a1:literal, $a2:literal, $a3:literal) => {
        concat!(
            "vmovdqa ymm8, [{b} + ",
            $b,
            "]\n",
            "vmovdqa ymm9, [{b} + ",
            $b,
            " + 32]\n",
            "vmovdqa ymm10, [{b} + ",
            $b,
            " + 64]\n",
            "vmovdqa ymm11, [{b} + ",
            $b,
            " + 96]\n",
            row!($a0, "ymm0", "ymm1"),
            row!($a1, "ymm2", "ymm3"),
            row!($a2, "ymm4", "ymm5"),
            row!($a3, "ymm6", "ymm7"),
        )
    };
}

/// Sums of `(a1 + b2) (a2 + b1)`, two vectors per row.
///
/// # Safety
/// The machine has AVX2; `a` holds `[depth / STEP][ROWS][STEP]` values and `b` `16 depth`, on a cache line; `depth` is a
/// multiple of `STEP` and not 0.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn sums(a: *const i16, b: *const i16, depth: usize) -> [__m256i; 2 * ROWS] {
    let mut s = [_mm256_setzero_si256(); 2 * ROWS];
    let [s0, s1, s2, s3, s4, s5, s6, s7] = &mut s;
    // SAFETY: reads what the caller promises, a step of 16 k in each turn.
    unsafe {
        asm!(
            ".p2align 5",
            "2:",
            quad!("0", "0", "32", "64", "96"),
            quad!("128", "8", "40", "72", "104"),
            quad!("256", "16", "48", "80", "112"),
            quad!("384", "24", "56", "88", "120"),
            "add {a}, 128",
            "add {b}, 512",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) depth / STEP => _,
            inout("ymm0") *s0,
            inout("ymm1") *s1,
            inout("ymm2") *s2,
            inout("ymm3") *s3,
            inout("ymm4") *s4,
            inout("ymm5") *s5,
            inout("ymm6") *s6,
            inout("ymm7") *s7,
            out("ymm8") _,
            out("ymm9") _,
            out("ymm10") _,
            out("ymm11") _,
            out("ymm12") _,
            out("ymm13") _,
            out("ymm14") _,
            out("ymm15") _,
            options(nostack, readonly),
        );
    }
    s
}
