//! One error type. A variant is a cause with a stable [code](Error::code); its message names the file or key, what was
//! expected and what was found. What would help is a [`Hint`] in neutral words: the library does not name flags of a command
//! line, JSON fields or keyword arguments, so the program that shows the error translates it.

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
        /// The error of the system. Part of the message, so not a source of its own: chains would print it twice.
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
    /// An image cannot be decoded.
    #[error("{}: {reason}", path.display())]
    Image {
        /// The image.
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
    /// A method or loss of the user's own failed, or answered what cannot be used.
    #[error("method {method}: {reason}")]
    MethodFailed {
        /// Its name.
        method: String,
        /// What was expected, what was found, where.
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
    /// A tower that runs outside this library failed.
    #[error("{call}: {reason}")]
    Device {
        /// The device or the function that was called.
        call: String,
        /// What it raised or gave back, and what was expected.
        reason: String,
    },
    /// A name that is not one of the known ones.
    #[error("{what} `{name}` is not known{}; known are {known}", nearest.as_ref().map_or(String::new(), |near| format!(" (did you mean `{near}`?)")))]
    Unknown {
        /// What was named: `method`, `model`, `data set`, `option`, ...
        what: &'static str,
        /// The name.
        name: String,
        /// The known one that is spelt most alike.
        nearest: Option<String>,
        /// The known ones, separated by commas.
        known: String,
    },
    /// A prompt was learned with another model.
    #[error("{}: {reason}", path.display())]
    OtherModel {
        /// The prompt file.
        path: PathBuf,
        /// Both models.
        reason: String,
    },
    /// The caller asked to stop; what was done is saved.
    #[error("interrupted: {0}")]
    Interrupted(String),
    /// An error together with what would help.
    #[error("{error}")]
    Hinted {
        /// The error itself.
        error: Box<Error>,
        /// What would help.
        hint: Hint,
    },
}

/// What would help, in neutral words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Name a model.
    Model,
    /// Give class embeddings: then no text tower is needed.
    TextFeatures,
    /// Tune a prompt with this tuner first.
    Tune(&'static str),
    /// Import the file as a prompt, or give it as class embeddings.
    ImportPrompt,
    /// Compute token statistics of training images, and give them.
    Statistics,
    /// Give a folder of generated images.
    Generated,
    /// Resume the run.
    Resume,
    /// Resume the run, or choose another directory.
    ResumeOrElsewhere,
    /// Choose another directory.
    Elsewhere,
    /// Allow so many unreadable images.
    AllowErrors(usize),
    /// Ask for fewer shots, or allow fewer where a class has fewer.
    FewerShots,
    /// Keep images of each class out of training, or fix the setting.
    HeldOut,
    /// Name the folder of the known data sets, or the folder of this one.
    DataRoot(String),
    /// Make it again with this version: `landscape`, `analyze`.
    Again(&'static str),
    /// List what is known: `models`, `methods`, `data sets`, `cache entries`.
    List(&'static str),
    /// Evaluate the prompt of a tuning run first.
    Evaluate,
    /// Use the prompt with the model it was learned with, or say that the difference is meant.
    OtherModel,
    /// Give the server a key, or say that none is wanted.
    ServerKey,
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model => write!(f, "name a model"),
            Self::TextFeatures => write!(f, "give class embeddings"),
            Self::Tune(tuner) => write!(f, "tune a prompt with {tuner} first"),
            Self::ImportPrompt => write!(f, "import it as a prompt, or give it as class embeddings"),
            Self::Statistics => write!(f, "compute token statistics of training images first, and give them"),
            Self::Generated => write!(f, "give a folder of generated images"),
            Self::Resume => write!(f, "resume the run"),
            Self::ResumeOrElsewhere => write!(f, "resume the run, or choose another directory"),
            Self::Elsewhere => write!(f, "choose another directory"),
            Self::AllowErrors(count) => write!(f, "fix the images, or allow {count} errors"),
            Self::FewerShots => write!(f, "ask for fewer shots, or allow fewer where a class has fewer"),
            Self::HeldOut => write!(f, "keep some images of each class out of training, or fix the setting"),
            Self::DataRoot(name) => write!(f, "name the folder of the data sets, or the folder of {name}"),
            Self::Again(what) => write!(f, "make the {what} again with this version"),
            Self::List(what) => write!(f, "list the {what}"),
            Self::Evaluate => write!(f, "evaluate its prompt first"),
            Self::ServerKey => write!(f, "give a key by a file or the environment, or say that none is wanted"),
            Self::OtherModel => write!(f, "use the model it was learned with, or say that the difference is meant"),
        }
    }
}

impl Error {
    /// A stable name of the cause, for machines: one of [`Error::CODES`].
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "file.io",
            Self::Weights { .. } => "weights.unreadable",
            Self::WeightShape { .. } => "weights.shape",
            Self::Fetch { .. } => "model.fetch",
            Self::Image { .. } => "image.unreadable",
            Self::Limit { .. } => "limit.exceeded",
            Self::Text { .. } => "text.unusable",
            Self::Config { .. } => "option.invalid",
            Self::Unknown { .. } => "name.unknown",
            Self::Prompt { .. } => "prompt.unusable",
            Self::OtherModel { .. } => "prompt.other-model",
            Self::Data { .. } => "data.unusable",
            Self::Method { .. } => "method.needs",
            Self::MethodFailed { .. } => "method.failed",
            Self::Run { .. } => "run.unusable",
            Self::NotFinite { .. } => "number.not-finite",
            Self::Device { .. } => "device.failed",
            Self::Interrupted(_) => "interrupted",
            Self::Hinted { error, .. } => error.code(),
        }
    }

    /// Every code, with what it means.
    pub const CODES: &[(&str, &str)] = &[
        ("file.io", "the operating system refused a file"),
        ("weights.unreadable", "a weight file is damaged, foreign or unsafe"),
        ("weights.shape", "a tensor has another shape than the architecture needs"),
        ("model.fetch", "a model could not be fetched"),
        ("image.unreadable", "an image cannot be decoded"),
        ("limit.exceeded", "something is larger than a limit that protects memory or time"),
        ("text.unusable", "a text or class name cannot be tokenised"),
        ("option.invalid", "a setting is unknown, of the wrong type or out of range"),
        ("name.unknown", "a name of a method, model or data set is not known"),
        ("prompt.unusable", "a prompt file does not fit"),
        ("prompt.other-model", "a prompt was learned with another model"),
        ("data.unusable", "a data set is not as expected"),
        ("method.needs", "a method was not given what it needs"),
        ("method.failed", "a method or loss of your own failed, or answered what cannot be used"),
        ("run.unusable", "a run directory cannot be used"),
        ("number.not-finite", "a number is NaN or infinite"),
        ("device.failed", "a tower that runs on a device or in a function of the caller failed"),
        ("interrupted", "the caller asked to stop; what was done is saved"),
    ];

    /// What would help, where that is known.
    pub fn hint(&self) -> Option<&Hint> {
        match self {
            Self::Hinted { hint, .. } => Some(hint),
            _ => None,
        }
    }

    /// The same error with what would help; the first hint stays.
    #[must_use]
    pub fn with_hint(self, hint: Hint) -> Self {
        match self {
            Self::Hinted { .. } => self,
            error => Self::Hinted { error: Box::new(error), hint },
        }
    }

    /// Whether it is of the whole work and not of one image: the next image would meet it again.
    pub fn ends_work(&self) -> bool {
        matches!(self.code(), "method.failed" | "device.failed" | "interrupted")
    }

    /// `name` is not one of `known`; names the one that is spelt most alike.
    pub fn unknown<'k>(what: &'static str, name: &str, known: impl IntoIterator<Item = &'k str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let nearest = nearest(name, &known).map(str::to_owned);
        Self::Unknown { what, name: name.to_owned(), nearest, known: known.join(", ") }
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

