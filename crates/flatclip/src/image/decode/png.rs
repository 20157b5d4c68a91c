//! PNG, row by row: rows of 16 bits or with opacity become bytes one at a time, so that only the result is in memory.

use super::{File, Mode, Result, Source};
use ::image::metadata::Orientation;
use png::{BitDepth, ColorType, InterlaceInfo};
use std::io::Cursor;

/// Bytes that the decoder may take in addition to the pixels.
const CHUNK_BYTES: usize = 16 << 20;

impl File<'_> {
    pub(super) fn png(&self) -> Result<Source> {
        check_chunks(self.bytes).map_err(|e| self.error(e))?;
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(self.bytes), png::Limits { bytes: CHUNK_BYTES });
        decoder.set_transformations(png::Transformations::IDENTITY);
        // Neither changes the pixels as PIL gives them, and both unpack to any size.
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        let info = decoder.read_header_info().map_err(|e| self.error(e))?;
        let (width, height) = (info.width as usize, info.height as usize);
        self.check_size(width as u64, height as u64)?;
        let interlaced = info.interlaced;
        let mut reader = decoder.read_info().map_err(|e| self.error(e))?;
        let info = reader.info();
        let palette = info.palette.as_deref().unwrap_or_default().to_vec();
        if info.color_type == ColorType::Indexed && palette.is_empty() {
            return Err(self.error("no palette"));
        }
        let orientation = info.exif_metadata.as_deref().and_then(Orientation::from_exif_chunk);
        let row = Row {
            colour: info.color_type,
            depth: info.bit_depth,
            palette,
            as_rgb: self.as_rgb,
            scale_grey: self.options.exif,
        };
        if row.scale_grey && (row.colour, row.depth) == (ColorType::Grayscale, BitDepth::Sixteen) {
            self.note(|notes| notes.scaled_grey = true);
        }
        let channels = row.mode().channels();
        let stride = width * channels;
        let mut samples = vec![0; stride * height];
        let mut line = vec![0; stride];
        // The rows that make the image, and no more: what follows may be endless.
        let rows = if interlaced { interlaced_rows(width, height) } else { height };
        for y in 0..rows {
            let read = reader.next_interlaced_row().map_err(|e| self.error(e))?;
            let read = read.ok_or_else(|| self.error("the file ends before its image does"))?;
            match read.interlace() {
                InterlaceInfo::Null(_) => row.convert(read.data(), &mut samples[y * stride..][..stride]),
                InterlaceInfo::Adam7(info) => {
                    let used = (row.pixels(read.data().len()) * channels).min(stride);
                    row.convert(read.data(), &mut line[..used]);
                    png::expand_interlaced_row(&mut samples, stride, &line[..used], info, 8 * channels as u8);
                }
            }
        }
        let source = Source { palette: row.palette.clone(), ..Source::new(width, height, row.mode(), samples) };
        Ok(self.turn(source, orientation, self.options.exif))
    }
}

/// The checksums of all chunks up to the end of the pixels. The decoder looks at the last of them only after the last row,
/// if at all.
fn check_chunks(bytes: &[u8]) -> std::result::Result<(), String> {
    let mut rest = bytes.get(8..).unwrap_or(&[]);
    let mut in_pixels = false;
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let [l0, l1, l2, l3, kind @ ..] = *head;
        if in_pixels && kind != *b"IDAT" {
            return Ok(());
        }
        in_pixels = kind == *b"IDAT";
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let sum = after.get(length..).and_then(|sum| sum.first_chunk::<4>());
        let sum = sum.ok_or_else(|| format!("chunk {} ends behind the file", kind.escape_ascii()))?;
        if crc32fast::hash(&rest[4..8 + length]) != u32::from_be_bytes(*sum) {
            return Err(format!("the checksum of chunk {} is wrong", kind.escape_ascii()));
        }
        rest = &after[length + 4..];
    }
    if in_pixels { Ok(()) } else { Err("the file ends before its image does".into()) }
}

