//! Files to pixels, by content and not by name: JPEG, PNG, WebP, BMP, TIFF and the first frame of a GIF.
//!
//! There are two reading rules, and [`DecodeOptions::exif`] chooses one. Images of one's own are read as a person sees them:
//! rotated per EXIF, 16-bit grey scaled. Known benchmark data sets are read as Pillow's `convert("RGB")`, as every published
//! number was: EXIF is ignored (but for TIFF, which Pillow rotates), 16-bit grey is cut off at 255 (before resizing, in either
//! order of conversion). In both, alpha is dropped, palettes are looked up, of 16-bit colours the high byte is kept, and colour
//! profiles are ignored.

mod gif;
mod orientation;
mod other;
mod png;
#[cfg(test)]
mod tests;
mod tiff;

use super::preprocess::multiply;
use super::{Image, jpeg};
use crate::{Error, Result};
use ::image::ImageFormat;
use ::image::metadata::Orientation;
use orientation::turned;
use std::cell::Cell;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// What decodes images, for the record: our own JPEG decoder, the `image` crate for the rest.
pub const DECODER: &str = "flatclip-jpeg; image 0.25 for other formats";

/// What is read, and how much of it.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    /// Largest `width x height`; checked in the header, before anything is allocated.
    pub max_pixels: u64,
    /// Largest file.
    pub max_bytes: u64,
    /// Read the image as a person sees it: rotated per EXIF, 16-bit grey scaled to 8 bits. `false`: as Pillow's
    /// `convert("RGB")`, and so every published number.
    pub exif: bool,
}

/// The largest width or height: as much as JPEG and GIF can say.
const MAX_SIDE: u64 = 65_535;
/// What is read of a file before it is known to be an image.
const BEGINNING: u64 = 4096;
/// Bytes that a decoder which reads row by row takes in addition to the result, about.
const ROWS: u64 = 1 << 20;
/// Bytes that a decoder may take in addition to the result.
const SCRATCH: u64 = 64 << 20;

/// What was done to an image because its reader asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageNotes {
    /// Rotated or mirrored per EXIF.
    pub turned: bool,
    /// 16-bit grey, scaled to 8 bits.
    pub scaled_grey: bool,
}

/// How many images something was done to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageChanges {
    turned: usize,
    scaled_grey: usize,
}

impl ImageChanges {
    /// One more image.
    pub fn count(&mut self, notes: ImageNotes) {
        self.turned += usize::from(notes.turned);
        self.scaled_grey += usize::from(notes.scaled_grey);
    }

