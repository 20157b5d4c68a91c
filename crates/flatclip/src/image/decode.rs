//! Files to pixels, by content and not by name: JPEG, PNG, WebP, BMP and the first frame of a GIF.
//!
//! Everything becomes RGB as PIL's `convert("RGB")` does it: alpha is dropped, palettes are looked up, of 16-bit colours
//! the high byte is kept, while 16-bit grey is cut off at 255 (before scaling, in either order of conversion). Colour
//! profiles are ignored.

use super::preprocess::multiply;
use super::{Picture, jpeg};
use crate::{Error, Result};
use ::image::metadata::Orientation;
use ::image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;
use std::path::Path;

/// What decodes pictures, for the record: our own JPEG decoder, the `image` crate for the rest.
pub const DECODER: &str = "flatclip-jpeg; image 0.25 for other formats";

/// What is read, and how much of it.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    /// Largest `width x height`; checked in the header, before anything is allocated.
    pub max_pixels: u64,
    /// Largest file.
    pub max_bytes: u64,
    /// Turn the picture as its EXIF entry says. The original code bases do not.
    pub exif_rotation: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { max_pixels: 100_000_000, max_bytes: 256 << 20, exif_rotation: false }
    }
}

/// What the samples of a file mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Grey.
    Luma,
    /// Grey and opacity.
    LumaAlpha,
    /// Colour.
    Rgb,
    /// Colour and opacity.
    Rgba,
    /// Palette or black-and-white, already looked up as RGB; PIL scales these without interpolation.
    Palette,
    /// Ink, 255 is full.
    Cmyk,
}

impl Mode {
    /// Samples per pixel.
    pub fn channels(self) -> usize {
        match self {
            Self::Luma => 1,
            Self::LumaAlpha => 2,
            Self::Rgb | Self::Palette => 3,
            Self::Rgba | Self::Cmyk => 4,
        }
    }

    /// Whether the last sample is opacity.
    pub fn has_alpha(self) -> bool {
        matches!(self, Self::LumaAlpha | Self::Rgba)
    }
}

/// A decoded file in its own colour mode.
#[derive(Clone, Debug)]
pub struct Source {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// What the samples mean.
    pub mode: Mode,
    /// `height x width x channels` bytes.
    pub samples: Vec<u8>,
}

impl Source {
    /// Decodes a file; `path` is for messages.
    pub fn decode(path: &Path, bytes: &[u8], options: &DecodeOptions) -> Result<Self> {
        File { path, bytes, options }.decode()
    }

    /// As RGB.
    pub fn to_picture(&self) -> Picture {
        let pixels = self.samples.chunks_exact(self.mode.channels());
        let rgb: Vec<u8> = match self.mode {
            Mode::Rgb | Mode::Palette => self.samples.clone(),
            Mode::Luma | Mode::LumaAlpha => pixels.flat_map(|p| [p[0]; 3]).collect(),
            Mode::Rgba => pixels.flat_map(|p| [p[0], p[1], p[2]]).collect(),
            Mode::Cmyk => pixels
                .flat_map(|p| {
                    let light = 255 - p[3];
                    [p[0], p[1], p[2]].map(|ink| light - multiply(ink, light))
                })
                .collect(),
        };
        Picture { width: self.width, height: self.height, rgb }
    }
}

/// Decodes a picture that has no file name.
pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<Picture> {
    decode_from(Path::new("picture"), bytes, options)
}

/// Decodes a picture; `path` is for messages.
pub fn decode_from(path: &Path, bytes: &[u8], options: &DecodeOptions) -> Result<Picture> {
    let source = Source::decode(path, bytes, options)?;
    if source.mode == Mode::Rgb {
        return Ok(Picture { width: source.width, height: source.height, rgb: source.samples });
    }
    Ok(source.to_picture())
}

struct File<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    options: &'a DecodeOptions,
}

