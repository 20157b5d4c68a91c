//! Runs of prompt x adapter x data set: pipeline, records, metrics, caches, shards.
//!
//! A run is a stream of samples in a planned order ([`Plan`]). Each sample becomes one [`Record`]; everything else (summary,
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
mod run;
mod run_dir;
mod source_statistics;
mod summary;
#[cfg(test)]
mod tests;
mod timing;

pub use clip_encoder::{ClipEncoder, PIXEL_VERSION};
pub use encoder::Encoder;
pub use fingerprint::{matrix_hash, stream_hash};
pub use grid::{GridAxis, SWEEP_PRESETS, cells, preset};
pub use log::{PredictionLog, read_log};
pub use merge::merge;
pub use plan::{Plan, Shard};
pub use record::{AnswerRecord, Record};
pub use run::Evaluation;
pub use run_dir::{CLASSES, PREDICTIONS, PROVENANCE, Provenance, RunConfig, TIMING, ViewConfig};
pub use source_statistics::{
    Computed, import_statistics, load_statistics, prompts_hash, save_statistics, source_statistics, statistics_hash,
};
pub use summary::{Sets, Summary};
pub use timing::{MemoryMark, SampleTime, Timing, memory};
