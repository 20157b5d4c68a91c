//! Runs as tables, figures and pages; published numbers beside ours.

mod analysis;
mod confusion;
pub mod figure;
mod figures;
pub mod landscape;
mod landscape_picture;
mod page;
mod paper;
mod runs;
mod table;

pub use analysis::{ANALYSIS_FILE, AnalysedSet, AnalysisRecord};
pub use confusion::ConfusionMatrix;
pub use figures::{reliability, score_quantiles, sweep_figures, top1_bars};
pub use landscape_picture::{data_address, landscape_picture};
pub use page::{Page, Section};
pub use paper::{PAPER, PaperRow, PaperTable, Published, published};
pub use runs::{Run, TOLERANCE, against_paper, benchmark_table, find_runs, metrics_table, paired_table};
pub use table::{Cell, Table};
