//! Packing with AVX2, and kernels for VNNI (`vpdpbusd`) and, slower than 16 bits, for AVX2.

use super::{Columns, Inputs, Row, STEP, TOP, pack_outliers, row_scale};
use crate::gemm::driver::{Job, Kernel, Operands, Tile};
use crate::gemm::fixed::x86::{Add, Pairs, Vnni, Vnni512, halves, largest, sums};
use crate::gemm::kernels::{run_avx_vnni, run_avx2, run_avx512_vnni};
use crate::gemm::panels::PANEL;
use crate::simd::Lanes;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// `ROWS` rows times two vectors of sums.
pub(super) struct TwoVectors<P, const ROWS: usize>(PhantomData<P>);

impl<P: Pairs, const ROWS: usize> Kernel for TwoVectors<P, ROWS> {
    type Element = i8;
    type Lanes = P::Lanes;
    const ROWS: usize = ROWS;
    const PANELS: usize = 2 * P::Lanes::WIDTH / PANEL;
    const BLOCK: usize = 32 * ROWS;
    /// With one pass the result is written once: only packing the rows again limits a block.
    const BLOCK_PANELS: usize = 256;

    #[inline(always)]
    unsafe fn start() -> Self {
        Self(PhantomData)
    }
    #[inline(always)]
    fn prefetch(to: *const f32) {
        // SAFETY: a hint, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.cast()) }
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], inputs: &Inputs, tile: &mut [i8], r: usize) -> Row {
        // SAFETY: every kernel here has AVX2.
        let scale = unsafe { pack_bytes::<ROWS>(from, &inputs.mask, tile, r) };
        Row { scale, outlier_scale: pack_outliers::<ROWS>(from, inputs, tile, r) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<i8>, tile: &mut Tile) {
        let width = P::Lanes::WIDTH;
        // SAFETY: inside the lengths that the trait promises; a started kernel has its instructions.
        unsafe {
            let columns = if Self::PANELS == 1 { [of.columns[0]; 2] } else { of.columns };
            let outlier_depth = (*of.columns[0]).outlier_depth;
            let bytes = of.depth - outlier_depth;
            let (a, b) = (of.a.cast::<u8>(), halves::<P, i8>(of.b));
            let start = [start::<P>(columns[0], 0), start::<P>(columns[1], 1)];
            let usual = sums::<P, ROWS, true>(a, b, bytes / STEP, start);
            for half in 0..2 {
                let scales = lanes::<P>(&(*columns[half]).scales, half);
                for row in 0..ROWS {
                    let factor = scales.like((*of.rows.add(row)).scale).mul(scales);
                    let to = tile.0.as_mut_ptr().add(row * 2 * width + half * width);
                    P::floats(usual[row][half]).mul(factor).store(to);
                }
            }
            if outlier_depth == 0 {
                return;
            }
            let (a, b) = (a.add(ROWS * bytes), b.map(|b| b.add(PANEL * bytes)));
            let outliers = sums::<P, ROWS, false>(a, b, outlier_depth / STEP, [P::zero(); 2]);
            for half in 0..2 {
                let scales = lanes::<P>(&(*columns[half]).outlier_scales, half);
                for row in 0..ROWS {
                    let factor = scales.like((*of.rows.add(row)).outlier_scale).mul(scales);
                    let to = tile.0.as_mut_ptr().add(row * 2 * width + half * width);
                    P::Lanes::load(to).add(P::floats(outliers[row][half]).mul(factor)).store(to);
                }
            }
        }
    }
}

/// What belongs to the columns of the first or second vector of a tile.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn lanes<P: Pairs>(of: &[f32; PANEL], half: usize) -> P::Lanes {
    // SAFETY: whole vectors of a panel; the instructions are promised by the caller.
    unsafe { P::Lanes::load(of.as_ptr().add(half * P::Lanes::WIDTH % PANEL)) }
}

/// What the sums of the first or second vector of a tile begin with.
///
/// # Safety
/// `columns` can be read, and the machine has the instructions.
#[inline(always)]
unsafe fn start<P: Pairs>(columns: *const Columns, half: usize) -> P::Vector {
    // SAFETY: as above.
    unsafe { P::load((&raw const (*columns).starts).cast::<i32>().add(half * P::Lanes::WIDTH % PANEL).cast()) }
}

/// Packs a row's bytes; gives their scale.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn pack_bytes<const ROWS: usize>(from: &[f32], mask: &[u32], tile: &mut [i8], r: usize) -> f32 {
    let chunks = from.chunks_exact(STEP);
    let mut end = [0.0; STEP];
    end[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let whole = from.len() - chunks.remainder().len();
    let edge = chunks.remainder().iter().zip(&mask[whole.min(mask.len())..]).map(|(x, mask)| x.to_bits() & mask);
    let edge = edge.max().unwrap_or(0);
    // SAFETY: whole vectors of 8 values; AVX2 is promised by the caller.
    unsafe {
        let mut tops = [_mm256_setzero_si256(); 2];
        for (values, mask) in from[..whole].chunks_exact(16).zip(mask.chunks_exact(16)) {
            for half in 0..2 {
                let mask = _mm256_loadu_si256(mask[8 * half..].as_ptr().cast());
                let bits = _mm256_and_si256(_mm256_loadu_si256(values[8 * half..].as_ptr().cast()), mask);
                tops[half] = _mm256_max_epi32(tops[half], bits);
            }
        }
        let (scale, inverse) = row_scale(largest(_mm256_max_epi32(tops[0], tops[1])).max(edge), TOP);
        let inverse = _mm256_set1_ps(inverse);
        let mut groups = tile.chunks_exact_mut(ROWS * STEP);
        for (chunk, group) in chunks.zip(groups.by_ref()) {
            to_bytes(chunk, inverse, &mut group[r * STEP..(r + 1) * STEP]);
        }
        if whole < from.len()
            && let Some(group) = groups.next()
        {
            to_bytes(&end, inverse, &mut group[r * STEP..(r + 1) * STEP]);
        }
        scale
    }
}

/// 32 values times `inverse`, to the nearest whole numbers, plus 128.
///
/// # Safety
/// The machine has AVX2; both slices have 32 values.
#[inline(always)]
unsafe fn to_bytes(from: &[f32], inverse: __m256, to: &mut [i8]) {
    debug_assert!(from.len() == STEP && to.len() == STEP);
    // SAFETY: promised by the caller.
    unsafe {
        let mut whole = [_mm256_setzero_si256(); 4];
        for (at, whole) in whole.iter_mut().enumerate() {
            *whole = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from.as_ptr().add(8 * at)), inverse));
        }
        let [a, b, c, d] = whole;
        let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // The packs work within 128-bit halves; the permutation puts the fours in order.
        let packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_xor_si256(packed, _mm256_set1_epi8(i8::MIN)));
    }
}

/// Runs a job on the best kernel of this machine; vectors of 512 bits are used if `wide`.
///
/// # Safety
/// The machine has AVX2 and FMA, and, if `wide`, AVX-512.
pub(super) unsafe fn run(job: Job<'_, i8>, wide: bool) {
    // SAFETY: promised by the caller; VNNI is detected by the checks.
    unsafe {
        if wide && is_x86_feature_detected!("avx512vnni") {
            run_avx512_vnni::<TwoVectors<Vnni512, 12>>(job);
        } else if is_x86_feature_detected!("avxvnni") {
            run_avx_vnni::<TwoVectors<Vnni, 6>>(job);
        } else {
            run_avx2::<TwoVectors<Add, 6>>(job);
        }
    }
}
