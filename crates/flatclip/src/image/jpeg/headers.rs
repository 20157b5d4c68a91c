//! Markers and segments: everything but the scans' data.

use super::entropy::{Member, Scan};
use super::huffman::{Huffman, Tables};
use super::{Component, Frame, NATURAL_ORDER};
use std::rc::Rc;

/// libjpeg's limit on the blocks of a unit.
const MAX_UNIT_BLOCKS: usize = 10;

/// A file, read up to some place.
#[derive(Default)]
pub(super) struct File<'a> {
    bytes: &'a [u8],
    at: usize,
    /// A marker that a scan met.
    pending: Option<u8>,
    pub(super) quantization: [Option<[u16; 64]>; 4],
    pub(super) direct: Tables,
    pub(super) alternating: Tables,
    restart_interval: usize,
    pub(super) jfif: bool,
    pub(super) adobe: Option<u8>,
    pub(super) exif: Option<&'a [u8]>,
    frame: Option<Frame>,
    in_scans: bool,
}

impl<'a> File<'a> {
    /// Reads up to the first scan's header, which comes next.
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, Frame), String> {
        if !bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            return Err("not a JPEG file".into());
        }
        let mut file = Self { bytes, at: 2, ..Self::default() };
        loop {
            match file.marker()? {
                0xd9 => return Err("no image data".into()),
                0xda => break,
                code => file.read_segment(code)?,
            }
        }
        let frame = file.frame.take().ok_or("no frame header before the image's data")?;
        file.in_scans = true;
        Ok((file, frame))
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    /// Goes on behind a scan's data.
    pub(super) fn pass(&mut self, (used, marker): (usize, Option<u8>)) {
        self.at += used;
        self.pending = marker;
    }

    /// The next marker; garbage before it is skipped.
    pub(super) fn marker(&mut self) -> Result<u8, String> {
        if let Some(code) = self.pending.take() {
            return Ok(code);
        }
        loop {
            let start = self.rest().iter().position(|&b| b == 0xff);
            self.at += start.ok_or("the file ends before its image does")?;
            while self.bytes.get(self.at) == Some(&0xff) {
                self.at += 1;
            }
            let code = *self.bytes.get(self.at).ok_or("the file ends before its image does")?;
            self.at += 1;
            if code != 0 {
                return Ok(code);
            }
        }
    }

    /// The body of a segment; its length must lie inside the file.
    fn segment(&mut self) -> Result<&'a [u8], String> {
        let rest = self.rest();
        let &[high, low, ..] = rest else { return Err("the file ends inside a header".into()) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body =
            rest.get(2..length).ok_or_else(|| format!("a segment claims {length} bytes, {} are left", rest.len()))?;
        self.at += length;
        Ok(body)
    }

    pub(super) fn read_segment(&mut self, code: u8) -> Result<(), String> {
        match code {
            0xd0..=0xd7 => return Ok(()),
            0xc0..=0xc2 | 0xc4 | 0xdb..=0xdd | 0xe0..=0xef | 0xfe => {}
            0xc3 | 0xc5..=0xcf => {
                return Err(format!("JPEG process {code:#x} (lossless, arithmetic) is not supported"));
            }
            _ => return Err(format!("marker {code:#04x} where a segment should begin")),
        }
        let body = self.segment()?;
        match code {
            0xc0..=0xc2 => self.read_frame(body, code == 0xc2),
            0xc4 => self.read_huffman(body),
            0xdb => self.read_quantization(body),
            0xdd => {
                let &[high, low] = body else { return Err("a restart interval of wrong length".into()) };
                self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
                Ok(())
            }
            0xe0..=0xef => self.read_application(code, body),
            // Comments, and a number of lines that libjpeg does not use either.
            _ => Ok(()),
        }
    }

    /// What applications add. Colour profiles and the like say nothing about the pixels.
    fn read_application(&mut self, code: u8, body: &'a [u8]) -> Result<(), String> {
        let short = |name: &[u8]| body.starts_with(name) && body.len() < 7;
        if (code == 0xe0 && short(b"JFIF")) || (code == 0xee && short(b"Adobe")) {
            return Err("a short JFIF or Adobe segment".into());
        }
        match code {
            0xe0 => self.jfif |= body.starts_with(b"JFIF\0") && body.len() >= 14,
            0xe1 => self.exif = self.exif.or(body.strip_prefix(b"Exif\0\0")),
            0xee if body.starts_with(b"Adobe") => self.adobe = body.get(11).copied().or(self.adobe),
            _ => {}
        }
        Ok(())
    }

    fn read_frame(&mut self, body: &[u8], progressive: bool) -> Result<(), String> {
        if self.frame.is_some() || self.in_scans {
            return Err("two frame headers".into());
        }
        let &[bits, h1, h0, w1, w0, count, ref rest @ ..] = body else { return Err("a short frame header".into()) };
        let (width, height) = (usize::from(u16::from_be_bytes([w1, w0])), usize::from(u16::from_be_bytes([h1, h0])));
        if bits != 8 || !matches!(count, 1 | 3 | 4) || rest.len() != 3 * usize::from(count) {
            return Err(format!("{bits} bits and {count} components; expected 8 bits and 1, 3 or 4 components"));
        }
        if width == 0 || height == 0 {
            return Err(format!("the header says {width} x {height} pixels"));
        }
        let factors = |c: &[u8]| (usize::from(c[1] >> 4), usize::from(c[1] & 15));
        if rest
            .chunks_exact(3)
            .any(|c| !(1..=4).contains(&factors(c).0) || !(1..=4).contains(&factors(c).1) || c[2] > 3)
        {
            return Err("a sampling factor or table number out of range".into());
        }
        let most_across = rest.chunks_exact(3).map(|c| factors(c).0).max().unwrap_or(1);
        let most_down = rest.chunks_exact(3).map(|c| factors(c).1).max().unwrap_or(1);
        let unit_columns = width.div_ceil(8 * most_across);
        let unit_rows = height.div_ceil(8 * most_down);
        let component = |c: &[u8]| {
            let (across, down) = factors(c);
            Component {
                id: c[0],
                across,
                down,
                quantization: usize::from(c[2]),
                width: (width * across).div_ceil(most_across),
                height: (height * down).div_ceil(most_down),
                block_columns: unit_columns * across,
                block_rows: unit_rows * down,
                table: None,
                known: [-1; 64],
            }
        };
        let components = rest.chunks_exact(3).map(component).collect();
        self.frame = Some(Frame { width, height, progressive, most_across, most_down, components });
        Ok(())
    }

    fn read_quantization(&mut self, mut body: &[u8]) -> Result<(), String> {
        while let [head, rest @ ..] = body {
            let (wide, place) = (head >> 4 != 0, usize::from(head & 15));
            let len = if wide { 128 } else { 64 };
            let (values, rest) = rest.split_at_checked(len).ok_or("a short quantization table")?;
            let mut table = [0; 64];
            for (k, &to) in NATURAL_ORDER.iter().enumerate() {
                table[usize::from(to)] =
                    if wide { u16::from_be_bytes([values[2 * k], values[2 * k + 1]]) } else { u16::from(values[k]) };
            }
            *self.quantization.get_mut(place).ok_or("a quantization table above number 3")? = Some(table);
            body = rest;
        }
        Ok(())
    }

    fn read_huffman(&mut self, mut body: &[u8]) -> Result<(), String> {
        while let [head, rest @ ..] = body {
            let (counts, rest) = rest.split_at_checked(16).ok_or("a short Huffman table")?;
            let total: usize = counts.iter().map(|&n| usize::from(n)).sum();
            if total > 256 {
                return Err("a Huffman table with more than 256 symbols".into());
            }
            let (symbols, rest) = rest.split_at_checked(total).ok_or("a short Huffman table")?;
            let tables = match head >> 4 {
                0 => &mut self.direct,
                1 => &mut self.alternating,
                _ => return Err("a Huffman table of an unknown kind".into()),
            };
            let place = tables.get_mut(usize::from(head & 15)).ok_or("a Huffman table above number 3")?;
            *place = Some(Rc::new(Huffman::new(counts, symbols)?));
            body = rest;
        }
        Ok(())
    }

    /// The header of a scan, whose data follows.
    pub(super) fn read_scan(&mut self, frame: &mut Frame) -> Result<(Scan, Vec<Member>), String> {
        let body = self.segment()?;
        let &[count, ref rest @ ..] = body else { return Err("a short scan header".into()) };
        let (selectors, tail) = rest.split_at_checked(2 * usize::from(count)).ok_or("a short scan header")?;
        let &[first, last, approximation] = tail else { return Err("a scan header of wrong length".into()) };
        let (high, low) = (approximation >> 4, approximation & 15);
        let mut members: Vec<Member> = Vec::new();
        for pair in selectors.chunks_exact(2) {
            let index =
                frame.components.iter().position(|c| c.id == pair[0]).ok_or("a scan of an unknown component")?;
            if members.iter().any(|&(i, _, _)| i == index) {
                return Err("a component twice in a scan".into());
            }
            members.push((index, usize::from(pair[1] >> 4), usize::from(pair[1] & 15)));
        }
        let (first, last) = if frame.progressive { (usize::from(first), usize::from(last)) } else { (0, 63) };
        let band = if first == 0 { last == 0 } else { members.len() == 1 && first <= last && last < 64 };
        let bits = low <= 13 && (high == 0 || low + 1 == high);
        let blocks = |&(index, _, _): &Member| frame.components[index].across * frame.components[index].down;
        let crowded = members.len() > 1 && members.iter().map(blocks).sum::<usize>() > MAX_UNIT_BLOCKS;
        if members.is_empty() || crowded || (frame.progressive && !(band && bits)) {
            return Err(format!("a scan header that makes no sense: {body:02x?}"));
        }
        let scan = Scan {
            progressive: frame.progressive,
            first,
            last,
            refine: frame.progressive && high != 0,
            low: if frame.progressive { u32::from(low) } else { 0 },
            restart_interval: self.restart_interval,
        };
        self.check_tables(&scan, &members)?;
        for &(index, _, _) in &members {
            let component = &mut frame.components[index];
            // The table that is valid when a component is first met stays.
            if component.table.is_none() {
                component.table =
                    Some(self.quantization[component.quantization].ok_or("a quantization table is missing")?);
            }
            component.known[first..=last].fill(scan.low as i8);
        }
        Ok((scan, members))
    }

    fn check_tables(&self, scan: &Scan, members: &[Member]) -> Result<(), String> {
        for &(_, direct, alternating) in members {
            let means = scan.first == 0 && !scan.refine;
            let table = self.direct.get(direct).and_then(Option::as_ref);
            if means && !table.ok_or("a Huffman table is missing")?.holds_sizes() {
                return Err("a Huffman table with sizes above 15".into());
            }
            if scan.last > 0 && self.alternating.get(alternating).is_none_or(Option::is_none) {
                return Err("a Huffman table is missing".into());
            }
        }
        Ok(())
    }
}
