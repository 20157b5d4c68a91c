//! The packed right-hand side of a product: panels of 16 columns over the full depth k, in the order in which kernels read it.
//!
//! `f32`:  `[panel][k][16]`. `bf16` (as bits) and `i16`: `[panel][k / 2][16][2]`, the pairs that their products multiply.
//! All types have 16 values per panel and k, so depth `p` of a panel starts at `16 p` in each of them. Columns and depth are
//! padded with zeros, so that kernels need no edge cases.

use crate::pages::{Buffer, Number};
use std::cell::RefCell;
use std::thread::LocalKey;

/// Columns of a panel.
pub(crate) const PANEL: usize = 16;

/// A type in which weights are stored.
pub(crate) trait Element: Number {
    /// Depth is padded to a multiple of this (a step of the kernels that read it).
    const STEP: usize;
    /// Consecutive values of one column that lie side by side.
    const PAIR: usize;
    /// Depth of a pass over k, the same for every kernel, so that all sum in the same order.
    const DEPTH: usize;
    /// Additional data of a packed row for one pass.
    type Row: Copy + Default + 'static;
    /// Additional data of the columns of a panel for one pass.
    type Columns: Copy + Default + std::fmt::Debug + Send + Sync;
    /// The thread-local buffer for the packed left side of a block.
    fn scratch() -> &'static LocalKey<RefCell<Scratch<Self>>>;
}

/// The packed left side of a block.
pub(crate) struct Scratch<T: Element> {
    pub(crate) values: Buffer<T>,
    pub(crate) rows: Vec<T::Row>,
}

impl<T: Element> Default for Scratch<T> {
    fn default() -> Self {
        Self { values: Buffer::default(), rows: Vec::new() }
    }
}

thread_local! {
    static SCRATCH_F32: RefCell<Scratch<f32>> = RefCell::default();
    static SCRATCH_BF16: RefCell<Scratch<u16>> = RefCell::default();
}

impl Element for f32 {
    const STEP: usize = 8;
    const PAIR: usize = 1;
    const DEPTH: usize = 256;
    type Row = ();
    type Columns = ();
    fn scratch() -> &'static LocalKey<RefCell<Scratch<Self>>> {
        &SCRATCH_F32
    }
}

impl Element for u16 {
    const STEP: usize = 32;
    const PAIR: usize = 2;
    const DEPTH: usize = 768;
    type Row = ();
    type Columns = ();
    fn scratch() -> &'static LocalKey<RefCell<Scratch<Self>>> {
        &SCRATCH_BF16
    }
}

/// `x` as bfloat16, rounded to the nearest, ties to even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let kept = (bits >> 16) | 0x40;
    (if x.is_nan() { kept } else { rounded }) as u16
}

/// `x` rounded to bfloat16 and back.
#[inline(always)]
pub(crate) fn bf16_round(x: f32) -> f32 {
    f32::from_bits(u32::from(bf16_bits(x)) << 16)
}

/// A packed `[k, n]` right-hand side.
#[derive(Debug)]
pub(crate) struct Panels<T: Element> {
    columns: usize,
    depth: usize,
    data: Buffer<T>,
    /// Per panel and pass.
    sides: Vec<T::Columns>,
}

impl<T: Element> Panels<T> {
    /// Packs the `[depth, columns]` matrix whose entries `entry(k, column)` gives.
    ///
    /// # Panics
    /// If the matrix is larger than the address space.
    pub(crate) fn pack(columns: usize, depth: usize, entry: impl Fn(usize, usize) -> T) -> Self {
        let mut packed = Self::zeros(columns, depth);
        let padded = packed.padded_depth();
        // On this thread only: a transpose is packed while a lock is held, and waiting for other tasks could deadlock.
        for (panel, data) in packed.data.chunks_exact_mut(padded * PANEL).enumerate() {
            let width = PANEL.min(columns - panel * PANEL);
            for (group, data) in data.chunks_exact_mut(PANEL * T::PAIR).enumerate() {
                let k = group * T::PAIR;
                for pair in 0..T::PAIR.min(depth.saturating_sub(k)) {
                    for column in 0..width {
                        data[column * T::PAIR + pair] = entry(k + pair, panel * PANEL + column);
                    }
                }
            }
        }
        packed
    }