    /// In words, if there is something to say.
    pub fn line(self) -> Option<String> {
        let images = |count: usize| if count == 1 { "1 image".to_owned() } else { format!("{count} images") };
        let mut parts = Vec::new();
        if self.turned > 0 {
            parts.push(format!("{} rotated per EXIF", images(self.turned)));
        }
        if self.scaled_grey > 0 {
            parts.push(format!("{} of 16-bit grey scaled to 8 bits", images(self.scaled_grey)));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl DecodeOptions {
    /// As Pillow's `convert("RGB")` reads it: what published numbers of benchmark data sets rest on.
    pub fn pillow() -> Self {
        Self { exif: false, ..Self::default() }
    }

    /// Name of the reading rule in answers and records: `exif` or `pillow`.
    pub fn rule(&self) -> &'static str {
        if self.exif { "exif" } else { "pillow" }
    }

    /// Bytes that decoding one image may take: the largest image and a margin.
    pub(crate) fn max_memory(&self) -> u64 {
        self.max_pixels.saturating_mul(3).saturating_add(SCRATCH)
    }
}

/// Images of one's own.
impl Default for DecodeOptions {
    fn default() -> Self {
        // PIL warns above this number.
        Self { max_pixels: 89_478_485, max_bytes: 256 << 20, exif: true }
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
    pub(crate) fn has_alpha(self) -> bool {
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
    /// The colours of a palette, RGB; empty where there is none.
    pub palette: Vec<u8>,
}

impl Source {
    /// Without a palette.
    pub fn new(width: usize, height: usize, mode: Mode, samples: Vec<u8>) -> Self {
        Self { width, height, mode, samples, palette: Vec::new() }
    }

    /// Decodes a file; `path` is for messages.
    pub fn decode(path: &Path, bytes: &[u8], options: &DecodeOptions) -> Result<Self> {
        guarded(path, || File::new(path, bytes, options, false).decode())
    }

    /// As RGB.
    pub fn to_image(&self) -> Image {
        self.clone().into_image()
    }

    /// As RGB, in the same memory where that is possible.
    pub(crate) fn into_image(self) -> Image {
        let Self { width, height, mode, mut samples, .. } = self;
        let pixels = samples.len() / mode.channels();
        match mode {
            Mode::Rgb | Mode::Palette => {}
            // From the end, so that nothing is overwritten before it is read.
            Mode::Luma | Mode::LumaAlpha => {
                samples.resize(3 * pixels, 0);
                for i in (0..pixels).rev() {
                    let grey = samples[i * mode.channels()];
                    samples[3 * i..3 * i + 3].fill(grey);
                }
            }
            Mode::Rgba => shorten(&mut samples, 4, |p| [p[0], p[1], p[2]]),
            Mode::Cmyk => shorten(&mut samples, 4, |p| {
                let light = 255 - p[3];
                [p[0], p[1], p[2]].map(|ink| light - multiply(ink, light))
            }),
        }
        Image { width, height, rgb: samples }
    }
}

/// Replaces every pixel of `channels` samples by fewer, in the same memory.
fn shorten<const N: usize>(samples: &mut Vec<u8>, channels: usize, convert: impl Fn(&[u8]) -> [u8; N]) {
    let pixels = samples.len() / channels;
    for i in 0..pixels {
        let new = convert(&samples[i * channels..(i + 1) * channels]);
        samples[i * N..(i + 1) * N].copy_from_slice(&new);
    }
    samples.truncate(pixels * N);
    samples.shrink_to_fit();
}

/// Decodes an image that has no file name.
pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<Image> {
    decode_from(Path::new("image"), bytes, options)
}

/// Bytes that decoding takes at its peak, from the header alone: the pixels, and what else the decoder holds. `None` for
/// a file that no decoder reads.
pub fn decoding_bytes(bytes: &[u8]) -> Option<u64> {
    let (pixels, beside) = match ::image::guess_format(bytes).ok()? {
        ImageFormat::Jpeg => {
            let header = jpeg::inspect(bytes).ok()?;
            let pixels = (header.width as u64).saturating_mul(header.height as u64);
            // Turning by EXIF makes a second copy.
            (pixels, header.kept.max(pixels.saturating_mul(3).min(SCRATCH)))
        }
        format => {
            let mut reader = ::image::ImageReader::new(std::io::Cursor::new(bytes));
            reader.set_format(format);
            let (width, height) = reader.into_dimensions().ok()?;
            let pixels = u64::from(width) * u64::from(height);
            let beside = match format {
                // Row by row into the result.
                ImageFormat::Png | ImageFormat::Gif => ROWS,
                format => (other::bytes_per_pixel(bytes, format) - 3).saturating_mul(pixels),
            };
            (pixels, beside)
        }
    };
    Some(pixels.saturating_mul(3).saturating_add(beside))
}

/// Decodes an image; `path` is for messages.
pub fn decode_from(path: &Path, bytes: &[u8], options: &DecodeOptions) -> Result<Image> {
    Ok(decode_noted(path, bytes, options)?.0)
}

/// The same, and what was done to the image.
pub fn decode_noted(path: &Path, bytes: &[u8], options: &DecodeOptions) -> Result<(Image, ImageNotes)> {
    let file = File::new(path, bytes, options, true);
    let image = guarded(path, || file.decode())?.into_image();
    Ok((image, file.notes.get()))
}

/// Reads and decodes a file, and says what was done to the image. The file's size and first bytes are looked at before it is
/// read, its header before it is decoded.
pub fn open_noted(path: &Path, options: &DecodeOptions) -> Result<(Image, ImageNotes)> {
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    let size = file.metadata().map_err(Error::io(path))?.len();
    File::new(path, &[], options, true).limit("bytes", size, options.max_bytes)?;
    let mut bytes = Vec::new();
    // A file that grows, or has no size of its own, is cut one byte above the limit and refused.
    let mut file = file.take(options.max_bytes.saturating_add(1));
    file.by_ref().take(BEGINNING).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if ::image::guess_format(&bytes).is_ok() {
        file.read_to_end(&mut bytes).map_err(Error::io(path))?;
    }
    decode_noted(path, &bytes, options)
}

/// Runs a decoder. Its panic is a fault of the decoder, but an image like any other must not end the process.
fn guarded(path: &Path, decode: impl FnOnce() -> Result<Source>) -> Result<Source> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let reason = format!(
            "the decoder failed unexpectedly ({}); the file is damaged in a way that is not handled, save it anew",
            said.unwrap_or("no message")
        );
        Err(Error::Image { path: path.to_path_buf(), reason })
    })
}

struct File<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    options: &'a DecodeOptions,
    /// Only RGB is wanted: opacity and inks need not be kept.
    as_rgb: bool,
    notes: Cell<ImageNotes>,
}

