//! What a CLIP checkpoint is, apart from its numbers: sizes, activation, preprocessing, and the tensors that follow from them.
//!
//! Readers of files, the tokenizer and the towers all use these types.

mod config;
mod form;
mod preprocess;
mod released;
mod stated;
mod tensors;

pub use config::{Activation, ActivationSource, ClipConfig, ImageConfig, TextConfig};
pub use form::{ImagePool, Projection, Rotary, TextForm, TextPool, VitForm};
pub use preprocess::{Interpolation, Preprocess, ResizeMode};
pub(crate) use stated::{Size, Stated};
pub(crate) use tensors::{Shapes, infer, tensors};
