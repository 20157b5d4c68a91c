//! Products in 16-bit fixed point, for CPUs that multiply integers faster than floats: 16-bit inputs, exact 32-bit sums.
//!
//! A row of the left side is cut into passes of [`Element::DEPTH`] values; each pass has its own scale, so that its largest
//! value becomes [`ROW_TOP`]. A column of the weights has a scale for each pass too, chosen when it is packed as the
//! smallest one with
//!
//! - no weight above [`WEIGHT_TOP`], and
//! - `ROW_TOP · Σ |weight| < 2^31`: no sum over a pass can overflow, whatever the row holds.
//!
//! The sum of a pass becomes `f32`, is multiplied by both scales and added to the passes before, in this order everywhere.
//! The integers are exact and the few float operations are not fused, so a product is bitwise the same on every
//! instruction set.
//!
//! A row with a NaN or an infinity gives NaN in all columns; a column of weights with one gives NaN in all rows.

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod winograd;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::driver::{Job, Kernel, Operands, Tile};
use super::kernels::{Portable, run_plain};
use super::panels::{Element, PANEL, Panels, Scratch};
use crate::isa::{Isa, Usable};
use std::cell::RefCell;
use std::thread::LocalKey;

/// Largest magnitude in a packed row: 13 bits and a sign.
const ROW_TOP: i32 = 8191;
/// Largest packed weight: 12 bits and a sign. The bound on the sum makes it slightly smaller in most columns.
const WEIGHT_TOP: i32 = 4095;
/// Largest sum of magnitudes of the weights of a column in a pass.
const WEIGHT_SUM: i32 = i32::MAX / ROW_TOP;
/// Smaller values are replaced by this one, so that its inverse is finite.
const SMALLEST: f32 = 1e-30;
/// Values of a packed row that lie side by side: one vector.
const STEP: usize = <i16 as Element>::STEP;

/// Additional data of a packed row for one pass.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    scale: f32,
    /// The sum that [`cross`] computes, for [`winograd`]; 0 where that is not used.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    cross: i32,
}

/// Additional data of the packed columns for one pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    scales: [f32; PANEL],
    /// As `Row::cross`, for each column.
    crosses: [i32; PANEL],
}

impl Element for i16 {
    const STEP: usize = 16;
    const PAIR: usize = 2;
    const DEPTH: usize = 384;
    type Row = Row;
    type Columns = Columns;
    fn scratch() -> &'static LocalKey<RefCell<Scratch<Self>>> {
        thread_local! {
            static SCRATCH: RefCell<Scratch<i16>> = RefCell::default();
        }
        &SCRATCH
    }
}

impl Panels<i16> {
    /// Packs the `[depth, columns]` matrix whose entries `entry(k, column)` gives, in fixed point.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub(super) fn fixed(columns: usize, depth: usize, entry: impl Fn(usize, usize) -> f32) -> Self {
        Self::fixed_columns(columns, depth, |column, values| {
            values.iter_mut().enumerate().for_each(|(k, value)| *value = entry(k, column));
        })
    }

    /// Packs the `[depth, columns]` matrix in fixed point; `column(c, values)` writes the values of a column. One column after the
    /// other, since their values lie side by side in weights as they are stored.
    pub(super) fn fixed_columns(columns: usize, depth: usize, column: impl Fn(usize, &mut [f32])) -> Self {
        let mut packed = Self::zeros(columns, depth);
        let (mut values, mut whole) = (vec![0.0; depth], vec![0i16; packed.padded_depth()]);
        for at in 0..columns {
            column(at, &mut values);
            for (pass, (values, whole)) in values.chunks(i16::DEPTH).zip(whole.chunks_mut(i16::DEPTH)).enumerate() {
                let scale = column_scale(values);
                whole.iter_mut().zip(values).for_each(|(whole, &value)| *whole = to_fixed(value / scale));
                let cross = cross(&whole[..values.len()]);
                let side = packed.side_mut(at / PANEL, pass);
                (side.scales[at % PANEL], side.crosses[at % PANEL]) = (scale, cross);
            }
            packed.set_column(at, &whole);
        }
        packed
    }

    /// The entry at depth `k` of `column`.
    fn value(&self, k: usize, column: usize) -> f32 {
        f32::from(self.at(k, column)) * self.side(column / PANEL, k / i16::DEPTH).scales[column % PANEL]
    }

    /// The transpose, packed with scales of its own.
    pub(super) fn fixed_transposed(&self) -> Self {
        Self::fixed_columns(self.depth(), self.columns(), |at, values| {
            values.iter_mut().enumerate().for_each(|(column, value)| *value = self.value(at, column));
        })
    }
}

