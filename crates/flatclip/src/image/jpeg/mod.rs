//! JPEG, bit for bit as libjpeg-turbo decodes it with its default settings: accurate integer IDCT, "fancy" (triangle)
//! chroma upsampling, 16-bit colour tables. Why it is our own: `docs/adr/0003-jpeg-decoder.md`.
//!
//! Baseline and progressive Huffman files with 8 bits, one, three or four components. A data segment that ends too
//! early is filled up with grey, as libjpeg does; a file that ends inside its picture is an error, as in PIL.

mod colour;
mod entropy;
mod idct;

use super::{Mode, Source};
use entropy::{Decoder, Huffman, Scan};

/// Coefficients of a block are stored in zigzag order; this is where each belongs.
const NATURAL_ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Width and height from the frame header, before anything is allocated.
pub(super) fn dimensions(bytes: &[u8]) -> Result<(usize, usize), String> {
    let mut file = File::new(bytes);
    file.read_header()?;
    let frame = file.frame.as_ref().ok_or("no frame header")?;
    Ok((frame.width, frame.height))
}

/// The EXIF entry, if the header has one.
pub(super) fn exif(bytes: &[u8]) -> Option<&[u8]> {
    let mut file = File::new(bytes);
    file.read_header().ok()?;
    file.exif
}

/// All pixels, in the file's own colour mode (YCbCr as RGB, YCCK as CMYK).
pub(super) fn decode(bytes: &[u8]) -> Result<Source, String> {
    let mut file = File::new(bytes);
    file.read_header()?;
    file.read_scans()?;
    file.finish()
}

/// A colour component of the frame.
struct Component {
    id: u8,
    /// Sampling factors.
    across: usize,
    down: usize,
    quantization: usize,
    /// Samples that mean something.
    width: usize,
    height: usize,
    /// Blocks, filled up to whole units of the scan.
    block_columns: usize,
    block_rows: usize,
    coefficients: Vec<[i16; 64]>,
}

struct Frame {
    width: usize,
    height: usize,
    progressive: bool,
    most_across: usize,
    most_down: usize,
    components: Vec<Component>,
}

struct File<'a> {
    bytes: &'a [u8],
    at: usize,
    quantization: [Option<[u16; 64]>; 4],
    direct: [Option<Huffman>; 4],
    alternating: [Option<Huffman>; 4],
    restart_interval: usize,
    jfif: bool,
    adobe: Option<u8>,
    exif: Option<&'a [u8]>,
    frame: Option<Frame>,
}

