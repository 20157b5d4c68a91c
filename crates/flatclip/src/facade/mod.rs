//! The front door: what a program that uses flatclip calls. The command line, a server and a Python package are thin
//! layers over this room; they decode, encode, choose views and look for weights nowhere else.

mod analyze;
mod answer;
mod builder;
mod class_list;
mod classifier;
mod evaluate;
mod features;
mod folders;
mod landscape;
mod memory;
mod model;
mod needs;
mod picture;
mod run;
mod shots;
mod slice;
mod statistics;
mod stream;
mod sweep;
mod together;
mod tune;

pub use analyze::{AnalyzeRequest, ClassRadius, analyze};
pub use answer::{Answer, Origin as AnswerOrigin, ViewScore};
pub use builder::ClassifierBuilder;
pub use classifier::Classifier;
pub use evaluate::{EvaluateRequest, EvaluatedRun, PromptChoice, ViewChoice, evaluate};
pub use features::{TextFeatures, adapt};
pub use folders::{cache_folder, model_places};
pub use landscape::{LandscapeOf, LandscapeRequest, landscape};
pub use memory::{MemoryNeed, limit as memory_limit};
pub use model::{Model, ModelBuilder};
pub use run::NamedPrompt;
pub use slice::SliceRequest;
pub use statistics::{StatisticsRequest, statistics};
pub use stream::Stream;
pub use sweep::{SweepRequest, SweptData, sweep};
pub use tune::tune;
