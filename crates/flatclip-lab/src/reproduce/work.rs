//! The steps of a plan.

use crate::eval::{GridAxis, Shard};
use crate::{TuneRequest, ViewChoice};
use std::path::PathBuf;

/// The prompt of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptSource {
    /// A text with `{}`, or the name of a known set of templates.
    Text(String),
    /// Each data set's own templates.
    OwnTemplates,
    /// Templates (`own`, a text or a known set) and a file of sentences that describe the classes.
    Described(String, PathBuf),
    /// The prompt learned by the tuning run in this folder.
    Tuned(PathBuf),
    /// A file of the user.
    File(PathBuf),
}

/// The work of a step.
#[derive(Clone, Debug)]
pub enum Work {
    /// Learns a prompt on the source.
    Tune(TuneRequest),
    /// Token statistics of source images, for PromptAlign.
    Statistics(StatisticsWork),
    /// Evaluates a row on a data set.
    Evaluate(EvaluateWork),
    /// A grid of settings.
    Sweep(SweepWork),
    /// Loss surfaces.
    Landscape(LandscapeWork),
}

/// See [`Work::Statistics`].
#[derive(Clone, Debug)]
pub struct StatisticsWork {
    /// The source.
    pub data: String,
    /// Images per class.
    pub shots: usize,
    /// The prompt whose visual prompts are used in the tower.
    pub prompt: PromptSource,
    /// Seed of the draw.
    pub seed: u64,
}

/// See [`Work::Evaluate`].
#[derive(Clone, Debug)]
pub struct EvaluateWork {
    /// Label of the row.
    pub row: String,
    /// The data set.
    pub data: String,
    /// Its prompt.
    pub prompt: PromptSource,
    /// The adapter.
    pub method: String,
    /// Its options.
    pub options: toml::Table,
    /// How views are made.
    pub policy: ViewChoice,
    /// Number of views; the method's default if `None`.
    pub views: Option<usize>,
    /// Seed of views and method.
    pub seed: u64,
    /// Seed of the stream's order, for methods that learn from it.
    pub order_seed: Option<u64>,
    /// Folder of the statistics, for PromptAlign.
    pub statistics: Option<PathBuf>,
    /// The shard of the stream; never set for methods that learn from it.
    pub shard: Option<Shard>,
}

/// See [`Work::Sweep`].
#[derive(Clone, Debug)]
pub struct SweepWork {
    /// Its title.
    pub title: String,
    /// The data sets.
    pub data: Vec<String>,
    /// Their prompt.
    pub prompt: PromptSource,
    /// The adapter.
    pub method: String,
    /// The options that vary.
    pub axes: Vec<GridAxis>,
    /// How views are made.
    pub policy: ViewChoice,
    /// Seed of views and method.
    pub seed: u64,
}

/// See [`Work::Landscape`].
#[derive(Clone, Debug)]
pub struct LandscapeWork {
    /// Its title.
    pub title: String,
    /// Names and prompts, side by side.
    pub prompts: Vec<(String, PromptSource)>,
    /// The data: the source for the training loss, else a data set whose first image provides the views.
    pub data: String,
    /// Images per class, for the training loss; 0 for views of an image.
    pub shots: usize,
    /// Grid points along each axis.
    pub points: usize,
    /// Seed of directions, shots and views.
    pub seed: u64,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name in messages.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
    /// Its work.
    pub work: Work,
}

impl PromptSource {
    /// The file that must exist before the step can run.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Text(_) | Self::OwnTemplates => None,
            Self::Tuned(dir) => Some(dir.join("prompt.safetensors")),
            Self::File(path) if path.is_dir() => Some(path.join("prompt.safetensors")),
            Self::File(path) | Self::Described(_, path) => Some(path.clone()),
        }
    }
}
