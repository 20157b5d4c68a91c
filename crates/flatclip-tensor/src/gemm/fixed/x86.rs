//! Packing with AVX2, and kernels for CPUs that multiply and add pairs in one instruction (`vpdpwssd`: AVX-VNNI,
//! AVX512-VNNI). The integers are the same in every kernel.

use super::winograd::Winograd;
use super::{Row, STEP, row_scale};
use crate::gemm::PRODUCT;
use crate::gemm::driver::{Job, Kernel, Operands, Tile};
use crate::gemm::kernels::{run_avx_vnni, run_avx2, run_avx512_vnni};
use crate::gemm::panels::{PANEL, Panels};
use crate::simd::{Avx2, Avx512, Lanes};
use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Vectors of pairs of `i16`, and of the 32-bit sums of their products.
///
/// # Safety
/// Every method: the machine has the instructions.
pub(super) trait Pairs {
    /// A vector of pairs, or of sums.
    type Vector: Copy;
    /// The sums as floats.
    type Lanes: Lanes;
    unsafe fn zero() -> Self::Vector;
    /// A vector at `from`.
    unsafe fn load(from: *const i16) -> Self::Vector;
    /// The pair at `from` in every place.
    unsafe fn splat(from: *const i16) -> Self::Vector;
    /// `sums + a · b`, pair by pair.
    unsafe fn dot(sums: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The sums, rounded to floats.
    unsafe fn floats(sums: Self::Vector) -> Self::Lanes;
}

/// `vpmaddwd` and `vpaddd` instead of `vpdpwssd`, for tests on machines without it.
#[cfg(test)]
pub(super) struct Add;
/// AVX-VNNI.
pub(super) struct Vnni;
/// AVX512-VNNI on vectors of 512 bits.
pub(super) struct Vnni512;

/// The instructions differ, the shape does not.
macro_rules! pairs {
    ($name:ident: $vector:ident, $lanes:ident, $zero:ident, $load:ident, $splat:ident, $floats:ident,
        |$sums:ident, $a:ident, $b:ident| $dot:expr) => {
        impl Pairs for $name {
            type Vector = $vector;
            type Lanes = $lanes;
            #[inline(always)]
            unsafe fn zero() -> $vector {
                // SAFETY: promised by the caller.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn load(from: *const i16) -> $vector {
                // SAFETY: promised by the caller.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn splat(from: *const i16) -> $vector {
                // SAFETY: promised by the caller.
                unsafe { $splat(from.cast::<i32>().read_unaligned()) }
            }
            #[inline(always)]
            unsafe fn dot($sums: $vector, $a: $vector, $b: $vector) -> $vector {
                // SAFETY: promised by the caller.
                unsafe { $dot }
            }
            #[inline(always)]
            unsafe fn floats(sums: $vector) -> $lanes {
                // SAFETY: promised by the caller.
                unsafe { $lanes::of($floats(sums)) }
            }
        }
    };
}
#[cfg(test)]
pairs!(Add: __m256i, Avx2, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_cvtepi32_ps,
    |sums, a, b| _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)));
pairs!(Vnni: __m256i, Avx2, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_cvtepi32_ps,
    |sums, a, b| dot_vnni(sums, a, b));
pairs!(Vnni512: __m512i, Avx512, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_cvtepi32_ps,
    |sums, a, b| dot_vnni_512(sums, a, b));

