//! Prompts: what gives a class list its text features. Hand-written templates, a learned context, plain text features, or what the
//! other tuners leave behind; and their files.
//!
//! | kind | learned from labels | works with another class list | needs |
//! |---|---|---|---|
//! | templates | no | yes | text tower |
//! | learned, shared context | yes | yes | text tower |
//! | learned, class-specific context | yes | no | text tower |
//! | features | - | no | nothing |
//! | cocoop | yes | yes | text tower |
//! | maple | yes | yes | text tower, ViT |
//! | tip-adapter | yes | no | text tower |
//! | linear (GDA-CLIP) | yes | no | text tower |

mod affine;
mod classifier;
mod descriptions;
mod file;
mod import;
mod open;
mod text_features;
mod tokens;

pub use affine::{Affine, Tensor};
pub use classifier::{PromptClassifier, logits};
#[doc(hidden)]
pub use classifier::{add_cache, prompt_logits, scaled, shifted, shifts, visual_prompts};
pub use descriptions::Descriptions;
#[doc(hidden)]
pub use file::{Arrays, decode_arrays, encode_arrays, encode_plain};
pub use import::{ImportOptions, import};
pub use open::Tuning;
#[doc(hidden)]
pub use text_features::{named_features_bytes, npy_bytes};
pub use text_features::{read_text_bank, read_text_features, write_text_features};
#[doc(hidden)]
pub use tokens::{check_length, class_tokens, template_context};

use crate::model::{Context, Position};
use crate::{Error, Result, digest};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A prompt, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The prompt itself.
    pub content: PromptContent,
    /// How it was made.
    pub provenance: Provenance,
    /// The file it was read from, for messages; empty for one made in memory.
    pub path: PathBuf,
}

/// The kinds of prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PromptKind {
    /// Texts with a place for the class name.
    Templates,
    /// A learned context (CoOp, SAPT).
    Learned,
    /// Class embeddings.
    Features,
    /// CoCoOp's context, shifted by each image.
    #[serde(rename = "cocoop")]
    CoCoOp,
    /// MaPLe's prompts in both towers.
    Maple,
    /// Tip-Adapter's cache.
    TipAdapter,
    /// GDA-CLIP's linear classifier.
    Linear,
}

impl PromptKind {
    /// Every kind.
    pub const ALL: &[Self] =
        &[Self::Templates, Self::Learned, Self::Features, Self::Maple, Self::CoCoOp, Self::TipAdapter, Self::Linear];

    /// Those that are text features and nothing else: the others add a classifier of image features.
    pub const TEXT: &[Self] = &[Self::Templates, Self::Learned, Self::Features, Self::Maple, Self::CoCoOp];

    /// As in files, JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Templates => "templates",
            Self::Learned => "learned",
            Self::Features => "features",
            Self::CoCoOp => "cocoop",
            Self::Maple => "maple",
            Self::TipAdapter => "tip-adapter",
            Self::Linear => "linear",
        }
    }

    /// "templates, learned or maple".
    pub fn list(kinds: &[Self]) -> String {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        match &names[..] {
            [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
            names => names.concat(),
        }
    }
}

impl std::fmt::Display for PromptKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A prompt of each kind.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PromptContent {
    /// Texts with `{}` for the class name; the features of several are averaged.
    Templates(Vec<String>),
    /// Learned context tokens (CoOp, SAPT).
    Learned {
        /// The context.
        context: Context,
        /// The words it started from; empty for a random start.
        words: String,
        /// Position of the class name.
        position: Position,
    },
    /// Unit-norm class embeddings `[K, D]`, from wherever.
    Features(Matrix),
    /// CoCoOp: a context that every image shifts.
    CoCoOp {
        /// The context before the shift.
        context: Context,
        /// The words it started from.
        words: String,
        /// Image features to a hidden layer (ReLU follows), hidden layer to the shift.
        meta: [Affine; 2],
    },
    /// MaPLe: prompts in both towers, the visual ones projected from the textual ones.
    Maple {
        /// Context at the input of the text tower.
        context: Context,
        /// The words it started from.
        words: String,
        /// Fixed words between the context and the class name ("of a" in the published recipe).
        tail: String,
        /// Text prompts that replace the context at the input of blocks 1, 2, ...
        deep: Vec<Matrix>,
        /// Context to visual prompts, then one for each deep prompt.
        projections: Vec<Affine>,
    },
    /// Tip-Adapter: a cache of labelled image features, added to the zero-shot classifier.
    TipAdapter {
        /// Unit-norm (or fine-tuned) features of the shots, `[N, D]`.
        keys: Matrix,
        /// Class of each key.
        labels: Vec<usize>,
        /// Weight of the cache.
        alpha: f32,
        /// Sharpness of the cache.
        beta: f32,
        /// Templates of the zero-shot classifier.
        templates: Vec<String>,
    },
    /// GDA-CLIP: a linear classifier of image features, added to the zero-shot classifier.
    Linear {
        /// Weights `[K, D]` and biases.
        layer: Affine,
        /// Weight of its scores.
        alpha: f32,
        /// Templates of the zero-shot classifier.
        templates: Vec<String>,
    },
}

