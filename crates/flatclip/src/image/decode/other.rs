//! WebP, BMP and converted TIFF through the `image` crate.

use super::{File, Mode, Result, Source, shorten};
use ::image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

impl File<'_> {
    pub(super) fn other(&self, format: ImageFormat) -> Result<Source> {
        // A WebP file states its length.
        let stated = self.bytes.get(4..8).map_or(0, |b| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])) + 8);
        if format == ImageFormat::WebP && stated > self.bytes.len() as u64 {
            let found = self.bytes.len();
            return Err(self.error(format!("the file says that it has {stated} bytes, it has {found}: it is cut off")));
        }
        let mut reader = ImageReader::with_format(Cursor::new(self.bytes), format);
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(self.options.max_memory());
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(|e| self.error(e))?;
        let (width, height) = decoder.dimensions();
        self.check_size(width.into(), height.into())?;
        let orientation = decoder.orientation().ok();
        let plain = if format == ImageFormat::Tiff { self.plain_tiff()? } else { None };
        let (mode, samples) = match plain {
            Some(samples) => samples,
            None => {
                let bytes_per_pixel = bytes_per_pixel(self.bytes, format);
                self.check_memory(u64::from(width) * u64::from(height) * bytes_per_pixel)?;
                let image = DynamicImage::from_decoder(decoder).map_err(|e| self.error(e))?;
                let scale = self.options.exif;
                if scale && matches!(image, DynamicImage::ImageLuma16(_)) {
                    self.note(|notes| notes.scaled_grey = true);
                }
                samples_of(image, Layout::of(self.bytes, format), scale)
                    .ok_or_else(|| self.error("pixels of a kind that PIL would not read either"))?
            }
        };
        // Pillow always rotates a TIFF when it loads it.
        let wanted = self.options.exif || format == ImageFormat::Tiff;
        Ok(self.turn(Source::new(width as usize, height as usize, mode, samples), orientation, wanted))
    }
}

/// What the decoder takes at its peak: planes, frames and the result.
pub(super) fn bytes_per_pixel(bytes: &[u8], format: ImageFormat) -> u64 {
    match (format, bytes.get(12..16)) {
        // With opacity or several frames.
        (ImageFormat::WebP, Some(b"VP8X")) => 12,
        (ImageFormat::WebP, _) => 7,
        // Samples of up to 16 bits, and the bytes that are made of them.
        (ImageFormat::Tiff, _) => 12,
        // Then the file itself has as many.
        _ if bytes.get(28) == Some(&32) => 4,
        _ => 3,
    }
}

/// How a BMP stores pixels, where the decoder's answer does not tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    AsDecoded,
    Palette,
    /// A palette that is the grey ramp.
    Grey,
    /// RGB without opacity.
    Colour,
}

impl Layout {
    fn of(bytes: &[u8], format: ImageFormat) -> Self {
        match (format, bytes.get(28)) {
            (ImageFormat::Bmp, Some(1..=8)) if !has_grey_ramp(bytes) => Self::Palette,
            (ImageFormat::Bmp, Some(1..=8)) => Self::Grey,
            (ImageFormat::Bmp, _) => Self::Colour,
            _ => Self::AsDecoded,
        }
    }
}

/// Whether an 8-bit BMP's palette is the grey ramp, which makes it a grey image.
fn has_grey_ramp(bytes: &[u8]) -> bool {
    let header = bytes.get(14..18).map_or(0, |h| u32::from_le_bytes([h[0], h[1], h[2], h[3]]) as usize);
    // Entries are blue, green, red, 0; BMP files of the first version have no 0 and are left as palettes.
    let palette = bytes.get(14 + header..14 + header + 256 * 4).filter(|_| header >= 40 && bytes.get(28) == Some(&8));
    palette.is_some_and(|p| p.chunks_exact(4).enumerate().all(|(i, c)| c[..3].iter().all(|&v| usize::from(v) == i)))
}

/// Of 16-bit colours the high byte; 16-bit grey is scaled or cut off at 255. TIFF alone has them here.
fn samples_of(image: DynamicImage, layout: Layout, scale_grey: bool) -> Option<(Mode, Vec<u8>)> {
    let bytes = |words: Vec<u16>, byte: fn(u16) -> u8| words.into_iter().map(byte).collect::<Vec<u8>>();
    let high = |word: u16| (word >> 8) as u8;
    let (mode, mut samples) = match image {
        DynamicImage::ImageLuma8(p) => (Mode::Luma, p.into_raw()),
        DynamicImage::ImageLumaA8(p) => (Mode::LumaAlpha, p.into_raw()),
        DynamicImage::ImageRgb8(p) => (Mode::Rgb, p.into_raw()),
        DynamicImage::ImageRgba8(p) => (Mode::Rgba, p.into_raw()),
        DynamicImage::ImageLuma16(p) if scale_grey => (Mode::Luma, bytes(p.into_raw(), high)),
        DynamicImage::ImageLuma16(p) => (Mode::Luma, bytes(p.into_raw(), |word| word.min(255) as u8)),
        p @ DynamicImage::ImageLumaA16(_) => (Mode::LumaAlpha, p.to_luma_alpha8().into_raw()),
        DynamicImage::ImageRgb16(p) => (Mode::Rgb, bytes(p.into_raw(), high)),
        DynamicImage::ImageRgba16(p) => (Mode::Rgba, bytes(p.into_raw(), high)),
        _ => return None,
    };
    Some(match (layout, mode) {
        // A grey palette is decoded as colour; any of the three is the grey.
        (Layout::Grey, Mode::Rgb | Mode::Rgba) => {
            shorten(&mut samples, mode.channels(), |p| [p[0]]);
            (Mode::Luma, samples)
        }
        (Layout::Colour, Mode::Rgba) => {
            shorten(&mut samples, 4, |p| [p[0], p[1], p[2]]);
            (Mode::Rgb, samples)
        }
        (Layout::Palette, mode) => {
            let source = Source::new(1, samples.len() / mode.channels(), mode, samples);
            (Mode::Palette, source.into_image().rgb)
        }
        _ => (mode, samples),
    })
}
