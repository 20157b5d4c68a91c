//! The tuning loop: steps, schedules, averages, logs, checkpoints, and whole runs.

pub(crate) mod averaging;
mod checkpoint;
mod comparison;
mod directory;
pub(crate) mod events;
mod fit;
mod measure;
#[cfg(test)]
mod resume_tests;
pub mod schedule;
mod search;
mod settings;
#[cfg(test)]
mod settings_tests;
mod swad;
mod trainer;
mod tune;

pub use comparison::{Comparison, Distance};
pub use fit::{Control, HeldOut, LossAndAccuracy, TrainData, evaluate, fit};
pub use measure::{RADIUS, SharpnessAtRadius, sharpness};
pub(crate) use settings::TuneCost;
pub use settings::TuneRequest;
pub use trainer::{StepRecord, Trainer};
pub(crate) use tune::with_text_tower;
pub use tune::{TuneSummary, tune};