impl<'a> File<'a> {
    fn new(path: &'a Path, bytes: &'a [u8], options: &'a DecodeOptions, as_rgb: bool) -> Self {
        Self { path, bytes, options, as_rgb, notes: Cell::default() }
    }

    fn note(&self, change: impl FnOnce(&mut ImageNotes)) {
        let mut notes = self.notes.get();
        change(&mut notes);
        self.notes.set(notes);
    }

    fn error(&self, reason: impl std::fmt::Display) -> Error {
        Error::Image { path: self.path.to_path_buf(), reason: crate::error::escaped(&reason.to_string()) }
    }

    fn limit(&self, what: &str, asked: u64, allowed: u64) -> Result<()> {
        if asked <= allowed {
            return Ok(());
        }
        let what = format!("{}: {what}", self.path.display());
        Err(Error::Limit { what, asked, allowed, hint: "scale the image down or raise the limit".into() })
    }

    fn check_size(&self, width: u64, height: u64) -> Result<()> {
        if width == 0 || height == 0 {
            return Err(self.error(format!("the header says {width} x {height} pixels")));
        }
        self.limit("pixels", width * height, self.options.max_pixels)?;
        self.limit("pixels of one side", width.max(height), MAX_SIDE)
    }

    /// Refuses an image whose decoder needs more than the result and a margin.
    fn check_memory(&self, bytes: u64) -> Result<()> {
        self.limit("bytes of memory to decode it", bytes, self.options.max_memory())
    }

    fn decode(&self) -> Result<Source> {
        self.limit("bytes", self.bytes.len() as u64, self.options.max_bytes)?;
        let unknown = || {
            let start = &self.bytes[..self.bytes.len().min(8)];
            let known = foreign(self.bytes).map_or_else(
                || "not a JPEG, PNG, WebP, BMP, TIFF or GIF image".to_owned(),
                |name| format!("{name} cannot be read; save it as JPEG or PNG"),
            );
            self.error(format!("{known} (it starts with {start:02x?})"))
        };
        match ::image::guess_format(self.bytes).map_err(|_| unknown())? {
            ImageFormat::Gif => self.gif(),
            ImageFormat::Jpeg => self.jpeg(),
            ImageFormat::Png => self.png(),
            format @ (ImageFormat::WebP | ImageFormat::Bmp | ImageFormat::Tiff) => self.other(format),
            _ => Err(unknown()),
        }
    }

    fn jpeg(&self) -> Result<Source> {
        let header = jpeg::inspect(self.bytes).map_err(|e| self.error(e))?;
        self.check_size(header.width as u64, header.height as u64)?;
        self.check_memory(header.kept + 3 * (header.width * header.height) as u64)?;
        let source = jpeg::decode(self.bytes, self.as_rgb).map_err(|e| self.error(e))?;
        // A broken EXIF entry turns nothing.
        Ok(self.turn(source, header.exif.and_then(Orientation::from_exif_chunk), self.options.exif))
    }

    fn turn(&self, source: Source, orientation: Option<Orientation>, wanted: bool) -> Source {
        match orientation {
            Some(orientation) if wanted && orientation != Orientation::NoTransforms => {
                self.note(|notes| notes.turned = true);
                turned(source, orientation)
            }
            _ => source,
        }
    }
}

/// The name of an image format that is known but not read.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    match bytes.get(4..12)? {
        [b'f', b't', b'y', b'p', b'a', b'v', b'i', ..] => Some("AVIF"),
        [b'f', b't', b'y', b'p', b'h', b'e', ..] | [b'f', b't', b'y', b'p', b'm', b'i', b'f', _] => Some("HEIC"),
        [b'j', b'P', b' ', b' ', ..] => Some("JPEG 2000"),
        [b'f', b't', b'y', b'p', b'j', b'x', ..] => Some("JPEG XL"),
        _ if bytes.starts_with(&[0xff, 0x4f, 0xff, 0x51]) => Some("JPEG 2000"),
        _ if bytes.starts_with(&[0xff, 0x0a]) || bytes.starts_with(b"\0\0\0\x0cJXL ") => Some("JPEG XL"),
        _ if bytes.starts_with(b"8BPS") => Some("Photoshop"),
        _ if bytes.starts_with(b"%PDF") => Some("PDF"),
        _ => None,
    }
}
