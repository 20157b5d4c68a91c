//! The tuning loop: steps, schedules, averages, logs, checkpoints, and whole runs.

pub mod averaging;
mod checkpoint;
mod directory;
pub mod events;
mod fit;
pub mod schedule;
mod trainer;

pub use directory::RunDirectory;
pub use fit::{Control, Evaluation, HeldOut, Progress, TrainData, evaluate, fit};
pub use trainer::{StepRecord, Trainer};