/// How a prompt was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// The tuner, or `templates`, `import`.
    pub method: String,
    /// Where its numbers came from, e.g. an imported file's name.
    pub source: String,
    /// Hash of the weights it was learned with; empty when not known.
    pub model_hash: String,
    /// [`class_hash`] of the class list it was learned with; empty when not known.
    pub class_hash: String,
    /// That class list.
    pub classes: Vec<String>,
    /// The resolved settings of the run, as TOML.
    pub config: String,
    /// The flatclip version that wrote it.
    pub version: String,
    /// An imported context: the embedding of the start token that its checkpoint carries (`token_prefix`), which shows
    /// what model it was learned with; empty when not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start_token: Vec<f32>,
}

impl Prompt {
    /// CLIP's usual single template.
    pub const TEMPLATE: &'static str = "a photo of a {}.";

    /// A prompt made in memory.
    pub fn new(content: PromptContent, provenance: Provenance) -> Self {
        Self { content, provenance, path: PathBuf::new() }
    }

    /// A prompt of templates.
    pub fn templates<S: AsRef<str>>(templates: &[S]) -> Result<Self> {
        let templates: Vec<String> = templates.iter().map(|t| t.as_ref().to_owned()).collect();
        if templates.is_empty() {
            return Err(Error::config("template", "expected at least one, found none"));
        }
        if let Some(bad) = templates.iter().find(|t| !t.contains("{}")) {
            return Err(Error::config("template", format!("{bad:?} has no {{}} for the class name")));
        }
        let provenance = Provenance { method: "templates".into(), ..Provenance::default() };
        Ok(Self::new(PromptContent::Templates(templates), provenance))
    }

    /// A prompt of class embeddings; rows are made unit-norm.
    pub fn features(mut features: Matrix) -> Result<Self> {
        normalise_rows(&mut features)?;
        let provenance = Provenance { method: "features".into(), ..Provenance::default() };
        Ok(Self::new(PromptContent::Features(features), provenance))
    }

    /// Its kind.
    pub fn kind(&self) -> PromptKind {
        match &self.content {
            PromptContent::Templates(_) => PromptKind::Templates,
            PromptContent::Learned { .. } => PromptKind::Learned,
            PromptContent::Features(_) => PromptKind::Features,
            PromptContent::CoCoOp { .. } => PromptKind::CoCoOp,
            PromptContent::Maple { .. } => PromptKind::Maple,
            PromptContent::TipAdapter { .. } => PromptKind::TipAdapter,
            PromptContent::Linear { .. } => PromptKind::Linear,
        }
    }

    /// The context, where there is one.
    pub fn context(&self) -> Option<&Context> {
        match &self.content {
            PromptContent::Learned { context, .. }
            | PromptContent::CoCoOp { context, .. }
            | PromptContent::Maple { context, .. } => Some(context),
            _ => None,
        }
    }

    /// An error of this prompt, naming its file.
    pub(crate) fn fault(&self, reason: impl Into<String>) -> Error {
        if self.path.as_os_str().is_empty() {
            return unusable(reason);
        }
        Error::Prompt { path: self.path.clone(), reason: reason.into() }
    }

    /// Refuses a class list that this prompt cannot serve, and says why.
    pub fn check_classes(&self, classes: &[String]) -> Result<()> {
        if classes.is_empty() {
            return Err(Error::config("classes", "expected at least one class name, found none"));
        }
        let why = match &self.content {
            PromptContent::Learned { .. } => "its context is class-specific: one context was learned for each class",
            PromptContent::Features(_) => "it is a matrix of text features, one row per class",
            PromptContent::TipAdapter { .. } => "its cache answers with the classes of its shots",
            PromptContent::Linear { .. } => "its classifier has one row for each class",
            _ => return Ok(()),
        };
        let bound = self.context().map_or_else(|| self.bound_classes(), |context| context.classes);
        let Some(rows) = bound else { return Ok(()) };
        let hash = &self.provenance.class_hash;
        let same_names = hash.is_empty() || *hash == class_hash(classes);
        // A cache whose class list is not known is checked by its labels alone.
        let rows_fit = rows == classes.len() || (rows == 0 && matches!(self.content, PromptContent::TipAdapter { .. }));
        if rows_fit && same_names {
            return Ok(());
        }
        let list =
            |names: &[String]| format!("{} classes ({}, ...)", names.len(), names[..names.len().min(3)].join(", "));
        let own = self.provenance.classes.as_slice();
        let known = if own.is_empty() { format!("{rows} classes") } else { list(own) };
        Err(self.fault(format!(
            "cannot be used with this list of {}: {why}. It was made for {known}; use that list, or a prompt with a shared \
             context",
            list(classes)
        )))
    }
}

/// A prompt in memory that does not fit.
pub fn unusable(reason: impl Into<String>) -> Error {
    Error::Prompt { path: "prompt".into(), reason: reason.into() }
}

/// Divides each row by its norm; a zero or non-finite row is an error.
pub fn normalise_rows(features: &mut Matrix) -> Result<()> {
    for row in 0..features.rows() {
        let values = features.row_mut(row);
        let norm = l2_norm(values.iter());
        if !(norm.is_finite() && norm > 0.0) {
            return Err(Error::NotFinite {
                place: format!("text features, row {row}"),
                reason: format!("its norm is {norm}; a class embedding must be finite and not zero"),
            });
        }
        values.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
    Ok(())
}

/// A short name of a class list: what makes two runs comparable.
pub fn class_hash(classes: &[String]) -> String {
    digest::of_names(classes)
}
