//! Pixels: decode, resize, crop, normalise, augment, views. Byte for byte as PIL and torchvision do it.

pub mod augment;
pub mod augmix;
mod decode;
mod jpeg;
#[cfg(feature = "figures")]
pub mod lettering;
mod preprocess;
mod resize;
#[cfg(feature = "figures")]
pub mod sheet;
pub mod views;

use crate::Result;
pub use crate::architecture::{Interpolation, Preprocess, ResizeMode};
use crate::digest;
pub use decode::{DECODER, DecodeOptions, ImageChanges, ImageNotes, Mode, Source};
pub use decode::{decode, decode_from, decode_noted, decoding_bytes, open_noted};
pub use preprocess::{ConvertOrder, Normalise, preprocess, preprocess_source};
pub use resize::{Columns, Crop, Output};
use std::path::Path;

/// A decoded image: rows of RGB bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Columns; at least one.
    pub width: usize,
    /// Rows; at least one.
    pub height: usize,
    /// `height x width x 3` bytes.
    pub rgb: Vec<u8>,
}

impl Image {
    /// Decodes a file: JPEG, PNG, WebP, BMP, TIFF or GIF, pixel for pixel as Pillow does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), &DecodeOptions::default())
    }

    /// The same with choices.
    pub fn open_with(path: &Path, options: &DecodeOptions) -> Result<Self> {
        Ok(open_noted(path, options)?.0)
    }

    /// Decodes an image in memory.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(bytes, &DecodeOptions::default())
    }

    /// Names the image by its pixels.
    pub fn digest(&self) -> String {
        digest::of_pixels(self.width, self.height, &self.rgb)
    }
}
