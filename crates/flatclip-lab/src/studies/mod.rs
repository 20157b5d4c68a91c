//! Studies: work on several runs or prompts that ends in tables and figures.

mod analyze;
mod landscape;
mod shots;
mod sweep;

pub use analyze::{AnalyzeRequest, ClassRadius, analyze};
pub use landscape::{LandscapeOf, LandscapeRequest, landscape};
pub use sweep::{SweepRequest, SweptData, sweep};
