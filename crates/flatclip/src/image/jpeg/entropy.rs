//! Huffman-coded scans, baseline and progressive, into coefficients.

use super::{Frame, NATURAL_ORDER};

/// Bits that the fast table looks at.
const FAST: u32 = 9;

/// A Huffman table: codes of up to nine bits by table, longer ones by the largest code of each length.
pub(super) struct Huffman {
    /// Length in the high byte (0 = longer), symbol in the low one.
    fast: Vec<u16>,
    /// One more than the largest code of each length, aligned to 16 bits.
    ends: [u32; 17],
    /// What to add to a code of a length to find its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl Huffman {
    pub(super) fn new(counts: &[u8], symbols: &[u8]) -> Result<Self, String> {
        let mut table = Self { fast: vec![0; 1 << FAST], ends: [0; 17], offsets: [0; 17], symbols: symbols.to_vec() };
        let (mut code, mut index) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(counts) {
            table.offsets[length as usize] = index as i32 - code as i32;
            for _ in 0..count {
                if code >= 1 << length {
                    return Err("a Huffman table with too many codes".into());
                }
                if length <= FAST {
                    let from = (code << (FAST - length)) as usize;
                    let entry = (length as u16) << 8 | u16::from(symbols[index]);
                    table.fast[from..from + (1 << (FAST - length))].fill(entry);
                }
                code += 1;
                index += 1;
            }
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }
}

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

/// The bits of a scan. At a marker, or at the end of the file, there are only zeros left.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    buffer: u64,
    count: u32,
    /// How many of the buffer's bits are made-up zeros.
    fake: u32,
    /// Made-up zeros have been read: the data is damaged or cut off.
    exhausted: bool,
    ended: bool,
}

impl Bits<'_> {
    #[inline]
    fn fill(&mut self) {
        while self.count <= 48 {
            let Some(&byte) = self.data.get(self.at) else {
                self.ended = true;
                return;
            };
            if byte == 0xff {
                // Stuffed zero, or a marker (perhaps after fill bytes), where the data ends.
                match self.data.get(self.at + 1) {
                    Some(0) => self.at += 1,
                    Some(_) => return,
                    None => {
                        self.ended = true;
                        return;
                    }
                }
            }
            self.at += 1;
            self.buffer = self.buffer << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    #[inline]
    fn need(&mut self, count: u32) {
        if self.count < count {
            self.fill();
            if self.count < count {
                self.fake = self.fake.min(self.count) + 32;
                self.buffer <<= 32;
                self.count += 32;
            }
        }
    }

    #[inline]
    fn pass(&mut self, count: u32) {
        self.count -= count;
        self.exhausted |= self.count < self.fake;
    }

    #[inline]
    fn take(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        self.need(count);
        self.pass(count);
        (self.buffer >> self.count) as u32 & ((1 << count) - 1)
    }

    #[inline]
    fn symbol(&mut self, table: &Huffman) -> u8 {
        self.need(16);
        let peek = (self.buffer >> (self.count - 16)) as u32 & 0xffff;
        let entry = table.fast[(peek >> (16 - FAST)) as usize];
        if entry != 0 {
            self.pass(u32::from(entry >> 8));
            return entry as u8;
        }
        for length in FAST as usize + 1..=16 {
            if peek < table.ends[length] {
                self.pass(length as u32);
                let index = (peek >> (16 - length)) as i32 + table.offsets[length];
                return usize::try_from(index).ok().and_then(|i| table.symbols.get(i)).copied().unwrap_or(0);
            }
        }
        // No such code: libjpeg takes it for zero and goes on.
        self.pass(16);
        0
    }

    /// A signed value of `size` bits: those that start with 0 are negative.
    #[inline]
    fn value(&mut self, size: u32) -> i32 {
        if size == 0 {
            return 0;
        }
        let size = size.min(16);
        let bits = self.take(size) as i32;
        if bits < 1 << (size - 1) { bits - (1 << size) + 1 } else { bits }
    }

    /// Drops what is left before a marker and passes the restart marker, if one is there.
    fn restart(&mut self) {
        (self.buffer, self.count, self.fake) = (0, 0, 0);
        let rest = self.data.get(self.at..).unwrap_or(&[]);
        let marker = rest.windows(2).position(|pair| pair[0] == 0xff && pair[1] != 0 && pair[1] != 0xff);
        if let Some(place) = marker.filter(|&place| (0xd0..=0xd7).contains(&rest[place + 1])) {
            self.at += place + 2;
            self.exhausted = false;
        }
    }
}

/// Reads one scan.
pub(super) struct Decoder<'a> {
    bits: Bits<'a>,
    scan: Scan,
    direct: &'a [Option<Huffman>; 4],
    alternating: &'a [Option<Huffman>; 4],
    /// Last mean of each component.
    means: [i32; 4],
    /// Blocks that are known to hold nothing more.
    empty_run: u32,
}

