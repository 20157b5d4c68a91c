//! FEAT_FHM: `fmlal` multiplies four pairs of `f16` and adds the exact products to four sums of 32 bits.

use super::{Element, Kernel, Operands, PANEL, Tile, f16};
use crate::simd::Neon;
use std::arch::aarch64::*;

const STEP: usize = f16::STEP;
const ROWS: usize = 5;

/// 5 x 16: twenty registers of sums, two of the panel, five with a step of each row. With six rows the compiler keeps some
/// of them on the stack.
pub(super) struct FhmKernel;

impl Kernel for FhmKernel {
    type Element = f16;
    type Lanes = Neon;
    const ROWS: usize = ROWS;
    const PANELS: usize = 1;
    const BLOCK: usize = 40 * ROWS;

    #[inline(always)]
    unsafe fn start() -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [f16], r: usize) {
        for (group, to) in tile.chunks_exact_mut(ROWS * STEP).enumerate() {
            let from = from.get(group * STEP..).unwrap_or_default();
            let mut edge = [0.0; STEP];
            let from = from.first_chunk().unwrap_or_else(|| {
                edge[..from.len()].copy_from_slice(from);
                &edge
            });
            // SAFETY: the caller promises the instructions.
            unsafe { narrow(from, &mut to[r * STEP..]) }
        }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<f16>, tile: &mut Tile) {
        // SAFETY: inside the lengths that the trait promises; a started kernel has its instructions.
        unsafe {
            let mut sums = [[vdupq_n_f32(0.0); 4]; ROWS];
            for step in 0..of.depth / STEP {
                let mut a = [vreinterpretq_f16_u16(vdupq_n_u16(0)); ROWS];
                for row in 0..ROWS {
                    a[row] = load(of.a.add((step * ROWS + row) * STEP));
                }
                let b = of.b[0].add(step * STEP * PANEL);
                depth::<0>(&mut sums, &a, b);
                depth::<1>(&mut sums, &a, b);
                depth::<2>(&mut sums, &a, b);
                depth::<3>(&mut sums, &a, b);
                depth::<4>(&mut sums, &a, b);
                depth::<5>(&mut sums, &a, b);
                depth::<6>(&mut sums, &a, b);
                depth::<7>(&mut sums, &a, b);
            }
            for row in 0..ROWS {
                for (vector, sum) in sums[row].into_iter().enumerate() {
                    vst1q_f32(tile.0.as_mut_ptr().add(row * PANEL + 4 * vector), sum);
                }
            }
        }
    }
}

/// Adds the products at one depth of a step.
///
/// # Safety
/// The machine has FHM, and a step of a panel can be read at `b`.
#[inline(always)]
unsafe fn depth<const LANE: i32>(sums: &mut [[float32x4_t; 4]; ROWS], a: &[float16x8_t; ROWS], b: *const f16) {
    // SAFETY: promised by the caller.
    unsafe {
        let b = b.add(LANE as usize * PANEL);
        let (left, right) = (load(b), load(b.add(8)));
        for row in 0..ROWS {
            sums[row][0] = vfmlalq_laneq_low_f16::<LANE>(sums[row][0], left, a[row]);
            sums[row][1] = vfmlalq_laneq_high_f16::<LANE>(sums[row][1], left, a[row]);
            sums[row][2] = vfmlalq_laneq_low_f16::<LANE>(sums[row][2], right, a[row]);
            sums[row][3] = vfmlalq_laneq_high_f16::<LANE>(sums[row][3], right, a[row]);
        }
    }
}

/// # Safety
/// The machine has NEON, and eight values can be read at `from`.
#[inline(always)]
unsafe fn load(from: *const f16) -> float16x8_t {
    // SAFETY: promised by the caller; an `f16` is its bits.
    unsafe { vreinterpretq_f16_u16(vld1q_u16(from.cast())) }
}

/// Rounds a step of a row to the nearest `f16` (ties to even: no other mode is ever set).
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn narrow(from: &[f32; STEP], to: &mut [f16]) {
    let to = &mut to[..STEP];
    // SAFETY: eight values on both sides; an `f16` is its bits.
    unsafe {
        let (low, high) = (vld1q_f32(from.as_ptr()), vld1q_f32(from.as_ptr().add(4)));
        let both = vcvt_high_f16_f32(vcvt_f16_f32(low), high);
        vst1q_u16(to.as_mut_ptr().cast(), vreinterpretq_u16_f16(both));
    }
}
