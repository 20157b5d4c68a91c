//! Products of 16-bit floats (IEEE binary16) with sums in `f32`.
//!
//! Weights and rows are rounded to the nearest `f16`, ties to even; beyond 65519 that is an infinity, as in any other
//! software with this type. The product of two such values has at most 22 bits and is exact in `f32`, so it makes no
//! difference whether it is added by a fused instruction. Depth and step are those of `f32`, and so is the order of sums:
//! a product has the same bytes on every instruction set, and whether values are held as `f16` or, rounded, as `f32`.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

use super::driver::{Job, Kernel, Operands, Tile, convert_row};
use super::kernels::{Portable, Rounding, run_plain};
use super::panels::{Element, PANEL, Scratch};
use crate::isa::{Isa, Usable};
use half::f16;
use std::cell::RefCell;
use std::thread::LocalKey;

impl Element for f16 {
    const STEP: usize = <f32 as Element>::STEP;
    const PAIR: usize = 1;
    const DEPTH: usize = <f32 as Element>::DEPTH;
    type Row = ();
    type Columns = ();
    fn scratch() -> &'static LocalKey<RefCell<Scratch<Self>>> {
        thread_local! {
            static SCRATCH: RefCell<Scratch<f16>> = RefCell::default();
        }
        &SCRATCH
    }
}

/// The smallest value that has all its bits: 2^-14.
const SMALLEST_NORMAL: f32 = 1.0 / 16384.0;

/// To `f16` and back.
pub(super) struct ToF16;

impl Rounding for ToF16 {
    #[inline(always)]
    fn round(x: f32) -> f32 {
        let (magnitude, bits) = (x.abs(), x.abs().to_bits());
        // Below the smallest normal value the steps are 2^-24, which are those of `f32` from 0.5 to 1.
        let subnormal = (magnitude + 0.5) - 0.5;
        // Thirteen bits fewer; adding to the bits carries into the exponent where it must. A NaN stays one: it keeps its bits.
        let rounded = f32::from_bits(bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff);
        let normal = if magnitude < 65520.0 { rounded } else { magnitude * f32::INFINITY };
        (if magnitude < SMALLEST_NORMAL { subnormal } else { normal }).copysign(x)
    }
}

/// Whether `isa` on this machine multiplies values of 16 bits into sums of 32.
pub(super) fn is_native(isa: Isa) -> bool {
    #[cfg(target_arch = "aarch64")]
    return isa == Isa::Neon && std::arch::is_aarch64_feature_detected!("fhm");
    #[cfg(not(target_arch = "aarch64"))]
    {
        let _ = isa;
        false
    }
}

/// Runs a job on the best kernel for `isa`.
pub(super) fn run(job: Job<'_, f16>, isa: Usable) {
    #[cfg(target_arch = "aarch64")]
    if is_native(isa.isa()) {
        // SAFETY: a `Usable` instruction set was detected, and FHM just now.
        return unsafe { super::kernels::run_neon_fhm::<neon::FhmKernel>(job) };
    }
    let _ = isa;
    run_plain::<PlainKernel>(job);
}

/// For weights that were packed before another instruction set was forced, and what the others must equal.
struct PlainKernel;

impl Kernel for PlainKernel {
    type Element = f16;
    type Lanes = f32;
    const ROWS: usize = 2;
    const PANELS: usize = 1;
    const BLOCK: usize = 240;

    unsafe fn start() -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [f16], r: usize) {
        convert_row::<Self>(from, tile, r, f16::from_f32);
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<f16>, tile: &mut Tile) {
        const STEP: usize = f16::STEP;
        // SAFETY: the length that the trait promises.
        let a = unsafe { std::slice::from_raw_parts(of.a, of.depth * Self::ROWS) };
        // SAFETY: as above.
        let b = unsafe { std::slice::from_raw_parts(of.b[0], of.depth * PANEL) };
        let mut sums = [[0.0f32; PANEL]; Self::ROWS];
        for (k, b) in b.chunks_exact(PANEL).enumerate() {
            let mut columns = [0.0; PANEL];
            columns.iter_mut().zip(b).for_each(|(wide, b)| *wide = b.to_f32());
            for row in 0..Self::ROWS {
                let x = a[(k / STEP * Self::ROWS + row) * STEP + k % STEP].to_f32();
                for column in 0..PANEL {
                    sums[row][column] += x * columns[column];
                }
            }
        }
        tile.0[..Self::ROWS * PANEL].copy_from_slice(sums.as_flattened());
    }
}

// SAFETY: plain Rust.
unsafe impl Portable for PlainKernel {}