/// In assembly, because the compiler turns a chain of the intrinsic into `vpmaddwd` and `vpaddd`.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn dot_vnni(mut sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the function's features include the instruction, which touches nothing but its operands.
    unsafe {
        asm!("{{vex}} vpdpwssd {sums}, {a}, {b}", sums = inout(ymm_reg) sums, a = in(ymm_reg) a, b = in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// As [`dot_vnni`], on 512 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_vnni_512(mut sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: as in `dot_vnni`.
    unsafe {
        asm!("vpdpwssd {sums}, {a}, {b}", sums = inout(zmm_reg) sums, a = in(zmm_reg) a, b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// `ROWS` rows times two vectors of sums, as the `f32` kernels are.
pub(super) struct TwoVectors<P, const ROWS: usize>(PhantomData<P>);

impl<P: Pairs, const ROWS: usize> Kernel for TwoVectors<P, ROWS> {
    type Element = i16;
    type Lanes = P::Lanes;
    const ROWS: usize = ROWS;
    const PANELS: usize = 2 * P::Lanes::WIDTH / PANEL;
    const BLOCK: usize = 32 * ROWS;
    const BLOCK_PANELS: usize = 64;

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
    unsafe fn pack_row(from: &[f32], tile: &mut [i16], r: usize) -> Row {
        // SAFETY: every kernel here has AVX2.
        unsafe { pack_row::<ROWS>(from, tile, r) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<i16>, tile: &mut Tile) {
        let width = P::Lanes::WIDTH;
        // SAFETY: inside the lengths that the trait promises; a started kernel has its instructions.
        unsafe {
            let mut sums = [[P::zero(); 2]; ROWS];
            let (mut a, [b0, b1]) = (of.a, of.b);
            let [mut left, mut right] = if Self::PANELS == 1 { [b0, b0.add(2 * width)] } else { [b0, b1] };
            for _ in 0..of.depth / STEP {
                for i in 0..STEP / 2 {
                    let columns = [P::load(left.add(i * 2 * PANEL)), P::load(right.add(i * 2 * PANEL))];
                    for row in 0..ROWS {
                        let x = P::splat(a.add(row * STEP + 2 * i));
                        sums[row][0] = P::dot(sums[row][0], x, columns[0]);
                        sums[row][1] = P::dot(sums[row][1], x, columns[1]);
                    }
                }
                a = a.add(ROWS * STEP);
                left = left.add(STEP * PANEL);
                right = right.add(STEP * PANEL);
            }
            let columns = if Self::PANELS == 1 { [of.columns[0]; 2] } else { of.columns };
            for (half, columns) in columns.into_iter().enumerate() {
                let columns = P::Lanes::load((&raw const (*columns).scales).cast::<f32>().add(half * width % PANEL));
                for row in 0..ROWS {
                    let factor = columns.like((*of.rows.add(row)).scale).mul(columns);
                    let to = tile.0.as_mut_ptr().add(row * 2 * width + half * width);
                    P::floats(sums[row][half]).mul(factor).store(to);
                }
            }
        }
    }
}

/// [`Kernel::pack_row`] for every kernel here.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn pack_row<const ROWS: usize>(from: &[f32], tile: &mut [i16], r: usize) -> Row {
    let chunks = from.chunks_exact(STEP);
    let mut end = [0.0; STEP];
    end[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    // SAFETY: whole vectors of `STEP` values; AVX2 is promised by the caller.
    unsafe {
        let mut tops = [magnitudes(&end[..8]), magnitudes(&end[8..])];
        for chunk in chunks.clone() {
            tops[0] = _mm256_max_epi32(tops[0], magnitudes(&chunk[..8]));
            tops[1] = _mm256_max_epi32(tops[1], magnitudes(&chunk[8..]));
        }
        let (scale, inverse) = row_scale(largest(_mm256_max_epi32(tops[0], tops[1])));
        let inverse = _mm256_set1_ps(inverse);
        let mut cross = _mm256_setzero_si256();
        let mut groups = tile.chunks_exact_mut(ROWS * STEP);
        for (chunk, group) in chunks.zip(groups.by_ref()) {
            let packed = to_fixed(chunk, inverse, &mut group[r * STEP..(r + 1) * STEP]);
            cross = _mm256_add_epi32(cross, crosses(packed));
        }
        if let Some(group) = groups.next() {
            let packed = to_fixed(&end, inverse, &mut group[r * STEP..(r + 1) * STEP]);
            cross = _mm256_add_epi32(cross, crosses(packed));
        }
        for group in groups {
            group[r * STEP..(r + 1) * STEP].fill(0);
        }
        Row { scale, cross: sum_of_even(cross) }
    }
}

/// Sixteen values times `inverse`, to the nearest whole numbers.
///
/// # Safety
/// The machine has AVX2; both slices have sixteen values.
#[inline(always)]
unsafe fn to_fixed(from: &[f32], inverse: __m256, to: &mut [i16]) -> __m256i {
    debug_assert!(from.len() == STEP && to.len() == STEP);
    // SAFETY: promised by the caller.
    unsafe {
        let low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from.as_ptr()), inverse));
        let high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from.as_ptr().add(8)), inverse));
        // The pack works within 128-bit halves; the permutation puts the quarters in order.
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
        _mm256_storeu_si256(to.as_mut_ptr().cast(), packed);
        packed
    }
}

