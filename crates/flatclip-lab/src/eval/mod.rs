//! Runs of prompt x adapter x data set: pipeline, records, metrics, caches, shards.
//!
//! A run is a stream of samples in a planned order. Each sample becomes one [`Record`]; everything else (summary,
//! tables, comparisons, merges) is computed from the records. Records do not depend on threads, batches, the cache,
//! shards or interruptions.

mod answer;
pub mod cache;
mod encoder;
mod evaluate;
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
mod runner;
mod source_statistics;
mod statistics;
mod subject;
mod summary;
#[cfg(test)]
mod tests;
mod timing;

#[cfg(test)]
pub(crate) use encoder::Encoder;
pub(crate) use encoder::feature_key;
pub(crate) use evaluate::test_family;
pub use evaluate::{EvaluateRequest, EvaluatedRun, PromptChoice, ViewChoice, evaluate};
pub(crate) use fingerprint::stream_hash;
pub use grid::{GridAxis, SWEEP_PRESETS, cells, preset};
pub use log::PredictionLog;
pub use merge::merge;
pub(crate) use plan::Plan;
pub use plan::Shard;
pub use record::{AnswerRecord, Record};
pub(crate) use run::Evaluation;
pub use run_dir::{CLASSES, Provenance, RunConfig, ViewConfig};
pub use runner::NamedPrompt;
pub(crate) use runner::{RunRequest, file_name};
pub(crate) use source_statistics::source_statistics;
pub use statistics::{StatisticsRequest, statistics};
pub use subject::Subject;
pub use summary::{Sets, Summary};
pub use timing::{MemoryMark, SampleTime, Timing};
