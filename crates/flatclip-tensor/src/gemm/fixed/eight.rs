//! Products in 8-bit fixed point. A row of the left side has one scale, and so has a column of the weights; both become whole
//! numbers from -127 to 127, and the sums are exact.
//!
//! A few inputs of a tower are many times larger than the others, in every row: with one scale for all they would leave the
//! others no bits. These *outliers* are named when the weights are packed. They are multiplied in 16 bits, with scales of their
//! own, and their weights in the 8-bit part are 0.
//!
//! A packed row is `[k]` bytes, then the outliers as `i16`; so is a packed column. The instructions multiply bytes without sign
//! by bytes with one, so the bytes of a row are stored 128 too large, and the sums of a column begin at `-128 Σ weight`.

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::{ROW_TOP, column_scale, magnitude_bits, row_scale, to_fixed};
use crate::gemm::driver::{Job, Kernel, Operands, Tile, convert_row};
use crate::gemm::kernels::{Portable, run_plain};
use crate::gemm::panels::{Element, PANEL, Panels, Scratch};
use crate::isa::{Isa, Usable};
use std::cell::RefCell;
use std::thread::LocalKey;

/// Largest magnitude of a packed byte.
const TOP: i32 = 127;
/// Bytes of a packed row that lie side by side.
const STEP: usize = <i8 as Element>::STEP;
/// Outliers that lie side by side in a packed row.
const OUTLIER_STEP: usize = STEP / 2;

/// What goes with a packed row.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    scale: f32,
    outlier_scale: f32,
}

/// What goes with the packed columns of a panel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    scales: [f32; PANEL],
    /// `-128 Σ weight`.
    starts: [i32; PANEL],
    outlier_scales: [f32; PANEL],
    /// Depth that the outliers take at the end of the panel.
    outlier_depth: usize,
}

/// Which inputs are outliers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// In ascending order.
    outliers: Vec<usize>,
    /// Per input the bits that its magnitude may have: none for an outlier.
    mask: Vec<u32>,
}

impl Element for i8 {
    const STEP: usize = 32;
    const PAIR: usize = 4;
    /// One pass: no sum of this many products overflows (`255 · 127 · 2^15 < 2^31`).
    const DEPTH: usize = 1 << 15;
    type Row = Row;
    type Columns = Columns;
    type Inputs = Inputs;
    fn scratch() -> &'static LocalKey<RefCell<Scratch<Self>>> {
        thread_local! {
            static SCRATCH: RefCell<Scratch<i8>> = RefCell::default();
        }
        &SCRATCH
    }
}

impl Panels<i8> {
    /// Packs the `[depth, columns]` matrix whose entries `entry(k, column)` gives; `None` if it is too deep for one pass.
    pub(in crate::gemm) fn eight(
        columns: usize,
        depth: usize,
        outliers: &[usize],
        entry: impl Fn(usize, usize) -> f32,
    ) -> Option<Self> {
        let mut mask = vec![0x7fff_ffff; depth];
        outliers.iter().for_each(|&k| mask[k] = 0);
        let outliers: Vec<usize> = (0..depth).filter(|&k| mask[k] == 0).collect();
        let bytes = depth.max(1).next_multiple_of(STEP);
        let outlier_depth = 2 * outliers.len().next_multiple_of(OUTLIER_STEP);
        if bytes + outlier_depth > i8::DEPTH {
            return None;
        }
        let usual = |column| (0..depth).filter(|&k| mask[k] != 0).map(move |k| (k, column));
        let scales: Vec<f32> = (0..columns).map(|c| byte_scale(usual(c).map(|(k, c)| entry(k, c)))).collect();
        let outlier_scale = |column| column_scale(&outliers.iter().map(|&k| entry(k, column)).collect::<Vec<_>>());
        let outlier_scales: Vec<f32> = (0..columns).map(outlier_scale).collect();
        let byte = |at: usize, column: usize| match at.checked_sub(bytes) {
            None if at < depth && mask[at] != 0 => to_byte(entry(at, column) / scales[column]),
            None => 0,
            Some(at) => outliers.get(at / 2).map_or(0, |&k| {
                to_fixed(entry(k, column) / outlier_scales[column]).to_le_bytes()[at % 2].cast_signed()
            }),
        };
        let mut packed = Self::pack(columns, bytes + outlier_depth, byte);
        for column in 0..columns {
            let sum: i32 = (0..depth).map(|k| i32::from(packed.at(k, column))).sum();
            let side = packed.side_mut(column / PANEL, 0);
            let at = column % PANEL;
            (side.scales[at], side.starts[at]) = (scales[column], -128 * sum);
            (side.outlier_scales[at], side.outlier_depth) = (outlier_scales[column], outlier_depth);
        }
        (packed.depth, packed.inputs) = (depth, Inputs { outliers, mask });
        Some(packed)
    }

    /// The entry at depth `k` of `column`.
    pub(in crate::gemm) fn value(&self, k: usize, column: usize) -> f32 {
        let (side, at) = (self.side(column / PANEL, 0), column % PANEL);
        match self.inputs.outliers.binary_search(&k) {
            Err(_) => f32::from(self.at(k, column)) * side.scales[at],
            Ok(index) => {
                let start = self.padded_depth() - side.outlier_depth + 2 * index;
                let bytes = [start, start + 1].map(|k| self.at(k, column).cast_unsigned());
                f32::from(i16::from_le_bytes(bytes)) * side.outlier_scales[at]
            }
        }
    }