impl File<'_> {
    fn error(&self, reason: impl std::fmt::Display) -> Error {
        Error::Image { path: self.path.to_path_buf(), reason: reason.to_string() }
    }

    fn limit(&self, what: &str, asked: u64, allowed: u64) -> Result<()> {
        if asked <= allowed {
            return Ok(());
        }
        let what = format!("{}: {what}", self.path.display());
        Err(Error::Limit { what, asked, allowed, hint: "scale the picture down or raise the limit".into() })
    }

    fn check_size(&self, width: u64, height: u64) -> Result<()> {
        if width == 0 || height == 0 {
            return Err(self.error(format!("the header says {width} x {height} pixels")));
        }
        self.limit("pixels", width * height, self.options.max_pixels)
    }

    fn decode(&self) -> Result<Source> {
        self.limit("bytes", self.bytes.len() as u64, self.options.max_bytes)?;
        let unknown = || {
            let start = &self.bytes[..self.bytes.len().min(8)];
            self.error(format!("not a JPEG, PNG, WebP, BMP or GIF picture (it starts with {start:02x?})"))
        };
        match ::image::guess_format(self.bytes).map_err(|_| unknown())? {
            ImageFormat::Gif => self.gif(),
            ImageFormat::Jpeg => self.jpeg(),
            format @ (ImageFormat::Png | ImageFormat::WebP | ImageFormat::Bmp) => self.still(format),
            _ => Err(unknown()),
        }
    }

    fn jpeg(&self) -> Result<Source> {
        let (width, height) = jpeg::dimensions(self.bytes).map_err(|e| self.error(e))?;
        self.check_size(width as u64, height as u64)?;
        let source = jpeg::decode(self.bytes).map_err(|e| self.error(e))?;
        // A broken EXIF entry turns nothing.
        Ok(self.turn(source, jpeg::exif(self.bytes).and_then(Orientation::from_exif_chunk)))
    }

    fn still(&self, format: ImageFormat) -> Result<Source> {
        let mut reader = ImageReader::with_format(Cursor::new(self.bytes), format);
        // A pixel has at most 8 bytes (16-bit RGBA), and decoders may keep a second copy.
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(self.options.max_pixels.saturating_mul(16));
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(|e| self.error(e))?;
        let (width, height) = decoder.dimensions();
        self.check_size(width.into(), height.into())?;
        let orientation = decoder.orientation().ok();
        let picture = DynamicImage::from_decoder(decoder).map_err(|e| self.error(e))?;
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let samples = samples_of(picture, Layout::of(self.bytes, format));
        let (mode, samples) = samples.ok_or_else(|| self.error("pixels of a kind that PIL would not read either"))?;
        Ok(self.turn(Source { width, height, mode, samples }, orientation))
    }

    fn turn(&self, source: Source, orientation: Option<Orientation>) -> Source {
        match orientation {
            Some(orientation) if self.options.exif_rotation => turned(source, orientation),
            _ => source,
        }
    }

    /// The first frame; where it does not reach, and where it is transparent, the palette's colour shows, as in PIL.
    fn gif(&self) -> Result<Source> {
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::Indexed);
        let mut decoder = options.read_info(Cursor::new(self.bytes)).map_err(|e| self.error(e))?;
        let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
        self.check_size(width as u64, height as u64)?;
        let global = decoder.global_palette().map(<[u8]>::to_vec);
        let frame = decoder.read_next_frame().map_err(|e| self.error(e))?.ok_or_else(|| self.error("no frame"))?;
        let palette = frame.palette.clone().or(global).ok_or_else(|| self.error("no palette"))?;
        let mut indices = vec![frame.transparent.unwrap_or(0); width * height];
        let (left, top, wide) = (usize::from(frame.left), usize::from(frame.top), usize::from(frame.width));
        for (y, row) in frame.buffer.chunks(wide.max(1)).enumerate().take(height.saturating_sub(top)) {
            let used = wide.min(width.saturating_sub(left)).min(row.len());
            let start = (top + y) * width + left;
            indices[start..start + used].copy_from_slice(&row[..used]);
        }
        // A palette that is the grey ramp makes a grey picture.
        let ramp = palette.chunks_exact(3).enumerate().all(|(i, c)| c.iter().all(|&v| usize::from(v) == i));
        if ramp {
            return Ok(Source { width, height, mode: Mode::Luma, samples: indices });
        }
        let colour = |i: &u8| palette.get(usize::from(*i) * 3..usize::from(*i) * 3 + 3).unwrap_or(&[0, 0, 0]);
        let samples = indices.iter().flat_map(colour).copied().collect();
        Ok(Source { width, height, mode: Mode::Palette, samples })
    }
}

