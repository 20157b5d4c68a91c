//! PNG, WebP and BMP through the `image` crate.

use super::{File, Mode, Result, Source};
use ::image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

impl File<'_> {
    pub(super) fn still(&self, format: ImageFormat) -> Result<Source> {
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