/// The terms of [`super::cross`] in the even lanes; the odd lanes repeat them.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn crosses(packed: __m256i) -> __m256i {
    // SAFETY: promised by the caller.
    unsafe { _mm256_madd_epi16(packed, _mm256_shuffle_epi32::<0b10_11_00_01>(packed)) }
}

/// The sum of the even lanes, modulo 2^32.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn sum_of_even(lanes: __m256i) -> i32 {
    let mut array = [0i32; 8];
    // SAFETY: eight values fit; AVX2 is promised by the caller.
    unsafe { _mm256_storeu_si256(array.as_mut_ptr().cast(), lanes) };
    array.iter().step_by(2).fold(0, |sum, &x| sum.wrapping_add(x))
}

/// The bits of the magnitudes of eight values.
///
/// # Safety
/// The machine has AVX2, and `values` has eight.
#[inline(always)]
unsafe fn magnitudes(values: &[f32]) -> __m256i {
    debug_assert!(values.len() == 8);
    // SAFETY: promised by the caller.
    unsafe { _mm256_and_si256(_mm256_loadu_si256(values.as_ptr().cast()), _mm256_set1_epi32(i32::MAX)) }
}

/// The largest lane.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn largest(lanes: __m256i) -> u32 {
    let mut array = [0u32; 8];
    // SAFETY: eight values fit; AVX2 is promised by the caller.
    unsafe { _mm256_storeu_si256(array.as_mut_ptr().cast(), lanes) };
    array.into_iter().fold(0, u32::max)
}

/// Runs a job on the best kernel of this machine; vectors of 512 bits are used if `wide`.
///
/// # Safety
/// The machine has AVX2 and FMA, and, if `wide`, AVX-512.
pub(super) unsafe fn run(job: Job<'_, i16>, wide: bool) {
    // SAFETY: promised by the caller; VNNI is detected by the checks.
    unsafe {
        if wide && is_x86_feature_detected!("avx512vnni") {
            run_avx512_vnni::<TwoVectors<Vnni512, 12>>(job);
        } else if vnni_agrees() {
            run_avx_vnni::<TwoVectors<Vnni, 6>>(job);
        } else {
            run_avx2::<Winograd>(job);
        }
    }
}

/// Whether the machine has AVX-VNNI, and its kernel is bitwise equal to the AVX2 kernel in a check. The check runs once per
/// process, because the kernel has not been tested on such a CPU (AVX512-VNNI has been tested on Zen 4).
fn vnni_agrees() -> bool {
    static AGREES: OnceLock<bool> = OnceLock::new();
    *AGREES.get_or_init(|| {
        // SAFETY: the instructions were detected; whoever runs 16-bit products here has AVX2 and FMA.
        is_x86_feature_detected!("avxvnni") && agrees(|job| unsafe { run_avx_vnni::<TwoVectors<Vnni, 6>>(job) })
    })
}

/// Whether `kernel` is bitwise equal to the AVX2 kernel on a product whose sizes are not multiples of the tile's.
pub(super) fn agrees(kernel: impl Fn(Job<'_, i16>)) -> bool {
    let (rows, n, k) = (29, 75, 803);
    let value = |i: usize| ((i * 7919) % 2003) as f32 / 1001.0 - 1.0;
    let x: Vec<f32> = (0..rows * k).map(value).collect();
    let panels = Panels::fixed(n, k, |i, column| value(i * n + column + 1));
    let (mut want, mut got) = (vec![0.0; rows * n], vec![1.0; rows * n]);
    // SAFETY: whoever runs 16-bit products here has AVX2 and FMA.
    unsafe { run_avx2::<Winograd>(Job::new((&x, k), rows, &panels, (&mut want, n), PRODUCT)) };
    kernel(Job::new((&x, k), rows, &panels, (&mut got, n), PRODUCT));
    got == want
}
