//! The CLIP towers, frozen, with gradients for contexts only.

pub mod config;
mod context;

pub use config::{Activation, ClipConfig, ImageConfig, TextConfig};
pub use context::{ClassName, ClassTokens, Context, Position};