/// Control characters, and marks that reorder or hide text, as escapes: what a file holds must not steer a terminal.
pub fn escaped(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// How much of a file's text a message quotes.
const QUOTED: usize = 80;

/// A file's text as a message may show it: [`escaped`], and cut if it is long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}..", escaped(&text[..end])),
        None => escaped(text),
    }
}

/// A weight file that cannot be used. What the file holds is escaped.
pub(crate) fn unusable_weights(path: &Path, reason: impl Into<String>) -> Error {
    Error::Weights { path: path.to_path_buf(), reason: escaped(&reason.into()) }
}

/// The known name within two edits (a third of its length for long ones), case aside.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase();
    let distance = |other: &str| edits(&name, &other.to_lowercase());
    let close = |other: &&&str| distance(other) <= 2.max(other.len() / 3);
    known.iter().filter(close).min_by_key(|other| distance(other)).copied()
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_gets_the_nearest_one_and_a_foreign_one_gets_none() {
        let message = |name: &str| Error::unknown("method", name, ["stss", "zero-shot", "tpt"]).to_string();
        assert!(message("STS").contains("did you mean `stss`"), "{}", message("STS"));
        assert!(message("zeroshot").contains("`zero-shot`?"));
        assert!(!message("resnet50").contains("did you mean"));
    }

    #[test]
    fn a_hint_changes_neither_message_nor_code_and_the_first_stays() {
        let error = Error::method("stss", "needs a text tower");
        let (text, code) = (error.to_string(), error.code());
        let hinted = error.with_hint(Hint::TextFeatures).with_hint(Hint::Model);
        assert_eq!((hinted.to_string(), hinted.code()), (text, code));
        assert_eq!(hinted.hint(), Some(&Hint::TextFeatures));
        assert!(Error::CODES.iter().any(|(known, _)| *known == code));
    }
}
