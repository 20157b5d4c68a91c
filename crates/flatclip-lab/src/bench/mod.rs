//! Time and memory of every stage on this machine, on random weights of real shapes or on a model of one's own.

mod cases;
mod flops;
mod measure;
mod methods;
mod pairs;
mod rates;

pub use measure::{CaseTiming, Turn, TurnTaker};
pub use methods::{MethodTiming, method_names, time_method};
pub use rates::Rates;

use cases::{CASES, Workbench};
use flatclip::model::Precision;
use flatclip::{Error, ModelBuilder, Progress, Result};
use std::path::PathBuf;

/// What is measured.
#[derive(Clone, Debug)]
pub struct BenchRequest {
    /// The model, e.g. `random:ViT-B-16`.
    pub model: String,
    /// How it is found.
    pub find: ModelBuilder,
    /// What the image tower multiplies in.
    pub precision: Precision,
    /// What the text tower multiplies in.
    pub text_precision: Precision,
    /// Repeats of each case, after one that warms up.
    pub repeats: usize,
    /// Views of an image.
    pub views: usize,
    /// Classes (of ImageNet) for the text cases.
    pub classes: usize,
    /// An image for the case `views`, which then decodes it, too, and for the case `files`.
    pub image: Option<PathBuf>,
}

impl BenchRequest {
    fn check(&self) -> Result<()> {
        if !(1..=1000).contains(&self.classes) {
            return Err(Error::config("classes", format!("expected 1 to 1000, found {}", self.classes)));
        }
        if self.repeats == 0 || self.views == 0 {
            return Err(Error::config("repeats and views", "expected at least 1"));
        }
        Ok(())
    }

    /// What makes two measurements comparable.
    pub fn setting(&self) -> serde_json::Value {
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model": self.model,
            "isa": flatclip_tensor::isa::current().name(),
            "precision": self.precision.name(),
            "text_precision": self.text_precision.name(),
            "threads": rayon::current_num_threads(),
        })
    }
}

/// Times the named cases (all of them when none is named). With a turn taker, another program runs between the repeats.
pub fn time_cases<'a>(
    request: &'a BenchRequest,
    names: &[String],
    turns: Option<&'a mut dyn TurnTaker>,
    progress: &'a dyn Progress,
) -> Result<Vec<CaseTiming>> {
    request.check()?;
    let known = || CASES.iter().map(|case| case.0);
    if let Some(unknown) = names.iter().find(|name| !known().any(|case| case == name.as_str())) {
        return Err(Error::unknown("case", unknown, known()));
    }
    let mut bench = Workbench::new(request, turns, progress);
    let mut timings = Vec::new();
    for (name, case) in CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.0)) {
        progress.note(&format!("{name} ..."));
        timings.extend(case(&mut bench)?);
    }
    Ok(timings)
}
