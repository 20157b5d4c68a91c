//! The `f32` tile of every instruction set with vectors.

use super::{STEP, pack_floats};
use crate::gemm::driver::{Kernel, Operands, Tile};
use crate::gemm::panels::PANEL;
use crate::simd::Lanes;
use std::marker::PhantomData;

/// `ROWS` rows times two vectors. Instruction sets differ in how many rows fill the registers, and in whether two vectors are
/// one panel or two.
pub(in crate::gemm) struct TwoVectors<L, const ROWS: usize, const ROUNDED: bool>(PhantomData<L>);

impl<L: Lanes, const ROWS: usize, const ROUNDED: bool> Kernel for TwoVectors<L, ROWS, ROUNDED> {
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
        pack_floats::<Self, ROUNDED>(from, tile, r);
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn prefetch(to: *const f32) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
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
