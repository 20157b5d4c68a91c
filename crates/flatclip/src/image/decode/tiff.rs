//! TIFF of 8-bit grey or colour, straight into the pixels. Through the `image` crate it would be held twice.

use super::{File, Result};
use ::image::{DynamicImage, GrayImage, RgbImage, RgbaImage};
use ::tiff::ColorType;
use ::tiff::decoder::{Decoder, DecodingResult, Limits};
use std::io::Cursor;

impl File<'_> {
    /// The image, or nothing if its pixels have to be converted.
    pub(super) fn plain_tiff(&self) -> Result<Option<DynamicImage>> {
        let mut limits = Limits::default();
        limits.decoding_buffer_size = usize::try_from(self.options.max_memory()).unwrap_or(usize::MAX);
        let mut decoder = Decoder::new(Cursor::new(self.bytes)).map_err(|e| self.error(e))?.with_limits(limits);
        let (width, height) = decoder.dimensions().map_err(|e| self.error(e))?;
        let colour = decoder.colortype().map_err(|e| self.error(e))?;
        let channels = match colour {
            ColorType::Gray(8) => 1,
            ColorType::RGB(8) => 3,
            ColorType::RGBA(8) => 4,
            _ => return Ok(None),
        };
        self.check_size(width.into(), height.into())?;
        self.check_memory(u64::from(width) * u64::from(height) * channels)?;
        if decoder.image_buffer_layout().map_err(|e| self.error(e))?.planes > 1 {
            return Ok(None);
        }
        let DecodingResult::U8(samples) = decoder.read_image().map_err(|e| self.error(e))? else { return Ok(None) };
        let image = match channels {
            1 => GrayImage::from_raw(width, height, samples).map(DynamicImage::from),
            3 => RgbImage::from_raw(width, height, samples).map(DynamicImage::from),
            _ => RgbaImage::from_raw(width, height, samples).map(DynamicImage::from),
        };
        image.map(Some).ok_or_else(|| self.error("fewer samples than pixels"))
    }
}
