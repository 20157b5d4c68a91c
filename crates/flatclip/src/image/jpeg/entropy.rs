//! Huffman-coded scans, baseline and progressive, into coefficients.

use super::coefficients::Coefficients;
use super::huffman::{Bits, Huffman, Tables};
use super::{Frame, NATURAL_ORDER};

/// What a scan holds.
#[derive(Clone, Copy)]
pub(super) struct Scan {
    pub(super) progressive: bool,
    /// Range of coefficients, zigzag.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Adds a bit to known coefficients.
    pub(super) refine: bool,
    /// Position of the lowest bit.
    pub(super) low: u32,
    pub(super) restart_interval: usize,
}

/// Reads one scan. A copy continues from the same position.
#[derive(Clone)]
pub(super) struct Decoder<'a> {
    bits: Bits<'a>,
    scan: Scan,
    direct: Tables,
    alternating: Tables,
    /// Last mean of each component.
    means: [i32; 4],
    /// Blocks that are known to hold nothing more.
    empty_run: u32,
    /// Units up to the next restart.
    left: usize,
    /// Number of the next restart marker.
    restarts: u8,
}

/// A component of the scan with the numbers of its two tables.
pub(super) type Member = (usize, usize, usize);

impl<'a> Decoder<'a> {
    pub(super) fn new(data: &'a [u8], scan: Scan, direct: &Tables, alternating: &Tables) -> Self {
        let left = scan.restart_interval;
        let (direct, alternating) = (direct.clone(), alternating.clone());
        Self { bits: Bits::new(data), scan, direct, alternating, means: [0; 4], empty_run: 0, left, restarts: 0 }
    }

    /// Bytes of the scan's data, and the marker behind it if it was met.
    pub(super) fn used(&self) -> (usize, Option<u8>) {
        self.bits.used()
    }

    /// Units across and down. A scan of one component has no filling blocks.
    pub(super) fn units(frame: &Frame, members: &[Member]) -> (usize, usize) {
        match members {
            &[(index, _, _)] => {
                let component = &frame.components[index];
                (component.width.div_ceil(8), component.height.div_ceil(8))
            }
            _ => (frame.width.div_ceil(8 * frame.most_across), frame.height.div_ceil(8 * frame.most_down)),
        }
    }

    /// One row of units into `blocks` (one list for each component), whose first row of units has number 0.
    pub(super) fn row(
        &mut self,
        frame: &Frame,
        members: &[Member],
        blocks: &mut [Coefficients],
        y: usize,
    ) -> Result<(), String> {
        let (columns, _) = Self::units(frame, members);
        for x in 0..columns {
            if self.scan.restart_interval > 0 {
                if self.left == 0 {
                    self.bits.restart(self.restarts);
                    self.restarts = (self.restarts + 1) & 7;
                    (self.means, self.empty_run, self.left) = ([0; 4], 0, self.scan.restart_interval);
                }
                self.left -= 1;
            }
            if self.bits.exhausted {
                continue;
            }
            for &(index, direct, alternating) in members {
                let component = &frame.components[index];
                let (across, down) = if members.len() > 1 { (component.across, component.down) } else { (1, 1) };
                for place in 0..across * down {
                    if self.passes_over() {
                        continue;
                    }
                    let (column, row) = (x * across + place % across, y * down + place / across);
                    blocks[index].change(row, column, |block| self.block(block, index, direct, alternating))?;
                }
            }
            if self.bits.truncated {
                return Err("the file ends before its image does".into());
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &mut [i16; 64], index: usize, direct: usize, alternating: usize) -> Result<(), String> {
        let missing = "a Huffman table is missing";
        let scan = self.scan;
        if scan.first == 0 {
            if scan.refine {
                block[0] |= (self.bits.take(1) << scan.low) as i16;
            } else {
                let table = self.direct[direct].as_ref().ok_or(missing)?;
                let size = self.bits.symbol(table);
                self.means[index] = self.means[index].wrapping_add(self.bits.value(size.into()));
                block[0] = (self.means[index] << scan.low) as i16;
            }
        }
        if scan.last == 0 {
            return Ok(());
        }
        let table = self.alternating[alternating].clone().ok_or(missing)?;
        match (scan.progressive, scan.refine) {
            (false, _) => self.values::<false>(block, &table),
            (true, false) => self.values::<true>(block, &table),
            (true, true) => self.refining_pass(block, &table),
        }
        Ok(())
    }

    /// Whether the scan has no data for the next block.
    fn passes_over(&mut self) -> bool {
        let empty = self.empty_run > 0 && !self.scan.refine;
        self.empty_run -= u32::from(empty);
        empty
    }

    /// Runs of zeros and values: the rest of a baseline block, or the first pass over some of a progressive one.
    fn values<const PROGRESSIVE: bool>(&mut self, block: &mut [i16; 64], table: &Huffman) {
        let (first, last, low) =
            if PROGRESSIVE { (self.scan.first, self.scan.last, self.scan.low) } else { (1, 63, 0) };
        let mut k = first;
        while k <= last {
            let symbol = self.bits.symbol(table);
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run != 15 {
                    if PROGRESSIVE {
                        self.empty_run = (1 << run) - 1 + self.bits.take(run);
                    }
                    return;
                }
                k += 16;
                continue;
            }
            k += run as usize;
            // A run beyond the block is damage; libjpeg writes such values to the last place.
            let place = NATURAL_ORDER[k.min(63)];
            block[usize::from(place)] = (self.bits.value(size) << low) as i16;
            k += 1;
        }
    }

    /// One more bit for what is known, and new values of that size in between.
    fn refining_pass(&mut self, block: &mut [i16; 64], table: &Huffman) {
        let one = 1i16 << self.scan.low;
        let mut k = self.scan.first;
        if self.empty_run == 0 {
            while k <= self.scan.last {
                let symbol = self.bits.symbol(table);
                let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
                let mut new = 0;
                if size != 0 {
                    new = if self.bits.take(1) == 1 { one } else { -one };
                } else if run != 15 {
                    self.empty_run = (1 << run) + self.bits.take(run);
                    break;
                }
                // Passes `run` zeros, refining every value on the way.
                while k <= self.scan.last {
                    let value = &mut block[usize::from(NATURAL_ORDER[k])];
                    if *value != 0 {
                        self.bits.refine(value, one);
                    } else if run == 0 {
                        break;
                    } else {
                        run -= 1;
                    }
                    k += 1;
                }
                // Behind the last place in damaged data, as libjpeg does.
                if new != 0 {
                    block[usize::from(NATURAL_ORDER[k.min(63)])] = new;
                }
                k += 1;
            }
        }
        if self.empty_run > 0 {
            for k in k..=self.scan.last {
                let value = &mut block[usize::from(NATURAL_ORDER[k])];
                if *value != 0 {
                    self.bits.refine(value, one);
                }
            }
            self.empty_run -= 1;
        }
    }
}

impl Bits<'_> {
    /// Moves a value away from zero by one bit, if the next bit is set.
    fn refine(&mut self, value: &mut i16, one: i16) {
        if self.take(1) == 1 && *value & one == 0 {
            *value = if *value >= 0 { value.wrapping_add(one) } else { value.wrapping_sub(one) };
        }
    }
}