/// How the file stores pixels, where the decoder's answer does not tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    AsDecoded,
    /// Palette, or one bit of grey.
    Palette,
    /// Grey without alpha channel, though a transparent value may be named.
    Grey,
    /// RGB without alpha channel, though a transparent value may be named.
    Colour,
}

impl Layout {
    fn of(bytes: &[u8], format: ImageFormat) -> Self {
        match format {
            // IHDR is always first: depth at byte 24, colour type at byte 25.
            ImageFormat::Png => match (bytes.get(24), bytes.get(25)) {
                (_, Some(3)) | (Some(1), Some(0)) => Self::Palette,
                (_, Some(0)) => Self::Grey,
                (_, Some(2)) => Self::Colour,
                _ => Self::AsDecoded,
            },
            ImageFormat::Bmp => match bytes.get(28) {
                Some(1..=8) if !has_grey_ramp(bytes) => Self::Palette,
                Some(1..=8) => Self::Grey,
                _ => Self::Colour,
            },
            _ => Self::AsDecoded,
        }
    }
}

/// Whether an 8-bit BMP's palette is the grey ramp, which makes it a grey picture.
fn has_grey_ramp(bytes: &[u8]) -> bool {
    let header = bytes.get(14..18).map_or(0, |h| u32::from_le_bytes([h[0], h[1], h[2], h[3]]) as usize);
    // Entries are blue, green, red, 0; BMP files of the first version have no 0 and are left as palettes.
    let palette = bytes.get(14 + header..14 + header + 256 * 4).filter(|_| header >= 40 && bytes.get(28) == Some(&8));
    palette.is_some_and(|p| p.chunks_exact(4).enumerate().all(|(i, c)| c[..3].iter().all(|&v| usize::from(v) == i)))
}

fn samples_of(picture: DynamicImage, layout: Layout) -> Option<(Mode, Vec<u8>)> {
    let high = |samples: Vec<u16>| samples.into_iter().map(|v| (v >> 8) as u8).collect::<Vec<u8>>();
    let cut =
        |samples: &[u16], step: usize| samples.iter().step_by(step).map(|&v| v.min(255) as u8).collect::<Vec<u8>>();
    let (mode, samples) = match picture {
        DynamicImage::ImageLuma8(p) => (Mode::Luma, p.into_raw()),
        DynamicImage::ImageLumaA8(p) => (Mode::LumaAlpha, p.into_raw()),
        DynamicImage::ImageRgb8(p) => (Mode::Rgb, p.into_raw()),
        DynamicImage::ImageRgba8(p) => (Mode::Rgba, p.into_raw()),
        DynamicImage::ImageLuma16(p) => (Mode::Luma, cut(p.as_raw(), 1)),
        DynamicImage::ImageLumaA16(p) if layout == Layout::Grey => (Mode::Luma, cut(p.as_raw(), 2)),
        DynamicImage::ImageLumaA16(p) => (Mode::LumaAlpha, high(p.into_raw())),
        DynamicImage::ImageRgb16(p) => (Mode::Rgb, high(p.into_raw())),
        DynamicImage::ImageRgba16(p) => (Mode::Rgba, high(p.into_raw())),
        _ => return None,
    };
    // A grey palette is decoded as colour; any of the three is the grey.
    let first = |n: usize| samples.chunks_exact(mode.channels()).flat_map(|p| &p[..n]).copied().collect::<Vec<u8>>();
    Some(match (layout, mode) {
        (Layout::Grey, Mode::LumaAlpha | Mode::Rgb | Mode::Rgba) => (Mode::Luma, first(1)),
        (Layout::Colour, Mode::Rgba) => (Mode::Rgb, first(3)),
        (Layout::Palette, mode) => {
            let source = Source { width: 1, height: samples.len() / mode.channels(), mode, samples };
            (Mode::Palette, source.to_picture().rgb)
        }
        _ => (mode, samples),
    })
}

