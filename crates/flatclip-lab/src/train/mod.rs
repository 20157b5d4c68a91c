//! The tuning loop: steps, schedules, averages, logs, checkpoints, and whole runs.

mod averaging;
mod checkpoint;
mod comparison;
mod directory;
mod events;
mod fit;
#[cfg(test)]
mod resume_tests;
mod schedule;
mod search;
mod settings;
#[cfg(test)]
mod settings_tests;
mod swad;
mod trainer;
mod tune;

pub use comparison::{Comparison, Distance, SharpnessAtRadius};
pub use fit::LossAndAccuracy;
pub(crate) use settings::TuneCost;
pub use settings::TuneRequest;
pub use trainer::{StepRecord, Trainer};
pub(crate) use tune::with_text_tower;
pub use tune::{TuneSummary, tune};
