//! The CLIP towers, frozen, with gradients for contexts only.

mod context;

pub use context::{ClassName, ClassTokens, Context, Position};
