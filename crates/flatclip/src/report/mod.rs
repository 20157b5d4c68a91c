//! Runs as tables, figures and pages; published numbers beside ours.

mod analysis;
mod analysis_tables;
mod confusion;
mod data_address;
pub mod figure;
mod figures;
mod groups;
pub mod landscape;
mod page;
mod paper;
mod protocol;
mod rows;
mod runs;
mod table;
mod temperature;

pub(crate) use analysis::ANALYSIS_FILE;
pub use analysis::{AnalysedSet, AnalysisRecord};
pub use confusion::ConfusionMatrix;
pub(crate) use data_address::data_address;
pub(crate) use figures::sweep_figures;
pub use figures::{ece_bars, reliability, score_quantiles, top1_bars};
pub use page::{Page, Section};
pub(crate) use paper::published_row;
pub use paper::{Published, published};
pub use protocol::protocol_points;
pub(crate) use protocol::test_family;
pub use runs::{Run, TOLERANCE, against_paper, benchmark_table, find_runs, metrics_table, paired_table};
pub use table::{Cell, Table};
pub use temperature::{TemperatureChoice, temperature_table};
