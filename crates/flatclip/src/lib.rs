//! Prompt tuning and test-time adaptation for CLIP-like vision-language models, led by flatness.
//!
//! Data flows one way, and the modules are listed in that order; a module uses modules above it only:
//!
//! ```text
//! architecture -> weights, text, image -> model -> prompt -> data -> methods -> train, eval, landscape -> report
//! ```

pub(crate) mod digest;
pub mod error;
pub mod files;
pub mod rng;

pub mod architecture;

pub mod image;
pub mod text;
pub mod weights;

pub mod model;

pub mod prompt;

pub mod data;

pub mod methods;

pub mod eval;
pub mod landscape;
pub mod train;

pub mod report;

pub use error::{Error, Result};
