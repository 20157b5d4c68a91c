//! Huffman tables and the bits of a scan, with libjpeg's rules for damaged data.

use std::rc::Rc;

/// Bits that the fast table looks at.
const FAST: u32 = 9;
/// A code that does not exist is found after this many bits.
const NO_CODE: u32 = 17;
/// Bits that the buffer is filled up to.
const FULL: u32 = 57;

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

    /// Whether the symbols can be sizes of mean values.
    pub(super) fn holds_sizes(&self) -> bool {
        self.symbols.iter().all(|&symbol| symbol <= 15)
    }

    /// Length of the code at the beginning of 16 bits, and its symbol; a code that does not exist counts as zero.
    #[inline]
    fn find(&self, peek: u32) -> (u32, u8) {
        let entry = self.fast[(peek >> (16 - FAST)) as usize];
        if entry != 0 {
            return (u32::from(entry >> 8), entry as u8);
        }
        for length in FAST as usize + 1..=16 {
            if peek < self.ends[length] {
                let index = (peek >> (16 - length)) as i32 + self.offsets[length];
                let symbol = usize::try_from(index).ok().and_then(|i| self.symbols.get(i));
                return (length as u32, symbol.copied().unwrap_or(0));
            }
        }
        (NO_CODE, 0)
    }
}

/// The tables of a kind by their numbers; scans that are read again share them.
pub(super) type Tables = [Option<Rc<Huffman>>; 4];

/// The bits of a scan. At a marker there are only zeros left.
#[derive(Clone)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    buffer: u64,
    count: u32,
    /// The marker that ended the data; 0 before it is met.
    marker: u8,
    /// Zeros behind the end have been read: what follows up to the next restart is damaged or cut off.
    pub(super) exhausted: bool,
    /// The file ended before a marker came.
    pub(super) truncated: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, buffer: 0, count: 0, marker: 0, exhausted: false, truncated: false }
    }

    /// Bytes that were read, and the marker if it was among them.
    pub(super) fn used(&self) -> (usize, Option<u8>) {
        (self.at, Some(self.marker).filter(|&marker| marker != 0))
    }

    #[inline]
    fn fill(&mut self) {
        while self.marker == 0 && self.count < FULL {
            let Some(&byte) = self.data.get(self.at) else {
                self.truncated = true;
                return;
            };
            self.at += 1;
            if byte == 0xff {
                // A stuffed zero, or a marker, perhaps after fill bytes.
                let rest = &self.data[self.at..];
                let Some(fill) = rest.iter().position(|&b| b != 0xff) else {
                    self.truncated = true;
                    return;
                };
                self.at += fill + 1;
                if rest[fill] != 0 {
                    self.marker = rest[fill];
                    return;
                }
            }
            self.buffer = self.buffer << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    #[inline]
    fn pass(&mut self, count: u32) {
        if count > self.count {
            self.exhausted = true;
            self.buffer <<= FULL - self.count;
            self.count = FULL;
        }
        self.count -= count;
    }

    #[inline]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        if self.count < count {
            self.fill();
        }
        self.pass(count);
        (self.buffer >> self.count) as u32 & ((1 << count) - 1)
    }

    #[inline]
    pub(super) fn symbol(&mut self, table: &Huffman) -> u8 {
        if self.count < NO_CODE {
            self.fill();
        }
        let peek = if self.count >= 16 { self.buffer >> (self.count - 16) } else { self.buffer << (16 - self.count) };
        let (length, symbol) = table.find(peek as u32 & 0xffff);
        self.pass(length);
        symbol
    }

    /// A signed value of `size` bits: those that start with 0 are negative.
    #[inline]
    pub(super) fn value(&mut self, size: u32) -> i32 {
        if size == 0 {
            return 0;
        }
        let bits = self.take(size) as i32;
        if bits < 1 << (size - 1) { bits - (1 << size) + 1 } else { bits }
    }

    /// Drops what is left before a marker and passes the restart marker with this number, if it is there. Otherwise it is
    /// decided as libjpeg does whether data is missing (the marker stays, and zeros are read until its turn comes) or
    /// whether the marker itself is damaged (it is passed).
    pub(super) fn restart(&mut self, number: u8) {
        (self.buffer, self.count) = (0, 0);
        if self.marker == 0 {
            self.next_marker();
        }
        while !self.truncated {
            let ahead = self.marker.wrapping_sub(0xd0 + number) & 7;
            match self.marker {
                0xd0..=0xd7 if matches!(ahead, 1 | 2) => break,
                0xd0..=0xd7 if !matches!(ahead, 6 | 7) => {
                    self.marker = 0;
                    break;
                }
                0xc0..=0xcf | 0xd8..=0xff => break,
                _ => self.next_marker(),
            }
        }
        if self.marker == 0 {
            self.exhausted = false;
        }
    }

    fn next_marker(&mut self) {
        let rest = self.data.get(self.at..).unwrap_or(&[]);
        match rest.windows(2).position(|pair| pair[0] == 0xff && pair[1] != 0 && pair[1] != 0xff) {
            Some(place) => (self.at, self.marker) = (self.at + place + 2, rest[place + 1]),
            None => self.truncated = true,
        }
    }
}
