//! Pixels: decode, resize, crop, normalise, augment, views. Byte for byte as PIL and torchvision do it.

pub mod augment;
pub mod augmix;
mod decode;
mod jpeg;
pub(crate) mod lettering;
mod preprocess;
mod resize;
pub mod sheet;
pub mod views;

use crate::digest::Digest;
pub(crate) use decode::{DECODER, decode_noted};
pub use decode::{
    DecodeOptions, Mode, PictureChanges, PictureNotes, Source, decode, decode_from, decoding_bytes, open, open_noted,
};
pub use preprocess::{ConvertOrder, Normalise, preprocess, preprocess_source};
pub use resize::{Columns, Crop, Interpolation, Output};

/// A decoded picture: rows of RGB bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Columns; at least one.
    pub width: usize,
    /// Rows; at least one.
    pub height: usize,
    /// `height x width x 3` bytes.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// Names the picture by its pixels.
    pub fn digest(&self) -> String {
        let digest = Digest::default().number(self.width).number(self.height);
        digest.bytes(&self.rgb).key()
    }
}