/// The smallest scale with which the weights of a column keep to both limits; NaN if one of them is not finite.
fn column_scale(weights: &[f32]) -> f32 {
    let count = weights.len() as f64;
    let top = weights.iter().fold(0.0f32, |top, w| top.max(w.abs()));
    let sum = weights.iter().fold(0.0f64, |sum, &w| sum + f64::from(w.abs()));
    if !sum.is_finite() {
        return f32::NAN;
    }
    // Rounding may add half a step per weight; one more step covers the rounding of the scale itself.
    let room = f64::from(WEIGHT_SUM) - 0.5 * count - 1.0;
    (top / WEIGHT_TOP as f32).max((sum / room) as f32).max(SMALLEST)
}

/// The sum of `v1 v3 + v2 v4` over fours `v1, v2, v3, v4`, modulo 2^32.
fn cross(values: &[i16]) -> i32 {
    let (fours, rest) = values.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    fours.iter().chain([&last]).fold(0i32, |sum, four| {
        let [first, second, third, fourth] = four.map(i32::from);
        sum.wrapping_add(first * third).wrapping_add(second * fourth)
    })
}

/// Adding this to a number of magnitude below 2^22 rounds it to the nearest integer, ties to even, because no bits remain for
/// a fraction; the low bits of the sum are that integer.
const WHOLE: f32 = 12_582_912.0;

/// Rounds to the nearest integer, ties to even; NaN becomes 0 (its scale is NaN). Does not use the standard library, whose
/// rounding is a function call without SSE4.1. All converted values are of magnitude [`ROW_TOP`] or slightly more.
#[inline(always)]
fn to_fixed(x: f32) -> i16 {
    let whole = (x + WHOLE).to_bits() as i16;
    if x.is_nan() { 0 } else { whole }
}

/// The scale of a row whose largest magnitude has these bits (NaN if that is not finite), and its inverse (0 then).
#[inline(always)]
fn row_scale(top_bits: u32) -> (f32, f32) {
    let top = f32::from_bits(top_bits);
    if !top.is_finite() {
        return (f32::NAN, 0.0);
    }
    let top = top.max(SMALLEST);
    (top / ROW_TOP as f32, ROW_TOP as f32 / top)
}

/// The bits of the magnitude: compared as integers they have the order of the magnitudes, with NaN the largest.
#[inline(always)]
fn magnitude_bits(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// The reference kernel, which all others must equal.
struct PlainKernel;

impl Kernel for PlainKernel {
    type Element = i16;
    type Lanes = f32;
    const ROWS: usize = 2;
    const PANELS: usize = 1;
    const BLOCK: usize = 240;

    unsafe fn start() -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [i16], r: usize) -> Row {
        let (scale, inverse) = row_scale(from.iter().map(|&x| magnitude_bits(x)).max().unwrap_or(0));
        super::driver::convert_row::<Self>(from, tile, r, |x| to_fixed(x * inverse));
        Row { scale, cross: 0 }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<i16>, tile: &mut Tile) {
        // SAFETY: the lengths that the trait promises.
        let (a, b, rows, columns) = unsafe {
            let a = std::slice::from_raw_parts(of.a, of.depth * Self::ROWS);
            let b = std::slice::from_raw_parts(of.b[0], of.depth * PANEL);
            (a, b, std::slice::from_raw_parts(of.rows, Self::ROWS), &*of.columns[0])
        };
        let mut sums = [[0i32; PANEL]; Self::ROWS];
        for (a, b) in a.chunks_exact(Self::ROWS * STEP).zip(b.chunks_exact(STEP * PANEL)) {
            for (i, b) in b.chunks_exact(2 * PANEL).enumerate() {
                for row in 0..Self::ROWS {
                    let pair = &a[row * STEP + 2 * i..][..2];
                    for column in 0..PANEL {
                        sums[row][column] += i32::from(pair[0]) * i32::from(b[2 * column])
                            + i32::from(pair[1]) * i32::from(b[2 * column + 1]);
                    }
                }
            }
        }
        for row in 0..Self::ROWS {
            for column in 0..PANEL {
                tile.0[row * PANEL + column] = sums[row][column] as f32 * (rows[row].scale * columns.scales[column]);
            }
        }
    }
}

// SAFETY: plain Rust.
unsafe impl Portable for PlainKernel {}

/// Runs a job on the best kernel for `isa`.
pub(super) fn run(job: Job<'_, i16>, isa: Usable) {
    match isa.isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Usable` instruction set was detected, and all of these have AVX2.
        isa @ (Isa::Avx2 | Isa::Avx512 | Isa::Amx) => unsafe { x86::run(job, isa != Isa::Avx2) },
        _ => run_plain::<PlainKernel>(job),
    }
}

/// Whether 16-bit products are known to be faster than `f32`. On AVX-512 without VNNI they are not, because they need two
/// instructions instead of one.
pub(super) fn is_fast(isa: Isa) -> bool {
    match isa {
        Isa::Avx2 => true,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => is_x86_feature_detected!("avx512vnni"),
        _ => false,
    }
}
