//! Runs of prompt x adapter x data set: pipeline, records, metrics, caches, shards.
//!
//! A run is a stream of samples in a planned order. Each sample becomes one [`Record`]; everything else (summary,
//! tables, comparisons, merges) is computed from the records. Records do not depend on threads, batches, the cache,
//! shards or interruptions.

mod answer;
pub mod cache;
mod encoder;
mod evaluate;
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
mod statistics;
mod summary;
#[cfg(test)]
mod tests;
mod timing;

#[cfg(test)]
pub(crate) use encoder::Encoder;
pub(crate) use encoder::feature_key;
pub(crate) use evaluate::test_family;
pub use evaluate::{EvaluateRequest, EvaluatedRun, PromptChoice, ViewChoice, evaluate};
pub use grid::{GridAxis, SWEEP_PRESETS, cells, preset};
pub use merge::merge;
pub use plan::Shard;
pub(crate) use plan::{Plan, stream_hash};
pub use record::{AnswerRecord, Record};
pub(crate) use run::Evaluation;
pub use run_dir::{CLASSES, Provenance, RunConfig, ViewConfig};
pub use runner::{NamedPrompt, Subject};
pub(crate) use runner::{RunRequest, file_name};
pub use statistics::{StatisticsRequest, statistics};
pub use summary::{Sets, Summary};
pub use timing::{MemoryMark, SampleTime, Timing};
