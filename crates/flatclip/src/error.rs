//! One error type. A variant is a cause; a message names the file or key, what was expected, what was found, what to do.

use std::path::{Path, PathBuf};

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said. Part of the message, so not a source of its own: chains would say it twice.
        reason: std::io::Error,
    },
    /// A weight file is damaged, foreign or unsafe.
    #[error("{}: {reason}", path.display())]
    Weights {
        /// The weight file or model folder.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        reason: String,
    },
    /// A model could not be fetched.
    #[error("{url}: {reason}")]
    Fetch {
        /// What was asked for.
        url: String,
        /// What went wrong and what to do.
        reason: String,
    },
    /// A tensor has another shape than the architecture needs.
    #[error("{}: tensor `{tensor}` has shape {found:?}, expected {expected}", path.display())]
    WeightShape {
        /// The weight file.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// What the architecture needs.
        expected: String,
        /// What the file holds.
        found: Vec<usize>,
    },
    /// A picture cannot be decoded.
    #[error("{}: {reason}", path.display())]
    Image {
        /// The picture.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Something is larger than a limit that protects memory.
    #[error("{what}: {asked} is more than the limit of {allowed}; {hint}")]
    Limit {
        /// What is too large.
        what: String,
        /// How much was asked for.
        asked: u64,
        /// How much is allowed.
        allowed: u64,
        /// How to raise the limit or avoid it.
        hint: String,
    },
    /// A text cannot be tokenised.
    #[error("text {text:?}: {reason}")]
    Text {
        /// The beginning of the text.
        text: String,
        /// Why not.
        reason: String,
    },
    /// A setting is wrong.
    #[error("{key}: {reason}")]
    Config {
        /// The option or key path, e.g. `stss.radius`.
        key: String,
        /// What was expected, what was found.
        reason: String,
    },
    /// A prompt or adapter file does not fit.
    #[error("{}: {reason}", path.display())]
    Prompt {
        /// The prompt file.
        path: PathBuf,
        /// What does not fit and what would.
        reason: String,
    },
    /// A data set is not as expected.
    #[error("{}: {reason}", path.display())]
    Data {
        /// The folder or list.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        reason: String,
    },
    /// A method cannot work with what it was given.
    #[error("method {method}: {reason}")]
    Method {
        /// The method's name.
        method: String,
        /// What it needs, what it got.
        reason: String,
    },
    /// A run directory cannot be used.
    #[error("{}: {reason}", path.display())]
    Run {
        /// The run directory or a file of it.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A number is not finite.
    #[error("{place}: {reason}")]
    NotFinite {
        /// Where it appeared, e.g. `step 12, batch [..]`.
        place: String,
        /// What to look at.
        reason: String,
    },
    /// The user asked to stop; what was done is saved.
    #[error("interrupted: {0}")]
    Interrupted(String),
}

impl Error {
    /// A stable name of the cause, for machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Weights { .. } => "weights",
            Self::Fetch { .. } => "fetch",
            Self::WeightShape { .. } => "weights.shape",
            Self::Image { .. } => "image",
            Self::Limit { .. } => "limit",
            Self::Text { .. } => "text",
            Self::Config { .. } => "config",
            Self::Prompt { .. } => "prompt",
            Self::Data { .. } => "data",
            Self::Method { .. } => "method",
            Self::Run { .. } => "run",
            Self::NotFinite { .. } => "not_finite",
            Self::Interrupted(_) => "interrupted",
        }
    }

    /// For `map_err` on file operations.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        move |reason| Self::Io { path: path.as_ref().to_path_buf(), reason }
    }

    /// A wrong setting.
    pub fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { key: key.into(), reason: reason.into() }
    }

    /// A method that cannot work with what it was given.
    pub fn method(method: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Method { method: method.into(), reason: reason.into() }
    }
}
