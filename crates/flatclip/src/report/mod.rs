//! Runs as tables, figures and pages; published numbers beside ours.

mod confusion;
pub mod figure;
mod figures;
pub mod landscape;
mod page;
mod paper;
mod runs;
mod table;

pub use confusion::ConfusionMatrix;
pub use figures::{reliability, score_quantiles, sweep_figures, top1_bars};
pub use page::{Page, Section};
pub use paper::{PAPER, PaperRow, PaperTable, Published, published};
pub use runs::{Run, TOLERANCE, against_paper, benchmark_table, find_runs, metrics_table, paired_table};
pub use table::{Cell, Table};
