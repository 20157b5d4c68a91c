//! Coefficients of an image that comes in several scans. Kept whole they would take twice the memory of the pixels, so of a
//! large image one band of rows after another is kept.

use super::{Component, Frame};
use std::ops::Range;

type Block = [i16; 64];

/// Bytes of coefficients up to which they are kept whole, and about which a band takes.
const ROOM: usize = 48 << 20;
const MAX_BANDS: usize = 16;
const BLOCK_BYTES: usize = size_of::<Block>();
/// One bit for each coefficient.
const MASK_BYTES: usize = size_of::<u64>();

/// How an image is divided into bands of rows of units. The first is read with all of the file, where the places at which the
/// others begin in each scan are found; each of them is then read from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bands {
    pub(super) count: usize,
    /// Bytes that are kept while the scans are read for one of them.
    pub(super) bytes: u64,
}

impl Bands {
    /// As few as the memory limit allows.
    pub(super) fn of(frame: &Frame) -> Self {
        let all = frame.blocks() * BLOCK_BYTES;
        if all <= ROOM {
            return Self { count: 1, bytes: all as u64 };
        }
        let masks = frame.blocks() * MASK_BYTES;
        let count = all.div_ceil(ROOM.saturating_sub(masks).max(1)).min(MAX_BANDS);
        Self { count, bytes: (masks + all.div_ceil(count)) as u64 }
    }

    /// The rows of units of each band, top to bottom.
    pub(super) fn rows(self, frame: &Frame) -> impl Iterator<Item = Range<usize>> {
        let units = frame.height.div_ceil(8 * frame.most_down);
        let each = units.div_ceil(self.count).max(1);
        (0..units).step_by(each).map(move |first| first..units.min(first + each))
    }
}

/// The coefficients of one component: whole inside the band.
pub(super) struct Coefficients {
    columns: usize,
    /// Rows of blocks in the band.
    band: Range<usize>,
    blocks: Vec<Block>,
    /// Of every block outside it a bit for each coefficient that is not zero: more does not decide how many bits a scan takes.
    masks: Vec<u64>,
}

impl Coefficients {
    /// For a band of rows of blocks, and for `others` to pass over: rows of the component, or 0 if none are met.
    pub(super) fn new(component: &Component, band: Range<usize>, others: usize) -> Self {
        let columns = component.block_columns;
        let outside = if band.len() < others { columns * others } else { 0 };
        Self { columns, blocks: vec![[0; 64]; columns * band.len()], masks: vec![0; outside], band }
    }

    /// Lets `read` change a block. Outside the band it sees ones where values are, and only what is zero afterwards is kept.
    pub(super) fn change<T>(&mut self, row: usize, column: usize, read: impl FnOnce(&mut Block) -> T) -> T {
        if self.band.contains(&row) {
            return read(&mut self.blocks[(row - self.band.start) * self.columns + column]);
        }
        let mask = &mut self.masks[row * self.columns + column];
        let mut block = ones(*mask);
        let result = read(&mut block);
        *mask = mask_of(&block);
        result
    }

    pub(super) fn row(&self, row: usize) -> &[Block] {
        let first = (row - self.band.start) * self.columns;
        &self.blocks[first..first + self.columns]
    }

    pub(super) fn clear(&mut self) {
        self.blocks.fill([0; 64]);
    }
}

/// Ones where the mask has bits; by bytes, which the compiler turns into eight lanes.
fn ones(mask: u64) -> Block {
    let mut block = [0; 64];
    for (values, byte) in block.chunks_exact_mut(8).zip(mask.to_le_bytes()) {
        values.iter_mut().enumerate().for_each(|(k, value)| *value = i16::from(byte & 1 << k != 0));
    }
    block
}

/// A bit for each value that is not zero.
fn mask_of(block: &Block) -> u64 {
    let mut bytes = [0; 8];
    for (byte, values) in bytes.iter_mut().zip(block.chunks_exact(8)) {
        *byte = values.iter().enumerate().fold(0, |byte, (k, &value)| byte | u8::from(value != 0) << k);
    }
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_value() {
        for mask in [0, 1, 1 << 63, 0x8421_0000_ff00_1234, u64::MAX] {
            assert_eq!(mask_of(&ones(mask)), mask);
            assert!(ones(mask).iter().enumerate().all(|(k, &value)| value == (mask >> k & 1) as i16));
        }
        let mut block = [0; 64];
        (block[5], block[63]) = (-3, i16::MIN);
        assert_eq!(mask_of(&block), 1 << 5 | 1 << 63);
    }
}