/// A component of the scan with the numbers of its two tables.
type Member = (usize, usize, usize);

impl<'a> Decoder<'a> {
    pub(super) fn new(
        data: &'a [u8],
        scan: Scan,
        direct: &'a [Option<Huffman>; 4],
        alternating: &'a [Option<Huffman>; 4],
    ) -> Self {
        let bits = Bits { data, at: 0, buffer: 0, count: 0, fake: 0, exhausted: false, ended: false };
        Self { bits, scan, direct, alternating, means: [0; 4], empty_run: 0 }
    }

    /// Bytes of the scan's data; a marker follows.
    pub(super) fn used(&self) -> usize {
        self.bits.at
    }

    pub(super) fn run(&mut self, frame: &mut Frame, members: &[Member]) -> Result<(), String> {
        let (columns, rows, interleaved) = match members {
            // A scan of one component has no filling blocks.
            &[(index, _, _)] => {
                let component = &frame.components[index];
                (component.width.div_ceil(8), component.height.div_ceil(8), false)
            }
            _ => (frame.width.div_ceil(8 * frame.most_across), frame.height.div_ceil(8 * frame.most_down), true),
        };
        let mut left = self.scan.restart_interval;
        for unit in 0..columns * rows {
            if self.scan.restart_interval > 0 && left == 0 {
                self.bits.restart();
                (self.means, self.empty_run) = ([0; 4], 0);
                left = self.scan.restart_interval;
            }
            left = left.saturating_sub(1);
            if self.bits.exhausted {
                continue;
            }
            let (x, y) = (unit % columns, unit / columns);
            for &(index, direct, alternating) in members {
                let component = &mut frame.components[index];
                let (across, down) = if interleaved { (component.across, component.down) } else { (1, 1) };
                for place in 0..across * down {
                    let (column, row) = (x * across + place % across, y * down + place / across);
                    let block = &mut component.coefficients[row * component.block_columns + column];
                    self.block(block, index, direct, alternating)?;
                }
            }
            if self.bits.exhausted && self.bits.ended {
                return Err("the file ends before its picture does".into());
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
        let table = self.alternating[alternating].as_ref().ok_or(missing)?;
        match (scan.progressive, scan.refine) {
            (false, _) => self.whole(block, table),
            (true, false) => self.first_pass(block, table),
            (true, true) => self.refining_pass(block, table),
        }
        Ok(())
    }

    /// The rest of a baseline block: runs of zeros and values.
    fn whole(&mut self, block: &mut [i16; 64], table: &Huffman) {
        let mut k = 1;
        while k < 64 {
            let symbol = self.bits.symbol(table);
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run != 15 {
                    return;
                }
                k += 16;
                continue;
            }
            k += run;
            // A run beyond the block is damage; libjpeg writes such values to the last place.
            let place = NATURAL_ORDER[k.min(63)];
            block[usize::from(place)] = self.bits.value(size) as i16;
            k += 1;
        }
    }

    fn first_pass(&mut self, block: &mut [i16; 64], table: &Huffman) {
        if self.empty_run > 0 {
            self.empty_run -= 1;
            return;
        }
        let mut k = self.scan.first;
        while k <= self.scan.last {
            let symbol = self.bits.symbol(table);
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run != 15 {
                    self.empty_run = (1 << run) - 1 + self.bits.take(run);
                    return;
                }
                k += 16;
                continue;
            }
            k += run as usize;
            let place = NATURAL_ORDER[k.min(63)];
            block[usize::from(place)] = (self.bits.value(size) << self.scan.low) as i16;
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
                        *value = new;
                        break;
                    } else {
                        run -= 1;
                    }
                    k += 1;
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
    /// Moves a value away from zero by one bit, if the next bit says so.
    fn refine(&mut self, value: &mut i16, one: i16) {
        if self.take(1) == 1 && *value & one == 0 {
            *value = if *value >= 0 { value.wrapping_add(one) } else { value.wrapping_sub(one) };
        }
    }
}
