//! The tuning loop: optimisers, schedules, checkpoints.

pub mod averaging;
pub mod events;
pub mod schedule;
mod trainer;

pub use trainer::{StepRecord, Trainer};