    /// The transpose, for gradients: in 16 bits, since nothing is known of the inputs there.
    pub(in crate::gemm) fn fixed_transposed(&self) -> Panels<i16> {
        Panels::fixed(self.depth(), self.columns(), |k, column| self.value(column, k))
    }
}

/// The scale of a column of weights; NaN if one of them is not finite.
fn byte_scale(weights: impl Iterator<Item = f32>) -> f32 {
    row_scale(weights.map(magnitude_bits).max().unwrap_or(0), TOP).0
}

/// To the nearest whole number, ties to even; NaN becomes 0 (its scale is NaN).
#[inline(always)]
fn to_byte(x: f32) -> i8 {
    x.round_ties_even() as i8
}

/// The values of so many outliers of a row, zeros behind them, and the bits of the largest magnitude. Padding rows are empty.
#[inline(always)]
fn outliers_of(from: &[f32], indices: &[usize]) -> ([f32; OUTLIER_STEP], u32) {
    let mut values = [0.0; OUTLIER_STEP];
    values.iter_mut().zip(indices).for_each(|(value, &k)| *value = from.get(k).copied().unwrap_or(0.0));
    (values, values.iter().map(|&x| magnitude_bits(x)).max().unwrap_or(0))
}

/// Packs the outliers of a row behind its bytes; gives their scale.
#[inline(always)]
fn pack_outliers<const ROWS: usize>(from: &[f32], inputs: &Inputs, tile: &mut [i8], r: usize) -> f32 {
    let indices = inputs.outliers.chunks(OUTLIER_STEP);
    let top = indices.clone().map(|indices| outliers_of(from, indices).1).max().unwrap_or(0);
    let (scale, inverse) = row_scale(top, ROW_TOP);
    let start = tile.len() - indices.len() * ROWS * STEP;
    for (indices, group) in indices.zip(tile[start..].chunks_exact_mut(ROWS * STEP)) {
        let (values, _) = outliers_of(from, indices);
        for (value, to) in values.iter().zip(group[r * STEP..(r + 1) * STEP].chunks_exact_mut(2)) {
            let [low, high] = to_fixed(value * inverse).to_le_bytes().map(u8::cast_signed);
            (to[0], to[1]) = (low, high);
        }
    }
    scale
}

/// What the others must equal.
struct PlainKernel;

impl Kernel for PlainKernel {
    type Element = i8;
    type Lanes = f32;
    const ROWS: usize = 2;
    const PANELS: usize = 1;
    const BLOCK: usize = 240;

    unsafe fn start() -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], inputs: &Inputs, tile: &mut [i8], r: usize) -> Row {
        let tops = from.iter().zip(&inputs.mask).map(|(x, mask)| x.to_bits() & mask);
        let (scale, inverse) = row_scale(tops.max().unwrap_or(0), TOP);
        convert_row::<Self>(from, tile, r, |x| to_byte(x * inverse) ^ i8::MIN);
        Row { scale, outlier_scale: pack_outliers::<2>(from, inputs, tile, r) }
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<i8>, tile: &mut Tile) {
        // SAFETY: the lengths that the trait promises.
        let (a, b, rows, columns) = unsafe {
            let a = std::slice::from_raw_parts(of.a, of.depth * Self::ROWS);
            let b = std::slice::from_raw_parts(of.b[0], of.depth * PANEL);
            (a, b, std::slice::from_raw_parts(of.rows, Self::ROWS), &*of.columns[0])
        };
        let bytes = of.depth - columns.outlier_depth;
        for row in 0..Self::ROWS {
            for column in 0..PANEL {
                let left = |k: usize| a[k / STEP * Self::ROWS * STEP + row * STEP + k % STEP].cast_unsigned();
                let right = |k: usize| b[k / 4 * 4 * PANEL + column * 4 + k % 4];
                let sum = (0..bytes).map(|k| i32::from(left(k)) * i32::from(right(k))).sum::<i32>();
                let word = |bytes| i32::from(i16::from_le_bytes(bytes));
                let outlier = |k| word([left(k), left(k + 1)]) * word([right(k), right(k + 1)].map(i8::cast_unsigned));
                let outliers: i32 = (bytes..of.depth).step_by(2).map(outlier).sum();
                let usual = (sum + columns.starts[column]) as f32 * (rows[row].scale * columns.scales[column]);
                let factor = rows[row].outlier_scale * columns.outlier_scales[column];
                tile.0[row * PANEL + column] = if bytes < of.depth { usual + outliers as f32 * factor } else { usual };
            }
        }
    }
}

// SAFETY: plain Rust.
unsafe impl Portable for PlainKernel {}

/// Runs a job on the best kernel for `isa`.
pub(in crate::gemm) fn run(job: Job<'_, i8>, isa: Usable) {
    match isa.isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Usable` instruction set was detected, and all of these have AVX2.
        isa @ (Isa::Avx2 | Isa::Avx512 | Isa::Amx) => unsafe { x86::run(job, isa != Isa::Avx2) },
        _ => run_plain::<PlainKernel>(job),
    }
}
