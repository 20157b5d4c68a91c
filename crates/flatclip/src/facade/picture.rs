//! Pictures from files and bytes.

use crate::Result;
use crate::image::{self, DecodeOptions, Picture};
use std::path::Path;

impl Picture {
    /// Decodes a file: JPEG, PNG, WebP, BMP, TIFF or GIF, pixel for pixel as Pillow does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), &DecodeOptions::default())
    }

    /// The same with choices.
    pub fn open_with(path: &Path, options: &DecodeOptions) -> Result<Self> {
        image::open(path, options)
    }

    /// Decodes a picture in memory.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        image::decode(bytes, &DecodeOptions::default())
    }
}
