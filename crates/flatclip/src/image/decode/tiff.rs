//! TIFF of 8-bit grey or colour, straight into the pixels. Through the `image` crate it would be held twice.

use super::{File, Mode, Result};
use ::tiff::ColorType;
use ::tiff::decoder::{Decoder, DecodingResult, Limits};
use std::io::Cursor;

impl File<'_> {
    /// The samples, or nothing if they have to be converted.
    pub(super) fn plain_tiff(&self) -> Result<Option<(Mode, Vec<u8>)>> {
        let mut limits = Limits::default();
        limits.decoding_buffer_size = usize::try_from(self.options.max_memory()).unwrap_or(usize::MAX);
        let mut decoder = Decoder::new(Cursor::new(self.bytes)).map_err(|e| self.error(e))?.with_limits(limits);
        let (width, height) = decoder.dimensions().map_err(|e| self.error(e))?;
        let colour = decoder.colortype().map_err(|e| self.error(e))?;
        let mode = match colour {
            ColorType::Gray(8) => Mode::Luma,
            ColorType::RGB(8) => Mode::Rgb,
            ColorType::RGBA(8) => Mode::Rgba,
            _ => return Ok(None),
        };
        self.check_size(width.into(), height.into())?;
        let bytes = u64::from(width) * u64::from(height) * mode.channels() as u64;
        self.check_memory(bytes)?;
        if decoder.image_buffer_layout().map_err(|e| self.error(e))?.planes > 1 {
            return Ok(None);
        }
        let DecodingResult::U8(samples) = decoder.read_image().map_err(|e| self.error(e))? else { return Ok(None) };
        if (samples.len() as u64) < bytes {
            return Err(self.error("fewer samples than pixels"));
        }
        Ok(Some((mode, samples)))
    }
}