impl<'a> File<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 2,
            quantization: [None; 4],
            direct: [const { None }; 4],
            alternating: [const { None }; 4],
            restart_interval: 0,
            jfif: false,
            adobe: None,
            exif: None,
            frame: None,
        }
    }

    /// The next marker; garbage before it is skipped.
    fn marker(&mut self) -> Result<u8, String> {
        loop {
            let start = self.bytes.get(self.at..).and_then(|rest| rest.iter().position(|&b| b == 0xff));
            self.at += start.ok_or("the file ends before its picture does")?;
            while self.bytes.get(self.at) == Some(&0xff) {
                self.at += 1;
            }
            let code = *self.bytes.get(self.at).ok_or("the file ends before its picture does")?;
            self.at += 1;
            if code != 0 {
                return Ok(code);
            }
        }
    }

    /// The body of a segment; its length must lie inside the file.
    fn segment(&mut self) -> Result<&'a [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let &[high, low, ..] = rest else { return Err("the file ends inside a header".into()) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body =
            rest.get(2..length).ok_or_else(|| format!("a segment claims {length} bytes, {} are left", rest.len()))?;
        self.at += length;
        Ok(body)
    }

    /// Reads up to and including the frame header.
    fn read_header(&mut self) -> Result<(), String> {
        if !self.bytes.starts_with(&[0xff, 0xd8]) {
            return Err("not a JPEG file".into());
        }
        while self.frame.is_none() {
            match self.marker()? {
                0xd9 | 0xda => return Err("no frame header before the picture's data".into()),
                code => self.read_segment(code)?,
            }
        }
        Ok(())
    }

    fn read_segment(&mut self, code: u8) -> Result<(), String> {
        match code {
            0x01 | 0xd0..=0xd8 => {}
            0xc0..=0xc2 => {
                let body = self.segment()?;
                self.read_frame(body, code == 0xc2)?;
            }
            0xc4 => {
                let body = self.segment()?;
                self.read_huffman(body)?;
            }
            0xc3 | 0xc5..=0xcf => {
                return Err(format!("JPEG process {code:#x} (lossless, arithmetic) is not supported"));
            }
            0xdb => {
                let body = self.segment()?;
                self.read_quantization(body)?;
            }
            0xdd => {
                let body = self.segment()?;
                let &[high, low] = body else { return Err("a restart interval of wrong length".into()) };
                self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
            }
            0xe0 => self.jfif |= self.segment()?.starts_with(b"JFIF\0"),
            0xee => {
                let body = self.segment()?;
                if let Some(&transform) = body.get(11).filter(|_| body.starts_with(b"Adobe")) {
                    self.adobe = Some(transform);
                }
            }
            0xe1 => self.exif = self.exif.or(self.segment()?.strip_prefix(b"Exif\0\0")),
            // Everything else (colour profiles, comments) says nothing about the pixels.
            _ => drop(self.segment()?),
        }
        Ok(())
    }

    fn read_frame(&mut self, body: &[u8], progressive: bool) -> Result<(), String> {
        if self.frame.is_some() {
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
                coefficients: Vec::new(),
            }
        };
        let components = rest.chunks_exact(3).map(component).collect();
        self.frame = Some(Frame { width, height, progressive, most_across, most_down, components });
        Ok(())
    }

    fn read_quantization(&mut self, mut body: &[u8]) -> Result<(), String> {
        while let [head, rest @ ..] = body {
            let (wide, place) = (head >> 4 == 1, usize::from(head & 15));
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
            let total = counts.iter().map(|&n| usize::from(n)).sum();
            let (symbols, rest) = rest.split_at_checked(total).ok_or("a short Huffman table")?;
            let tables = if head >> 4 == 0 { &mut self.direct } else { &mut self.alternating };
            let place = tables.get_mut(usize::from(head & 15)).ok_or("a Huffman table above number 3")?;
            *place = Some(Huffman::new(counts, symbols)?);
            body = rest;
        }
        Ok(())
    }

    /// Reads all scans up to the end of the picture.
    fn read_scans(&mut self) -> Result<(), String> {
        let frame = self.frame.as_mut().ok_or("no frame header")?;
        // A block takes at least one bit of the file, so a small file cannot ask for much memory.
        let blocks: usize = frame.components.iter().map(|c| c.block_columns * c.block_rows).sum();
        if blocks / 8 > self.bytes.len() {
            return Err(format!("{} x {} pixels in {} bytes", frame.width, frame.height, self.bytes.len()));
        }
        for component in &mut frame.components {
            component.coefficients = vec![[0; 64]; component.block_columns * component.block_rows];
        }
        let mut scans = 0;
        loop {
            match self.marker() {
                Ok(0xda) => {
                    self.read_scan()?;
                    scans += 1;
                    // Each scan visits every block: more of them than any encoder writes is an attack.
                    if scans > 1000 {
                        return Err("more than 1000 scans".into());
                    }
                }
                Ok(0xd9) if scans > 0 => return Ok(()),
                Ok(0xd9) => return Err("no picture data".into()),
                Ok(code) => self.read_segment(code)?,
                // The picture is there; only the end marker is missing.
                Err(_) if scans > 0 => return Ok(()),
                Err(reason) => return Err(reason),
            }
        }
    }

    fn read_scan(&mut self) -> Result<(), String> {
        let body = self.segment()?;
        let frame = self.frame.as_mut().ok_or("no frame header")?;
        let [count, rest @ ..] = body else { return Err("a short scan header".into()) };
        let (selectors, tail) = rest.split_at_checked(2 * usize::from(*count)).ok_or("a short scan header")?;
        let &[first, last, approximation, ..] = tail else { return Err("a short scan header".into()) };
        let (high, low) = (approximation >> 4, approximation & 15);
        let mut members = Vec::new();
        for pair in selectors.chunks_exact(2) {
            let index =
                frame.components.iter().position(|c| c.id == pair[0]).ok_or("a scan of an unknown component")?;
            if members.iter().any(|&(i, _, _)| i == index) {
                return Err("a component twice in a scan".into());
            }
            members.push((index, usize::from(pair[1] >> 4) & 3, usize::from(pair[1] & 15) & 3));
        }
        let spectral = if frame.progressive { (first, last) } else { (0, 63) };
        let sound = !members.is_empty() && spectral.0 <= spectral.1 && spectral.1 < 64 && low <= 13;
        let lone = spectral.0 == 0 || members.len() == 1;
        if !sound || !lone || (frame.progressive && spectral.0 == 0 && spectral.1 != 0) {
            return Err(format!("a scan header that makes no sense: {body:02x?}"));
        }
        let scan = Scan {
            progressive: frame.progressive,
            first: usize::from(spectral.0),
            last: usize::from(spectral.1),
            refine: frame.progressive && high != 0,
            low: if frame.progressive { u32::from(low) } else { 0 },
            restart_interval: self.restart_interval,
        };
        let data = self.bytes.get(self.at..).unwrap_or(&[]);
        let mut decoder = Decoder::new(data, scan, &self.direct, &self.alternating);
        decoder.run(frame, &members)?;
        self.at += decoder.used();
        Ok(())
    }

    fn finish(self) -> Result<Source, String> {
        let frame = self.frame.ok_or("no frame header")?;
        let mut planes = Vec::with_capacity(frame.components.len());
        for component in &frame.components {
            let table = self.quantization[component.quantization].ok_or("a quantization table is missing")?;
            let samples = idct::samples(component, &table);
            planes.push(colour::upsample(&samples, component, &frame)?);
        }
        let ids: Vec<u8> = frame.components.iter().map(|c| c.id).collect();
        let has_luma = match (planes.len(), self.adobe) {
            (3, _) if self.jfif => true,
            (3, Some(transform)) => transform != 0,
            (3, None) => ids != [b'R', b'G', b'B'],
            (4, Some(transform)) => transform != 0,
            _ => false,
        };
        let (mode, samples) = colour::interleave(&planes, has_luma);
        Ok(Source { width: frame.width, height: frame.height, mode, samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that libjpeg's encoder wrote, with the checksum of the RGB bytes that PIL decodes them to.
    const FILES: &[(&str, &[u8], u32)] = &[
        ("baseline-444", include_bytes!("testdata/baseline-444.jpg"), 0x4ac46c4c),
        ("baseline-422", include_bytes!("testdata/baseline-422.jpg"), 0xdecb646a),
        ("baseline-420", include_bytes!("testdata/baseline-420.jpg"), 0xea3d93be),
        ("baseline-440", include_bytes!("testdata/baseline-440.jpg"), 0xf1490bc4),
        ("baseline-411", include_bytes!("testdata/baseline-411.jpg"), 0x68fef3da),
        ("progressive-420", include_bytes!("testdata/progressive-420.jpg"), 0x615391de),
        ("progressive-444", include_bytes!("testdata/progressive-444.jpg"), 0xb6791188),
        ("restarts", include_bytes!("testdata/restarts.jpg"), 0x01a104ee),
        ("grey", include_bytes!("testdata/grey.jpg"), 0x97260a21),
        ("cmyk", include_bytes!("testdata/cmyk.jpg"), 0xfac1d2dd),
        ("rgb", include_bytes!("testdata/rgb.jpg"), 0xfac1d2dd),
        ("narrow", include_bytes!("testdata/narrow.jpg"), 0x7a093c35),
    ];

    #[test]
    fn every_kind_of_file_decodes_to_the_bytes_of_libjpeg_turbo() {
        for (name, bytes, sum) in FILES {
            let picture = decode(bytes).unwrap().to_picture();
            assert_eq!(dimensions(bytes).unwrap(), (picture.width, picture.height), "{name}");
            assert_eq!(crc32fast::hash(&picture.rgb), *sum, "{name}");
        }
    }

    #[test]
    fn a_file_that_ends_inside_its_picture_is_an_error() {
        for (name, bytes, _) in FILES {
            let data = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
            for end in [2, data / 2, data + 1, data + 14] {
                assert!(decode(&bytes[..end]).is_err(), "{name} cut at {end}");
            }
        }
    }

    #[test]
    fn flipped_bytes_never_panic() {
        let mut stream = crate::rng::Stream::new(1, &["damage"]);
        for (_, bytes, _) in FILES {
            for _ in 0..300 {
                let mut damaged = bytes.to_vec();
                for _ in 0..1 + stream.below(4) {
                    let at = stream.below(damaged.len());
                    damaged[at] = stream.bits() as u8;
                }
                if dimensions(&damaged).is_ok_and(|(width, height)| width * height < 1 << 20) {
                    let _ = decode(&damaged);
                }
            }
        }
    }

    #[test]
    fn a_small_file_cannot_ask_for_much_memory() {
        let mut bytes = FILES[0].1.to_vec();
        let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        bytes[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
        assert!(decode(&bytes).err().unwrap().contains("65535 x 65535"));
    }
}