    /// Packed zeros.
    ///
    /// # Panics
    /// If the matrix is larger than the address space.
    pub(crate) fn zeros(columns: usize, depth: usize) -> Self {
        let sizes = depth.max(1).checked_next_multiple_of(T::STEP).zip(columns.checked_next_multiple_of(PANEL));
        let size = sizes.and_then(|(depth, columns)| depth.checked_mul(columns));
        let data = Buffer::zeroed(size.expect("a matrix fits into the address space"));
        let padded = depth.max(1).next_multiple_of(T::STEP);
        let sides = vec![T::Columns::default(); columns.div_ceil(PANEL) * padded.div_ceil(T::DEPTH)];
        Self { columns, depth, data, sides }
    }

    /// Overwrites a column; `values` have the padded depth.
    pub(crate) fn set_column(&mut self, column: usize, values: &[T]) {
        let len = self.panel_len();
        let panel = &mut self.data[column / PANEL * len..][..len];
        for (group, values) in panel.chunks_exact_mut(PANEL * T::PAIR).zip(values.chunks_exact(T::PAIR)) {
            group[column % PANEL * T::PAIR..][..T::PAIR].copy_from_slice(values);
        }
    }

    pub(crate) fn passes(&self) -> usize {
        self.padded_depth().div_ceil(T::DEPTH)
    }

    /// Additional data of the columns of `panel` for `pass`.
    pub(crate) fn side(&self, panel: usize, pass: usize) -> &T::Columns {
        &self.sides[panel * self.passes() + pass]
    }

    pub(crate) fn side_mut(&mut self, panel: usize, pass: usize) -> &mut T::Columns {
        let at = panel * self.passes() + pass;
        &mut self.sides[at]
    }

    /// The entry at depth `k` of `column`.
    pub(crate) fn at(&self, k: usize, column: usize) -> T {
        let inside = (k / T::PAIR) * PANEL * T::PAIR + (column % PANEL) * T::PAIR + k % T::PAIR;
        self.data[(column / PANEL) * self.panel_len() + inside]
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The true depth.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn padded_depth(&self) -> usize {
        self.depth.max(1).next_multiple_of(T::STEP)
    }

    pub(crate) fn count(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    pub(crate) fn panel_len(&self) -> usize {
        self.padded_depth() * PANEL
    }

    /// All panels, one after the other.
    pub(crate) fn data(&self) -> &[T] {
        &self.data
    }
}

impl<T: Element<Columns = ()>> Panels<T> {
    pub(crate) fn transposed(&self) -> Self {
        Self::pack(self.depth, self.columns, |k, column| self.at(column, k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_transposes_survive_packing() {
        for (columns, depth) in [(1, 1), (16, 8), (17, 33), (40, 31)] {
            let value = |k: usize, c: usize| (k * 100 + c) as f32 * 0.5;
            let packed = Panels::<f32>::pack(columns, depth, value);
            let turned = packed.transposed();
            let halves = Panels::<u16>::pack(columns, depth, |k, c| bf16_bits(value(k % 4, c)));
            for k in 0..depth {
                for c in 0..columns {
                    assert_eq!(packed.at(k, c), value(k, c));
                    assert_eq!(turned.at(c, k), value(k, c));
                    assert_eq!(halves.at(k, c), bf16_bits(value(k % 4, c)));
                    assert_eq!(halves.transposed().at(c, k), halves.at(k, c));
                }
            }
        }
    }

    #[test]
    fn bf16_rounds_to_the_nearest_even_and_keeps_nan() {
        for x in [0.0f32, 1.0, -1.5, 3.15, 1e-30, 65504.0, f32::MAX, f32::INFINITY, -2.5e-3] {
            assert_eq!(bf16_bits(x), half::bf16::from_f32(x).to_bits(), "{x}");
        }
        assert!(bf16_round(f32::NAN).is_nan());
        assert_eq!(bf16_bits(1.0 + 1.0 / 256.0), 0x3f80); // a tie goes to the even neighbour
        assert_eq!(bf16_bits(1.0 + 3.0 / 256.0), 0x3f82);
    }
}
