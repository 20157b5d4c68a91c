//! Runs of prompt x adapter x data set: pipeline, records, metrics, caches, shards.
//!
//! A run is a stream of samples in a planned order. Each sample becomes one [`Record`]; everything else (summary,
//! tables, comparisons, merges) is computed from the records. Records do not depend on threads, batches, the cache,
//! shards or interruptions.

mod answer;
pub mod cache;
mod clip_encoder;
mod encoder;
mod fingerprint;
mod grid;
mod log;
mod merge;
pub mod metrics;
mod pipeline;
mod plan;
mod record;
mod rounds;
mod run;
mod run_dir;
mod source_statistics;
mod summary;
#[cfg(test)]
mod tests;
mod timing;

pub(crate) use crate::digest::matrix_hash;
pub(crate) use clip_encoder::{ClipEncoder, PIXEL_VERSION};
pub(crate) use encoder::Encoder;
pub(crate) use fingerprint::stream_hash;
pub use grid::{GridAxis, SWEEP_PRESETS, cells, preset};
pub use log::PredictionLog;
pub use merge::merge;
pub(crate) use plan::Plan;
pub use plan::Shard;
pub use record::{AnswerRecord, Record};
pub use rounds::Certainty;
pub(crate) use rounds::Rounds;
pub(crate) use run::Evaluation;
pub use run_dir::{CLASSES, Provenance, RunConfig, ViewConfig};
pub use source_statistics::{import_statistics, load_statistics, save_statistics};
pub(crate) use source_statistics::{prompts_hash, source_statistics, statistics_hash};
pub use summary::{Sets, Summary};
pub use timing::{MemoryMark, SampleTime, Timing, memory};