/// Turns and mirrors, pixel by pixel, from where each pixel of the result comes.
fn turned(source: Source, orientation: Orientation) -> Source {
    use Orientation as O;
    let (width, height, channels) = (source.width, source.height, source.mode.channels());
    let swaps = matches!(orientation, O::Rotate90 | O::Rotate270 | O::Rotate90FlipH | O::Rotate270FlipH);
    let (wide, high) = if swaps { (height, width) } else { (width, height) };
    let from = |x: usize, y: usize| match orientation {
        O::NoTransforms => (x, y),
        O::FlipHorizontal => (width - 1 - x, y),
        O::Rotate180 => (width - 1 - x, height - 1 - y),
        O::FlipVertical => (x, height - 1 - y),
        O::Rotate90 => (y, height - 1 - x),
        O::Rotate270 => (width - 1 - y, x),
        O::Rotate90FlipH => (y, x),
        O::Rotate270FlipH => (width - 1 - y, height - 1 - x),
    };
    let places = (0..high).flat_map(|y| (0..wide).map(move |x| (x, y)));
    let pixel = |(x, y)| {
        let (x, y) = from(x, y);
        &source.samples[(y * width + x) * channels..][..channels]
    };
    let samples = places.flat_map(pixel).copied().collect();
    Source { width: wide, height: high, mode: source.mode, samples }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::image::{ExtendedColorType, ImageEncoder as _};

    fn png(samples: &[u8], width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        ::image::codecs::png::PngEncoder::new(&mut bytes).write_image(samples, width, height, colour).unwrap();
        bytes
    }

    fn rgb(bytes: &[u8]) -> Vec<u8> {
        decode(bytes, &DecodeOptions::default()).unwrap().rgb
    }

    #[test]
    fn alpha_is_dropped_and_grey_is_repeated() {
        assert_eq!(rgb(&png(&[9, 8, 7, 0], 1, 1, ExtendedColorType::Rgba8)), [9, 8, 7]);
        assert_eq!(rgb(&png(&[5, 0], 1, 1, ExtendedColorType::La8)), [5, 5, 5]);
        assert_eq!(rgb(&png(&[5], 1, 1, ExtendedColorType::L8)), [5, 5, 5]);
    }

    #[test]
    fn sixteen_bit_colour_keeps_the_high_byte_and_grey_is_cut_off() {
        let words = |v: &[u16]| v.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        assert_eq!(rgb(&png(&words(&[0x12ff, 0x3400, 0xff80]), 1, 1, ExtendedColorType::Rgb16)), [0x12, 0x34, 0xff]);
        assert_eq!(rgb(&png(&words(&[200, 256]), 2, 1, ExtendedColorType::L16)), [200, 200, 200, 255, 255, 255]);
    }

    #[test]
    fn ink_becomes_light() {
        let source = Source { width: 2, height: 1, mode: Mode::Cmyk, samples: vec![0, 128, 255, 0, 10, 20, 30, 255] };
        assert_eq!(source.to_picture().rgb, [255, 127, 0, 0, 0, 0]);
    }

    #[test]
    fn a_huge_picture_is_refused_by_its_header() {
        let mut bytes = png(&[0; 3], 1, 1, ExtendedColorType::Rgb8);
        // A new size with a right checksum: only the limit can refuse it.
        bytes[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        let sum = crc32fast::hash(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
        let error = decode_from(Path::new("huge.png"), &bytes, &DecodeOptions::default()).unwrap_err();
        assert_eq!(error.code(), "limit.exceeded");
        assert!(error.to_string().contains("huge.png") && error.to_string().contains("4294967296"), "{error}");
        let small = DecodeOptions { max_bytes: 10, ..Default::default() };
        assert_eq!(decode(&bytes, &small).unwrap_err().code(), "limit.exceeded");
    }

    #[test]
    fn foreign_and_damaged_files_are_named() {
        let picture = png(&[7; 300], 10, 10, ExtendedColorType::Rgb8);
        let cut = &picture[..picture.len() / 2];
        for bytes in [b"" as &[u8], b"hello, world", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", cut] {
            let error = decode_from(Path::new("x/y.jpg"), bytes, &DecodeOptions::default()).unwrap_err();
            assert!(error.code() == "image.unreadable" && error.to_string().contains("x/y.jpg"), "{error}");
        }
    }

    #[test]
    fn a_bmp_with_a_grey_ramp_is_grey_and_with_another_palette_is_not() {
        let mut bytes = Vec::new();
        let samples = [10, 200, 30, 40];
        ::image::codecs::bmp::BmpEncoder::new(&mut bytes).encode(&samples, 2, 2, ExtendedColorType::L8).unwrap();
        let decode = |bytes: &[u8]| Source::decode(Path::new("x.bmp"), bytes, &DecodeOptions::default()).unwrap();
        let grey = decode(&bytes);
        assert_eq!((grey.mode, grey.samples.as_slice()), (Mode::Luma, samples.as_slice()));
        let header = bytes[14] as usize;
        bytes[14 + header + 4 * 10] = 99;
        assert_eq!(decode(&bytes).mode, Mode::Palette);
        assert_eq!(decode(&bytes).to_picture().rgb[..3], [10, 10, 99]);
    }

    #[test]
    fn a_gif_shows_its_first_frame_with_the_colour_under_transparency() {
        let mut bytes = Vec::new();
        let mut encoder = gif::Encoder::new(&mut bytes, 2, 1, &[9, 8, 7, 40, 50, 60]).unwrap();
        for indices in [[0u8, 1], [1, 1]] {
            let frame = gif::Frame { transparent: Some(1), ..gif::Frame::from_indexed_pixels(2, 1, indices, None) };
            encoder.write_frame(&frame).unwrap();
        }
        drop(encoder);
        assert_eq!(rgb(&bytes), [9, 8, 7, 40, 50, 60]);
    }

    /// A JPEG file with an EXIF entry after its first marker.
    fn with_exif(entry: &[u8]) -> Vec<u8> {
        let plain = include_bytes!("jpeg/testdata/narrow.jpg");
        let length = u16::try_from(entry.len() + 8).unwrap().to_be_bytes();
        [&plain[..2], &[0xff, 0xe1], &length, b"Exif\0\0", entry, &plain[2..]].concat()
    }

    #[test]
    fn exif_turns_only_when_asked_and_a_broken_entry_never_does() {
        let entry = |turn: u8| {
            [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0" as &[u8], &[turn, 0, 0, 0, 0, 0, 0, 0]].concat()
        };
        let size = |bytes: &[u8], exif_rotation: bool| {
            let picture = decode(bytes, &DecodeOptions { exif_rotation, ..Default::default() }).unwrap();
            (picture.width, picture.height)
        };
        assert_eq!((size(&with_exif(&entry(6)), false), size(&with_exif(&entry(6)), true)), ((3, 20), (20, 3)));
        for broken in [&entry(77)[..], b"II*\0\xff\xff\xff\xff", b"", b"nonsense"] {
            assert_eq!(size(&with_exif(broken), true), (3, 20));
        }
    }

    #[test]
    fn turning_equals_the_image_crate() {
        let source = Source { width: 3, height: 2, mode: Mode::Luma, samples: vec![1, 2, 3, 4, 5, 6] };
        for code in 1..=8 {
            let orientation = Orientation::from_exif(code).unwrap();
            let mut expected =
                DynamicImage::ImageLuma8(::image::GrayImage::from_raw(3, 2, source.samples.clone()).unwrap());
            expected.apply_orientation(orientation);
            assert_eq!(turned(source.clone(), orientation).samples, expected.into_bytes(), "{orientation:?}");
        }
    }
}
