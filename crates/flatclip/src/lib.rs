//! Prompt tuning and test-time adaptation for CLIP-like vision-language models, led by flatness.
//!
//! Data flows one way, and the modules are listed in that order; a module uses modules above it only:
//!
//! ```text
//! weights, text, image -> model -> prompt -> data -> methods -> train, eval, landscape -> report
//! ```

pub mod error;
pub mod files;
pub mod options;
pub mod progress;
pub mod rng;
pub mod run_dir;
pub mod settings;

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

mod facade;

pub mod bench;
pub mod demo;

pub use error::{Error, Hint, Result};
pub use eval::cache::ViewFeatures;
pub use eval::{import_statistics, load_statistics, save_statistics};
pub use facade::*;
pub use flatclip_tensor::Matrix;
pub use image::Picture;
pub use methods::Registry;
pub use progress::Progress;
pub use prompt::Prompt;
pub use train::{TuneRequest, TuneSummary};
