//! The tuning loop: steps, schedules, averages, logs, checkpoints, and whole runs.

pub mod averaging;
mod checkpoint;
mod directory;
pub mod events;
mod fit;
mod measure;
pub mod schedule;
mod search;
mod settings;
mod trainer;
mod tune;

pub use directory::RunDirectory;
pub use fit::{Control, Evaluation, HeldOut, Progress, TrainData, evaluate, fit};
pub use measure::{Flatness, RADIUS, flatness};
pub use search::{RADII, SearchRow, SearchTable};
pub use settings::{Settings, TuneRequest, parse_override};
pub use trainer::{StepRecord, Trainer};
pub use tune::{Event, TuneInput, TuneSummary, tune};