/// Rows in the seven passes of an interlaced image; a pass without columns has none.
fn interlaced_rows(width: usize, height: usize) -> usize {
    let passes = [(0, 0, 8), (4, 0, 8), (0, 4, 8), (2, 0, 4), (0, 2, 4), (1, 0, 2), (0, 1, 2)];
    let rows = |(left, top, step): (usize, usize, usize)| {
        if width > left { height.saturating_sub(top).div_ceil(step) } else { 0 }
    };
    passes.into_iter().map(rows).sum()
}

/// How a row of the file becomes a row of samples.
struct Row {
    colour: ColorType,
    depth: BitDepth,
    palette: Vec<u8>,
    as_rgb: bool,
    scale_grey: bool,
}

impl Row {
    fn mode(&self) -> Mode {
        match (self.colour, self.depth) {
            (ColorType::Indexed, _) | (ColorType::Grayscale, BitDepth::One) => Mode::Palette,
            (ColorType::Grayscale, _) => Mode::Luma,
            (ColorType::Rgb, _) => Mode::Rgb,
            (ColorType::GrayscaleAlpha, _) if self.as_rgb => Mode::Luma,
            (ColorType::GrayscaleAlpha, _) => Mode::LumaAlpha,
            (ColorType::Rgba, _) if self.as_rgb => Mode::Rgb,
            (ColorType::Rgba, _) => Mode::Rgba,
        }
    }

    /// Pixels in so many bytes of the file, counting the filling at the end.
    fn pixels(&self, bytes: usize) -> usize {
        bytes * 8 / (self.colour.samples() * self.depth as usize)
    }

    fn convert(&self, row: &[u8], out: &mut [u8]) {
        let channels = self.mode().channels();
        match (self.colour, self.depth) {
            (ColorType::Indexed, depth) => {
                for (to, index) in out.chunks_exact_mut(3).zip(packed(row, depth)) {
                    let at = usize::from(index) * 3;
                    to.copy_from_slice(self.palette.get(at..at + 3).unwrap_or(&[0, 0, 0]));
                }
            }
            (ColorType::Grayscale, BitDepth::One) => {
                out.chunks_exact_mut(3).zip(packed(row, BitDepth::One)).for_each(|(to, bit)| to.fill(bit * 255));
            }
            (ColorType::Grayscale, BitDepth::Sixteen) => {
                let grey = |pair: &[u8]| match pair[0] {
                    high if self.scale_grey => high,
                    0 => pair[1],
                    _ => 255,
                };
                out.iter_mut().zip(row.chunks_exact(2)).for_each(|(to, pair)| *to = grey(pair));
            }
            (ColorType::Grayscale, depth) => {
                let step = match depth {
                    BitDepth::Two => 85,
                    BitDepth::Four => 17,
                    _ => 1,
                };
                out.iter_mut().zip(packed(row, depth)).for_each(|(to, value)| *to = value * step);
            }
            (colour, BitDepth::Eight) if colour.samples() == channels => {
                let bytes = out.len().min(row.len());
                out[..bytes].copy_from_slice(&row[..bytes]);
            }
            // Of 16 bits, the high byte; of the samples, as many as are wanted.
            (colour, depth) => {
                let bytes = if depth == BitDepth::Sixteen { 2 } else { 1 };
                for (to, pixel) in out.chunks_exact_mut(channels).zip(row.chunks_exact(colour.samples() * bytes)) {
                    to.iter_mut().zip(pixel.iter().step_by(bytes)).for_each(|(to, value)| *to = *value);
                }
            }
        }
    }
}

/// Samples of up to eight bits, the first in the highest bits.
fn packed(row: &[u8], depth: BitDepth) -> impl Iterator<Item = u8> {
    let bits = depth as usize;
    let mask = (1u16 << bits) - 1;
    row.iter()
        .flat_map(move |&byte| (0..8 / bits).map(move |i| ((u16::from(byte) >> (8 - bits * (i + 1))) & mask) as u8))
}
