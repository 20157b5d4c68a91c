//! What an evaluation keeps in its run directory: `config.toml` (resolved), `run.json` (provenance), `classes.txt`, `predictions.jsonl`, `summary.json`, and,
//! apart from what must be the same bytes, `timing.json` and `timing.jsonl`.

use super::log::{PredictionLog, read_log};
use super::plan::Shard;
use super::record::Record;
use super::summary::{Sets, Summary};
use super::timing::Timing;
use crate::data::Note;
use crate::run_dir::{CONFIG, RunDir, SUMMARY, first_difference};
use flatclip::methods::Confidence;
use flatclip::model::Device;
use flatclip::prompt::Tuning;
use flatclip::{Error, Result, files};
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(crate) const PROVENANCE: &str = "run.json";
/// Class names, one per line, in the order of the labels.
pub const CLASSES: &str = "classes.txt";
pub(crate) const PREDICTIONS: &str = "predictions.jsonl";
pub(crate) const TIMING: &str = "timing.json";

/// What was asked for, with every default filled in. Two runs with the same configuration give the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The adapter.
    pub method: String,
    /// Version and digest of the code of a method that is not this library's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// The model, as given.
    pub model: String,
    /// `f32`, `bf16` or `i16`.
    pub precision: String,
    /// The data set, as given.
    pub data: String,
    /// Which part of it.
    pub split: String,
    /// Where class embeddings come from: a template set, a prompt file, a feature file.
    pub prompt: String,
    /// Seed of views and methods.
    pub seed: u64,
    /// Seed of the stream's order; none for the data set's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_seed: Option<u64>,
    /// How many samples, spread over the data set; none for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Which part of the stream; none for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Oddities that are reproduced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compat: Vec<String>,
    /// Prompts that stand around the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bank: Vec<String>,
    /// Whether records keep the probability of every class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_probabilities: bool,
    /// Images are rotated per EXIF, and 16-bit grey is scaled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exif: bool,
    /// How views are made.
    pub views: ViewConfig,
    /// All options of the adapter.
    #[serde(default)]
    pub options: toml::Table,
}

/// How views are made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewConfig {
    /// crop-flip, augmix or identity; older records call it augmentation.
    #[serde(alias = "augmentation")]
    pub policy: String,
    /// Views of a sample, the original included; the most of them where a certainty is given.
    pub count: usize,
    /// Any-time views: the mean probability of the answer at which no more of them are encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certainty: Option<f64>,
}

impl std::fmt::Display for ViewConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x{}", self.policy, self.count)?;
        self.certainty.map_or(Ok(()), |certainty| write!(f, ", until certain to {certainty}"))
    }
}

/// What makes numbers comparable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of this program.
    pub flatclip: String,
    /// Architecture by its released name, e.g. `ViT-B-16`.
    pub backbone: String,
    /// Fingerprint of the weights.
    pub weights: String,
    /// The prompt: template, templates-7, templates-80, features, coop, sapt, ...
    pub prompt: String,
    /// Where the prompt came from, when it was learned elsewhere: `imported from FILE`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt_origin: String,
    /// How the prompt was tuned; none for prompts that were not tuned here, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tuning: Option<Tuning>,
    /// Norm of the context, the unit of a relative radius; none where the prompt has no context of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_norm: Option<f64>,
    /// Fingerprint of the class embeddings.
    pub text_features: String,
    /// Fingerprint of the class names.
    pub class_names: String,
    /// Number of classes.
    pub classes: usize,
    /// Name of the data set.
    pub dataset: String,
    /// Fingerprint of the training images' token statistics; empty where the method uses none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statistics: String,
    /// Samples of the whole stream, over all shards.
    pub samples: usize,
    /// Fingerprint of the samples and their order.
    pub stream: String,
    /// Instruction path.
    pub isa: String,
    /// Where the towers ran and how they agree with our kernels; none for our kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Version of decoder and view code.
    pub pixels: String,
    /// What decoded the images; empty in records of versions that did not say.
    #[serde(default)]
    pub decoder: String,
    /// What the loader found; not compared.
    pub notes: Vec<Note>,
}

/// What is read of the summary of an earlier version; the rest is a function of the records.
#[derive(Deserialize)]
struct EarlierSummary {
    dataset: String,
    method: String,
    classes: usize,
    samples: usize,
    #[serde(default)]
    sets: Option<Sets>,
}

/// Whether a summary is of a version whose top-5 counted ties and whose NLL had a floor.
fn is_earlier(summary: &serde_json::Value) -> bool {
    summary["metrics"].get("infinite_nll").is_none()
}

/// What starting again would lose.
const STATE: [&str; 2] = [PREDICTIONS, SUMMARY];

impl RunDir {
    /// Begins an evaluation, or resumes one that has the same configuration. Gives the log and the records so far.
    pub(crate) fn start(
        path: &Path,
        config: &RunConfig,
        provenance: &Provenance,
        classes: &[String],
        resume: bool,
    ) -> Result<(Self, PredictionLog, Vec<Record>)> {
        let (dir, goes_on) = Self::take(path, &as_table(config)?, resume, &STATE)?;
        let log = dir.file(PREDICTIONS);
        if goes_on && dir.file(PROVENANCE).is_file() {
            if let Some(difference) = dir.provenance()?.difference(provenance) {
                return Err(dir.fault(format!("cannot resume with another configuration: {difference}")));
            }
            if log.is_file() {
                let (log, records) = PredictionLog::resume(&log)?;
                return Ok((dir, log, records));
            }
        }
        dir.write_json(PROVENANCE, provenance)?;
        dir.write_classes(classes)?;
        Ok((dir, PredictionLog::create(&log)?, Vec::new()))
    }

    pub(crate) fn config(&self) -> Result<RunConfig> {
        let reason = |e: toml::de::Error| Error::Run { path: self.file(CONFIG), reason: e.message().to_owned() };
        self.config_table()?.try_into().map_err(reason)
    }

    pub(crate) fn provenance(&self) -> Result<Provenance> {
        self.read_json(PROVENANCE)
    }

    /// The summary; `None` while the run is not complete. Of a run of an earlier version, whose top-5 counted ties and whose
    /// NLL had a floor, the metrics are computed again from its records.
    pub(crate) fn summary(&self) -> Result<Option<Summary>> {
        if !self.is_complete() {
            return Ok(None);
        }
        let document: serde_json::Value = self.read_json(SUMMARY)?;
        let fault = |e: serde_json::Error| Error::Run { path: self.file(SUMMARY), reason: e.to_string() };
        if !is_earlier(&document) {
            return serde_json::from_value(document).map(Some).map_err(fault);
        }
        let earlier: EarlierSummary = serde_json::from_value(document).map_err(fault)?;
        let config = self.config()?;
        let summary = Summary::new(&earlier.dataset, &earlier.method, earlier.classes, &self.records()?);
        let confidence = Confidence::of(&config.method, &config.options);
        // Of its own samples: missing records are found when a run is read.
        Ok(Some(Summary { samples: earlier.samples, sets: earlier.sets, ..summary.with_confidence(confidence) }))
    }

    /// The times; `None` if they were not kept.
    pub(crate) fn timing(&self) -> Result<Option<Timing>> {
        if self.file(TIMING).is_file() { self.read_json(TIMING).map(Some) } else { Ok(None) }
    }

    /// The class names; `None` for a run that did not keep them.
    pub(crate) fn classes(&self) -> Result<Option<Vec<String>>> {
        let path = self.file(CLASSES);
        if !path.is_file() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        Ok(Some(text.lines().map(str::to_owned).collect()))
    }

    /// All whole records.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        Ok(read_log(&self.file(PREDICTIONS))?.0)
    }

    /// Ends a run: the summary is written last and marks it as complete.
    pub(crate) fn finish(&self, summary: &Summary, timing: &Timing) -> Result<()> {
        self.write_json(TIMING, timing)?;
        files::write_atomic(&self.file("timing.jsonl"), timing.lines().as_bytes())?;
        self.seal(summary)
    }

    /// Puts this summary in the place of one that an earlier version wrote.
    pub(crate) fn renew_summary(&self, summary: &Summary) -> Result<()> {
        if is_earlier(&self.read_json(SUMMARY)?) { self.seal(summary) } else { Ok(()) }
    }

    /// Digests of all files, and the summary.
    fn seal(&self, summary: &Summary) -> Result<()> {
        let kept = [CONFIG, PROVENANCE, CLASSES, PREDICTIONS];
        let there: Vec<&str> = kept.into_iter().filter(|name| self.file(name).is_file()).collect();
        self.finish_with(&there, summary)
    }

    /// Writes the class names. A name is one line, whatever a class list calls it.
    pub(super) fn write_classes(&self, classes: &[String]) -> Result<()> {
        let text: String = classes.iter().map(|name| name.replace(['\n', '\r'], " ") + "\n").collect();
        files::write_atomic(&self.file(CLASSES), text.as_bytes())
    }
}

impl Provenance {
    /// The first field in which two provenances differ (notes apart), as text.
    pub fn difference(&self, other: &Self) -> Option<String> {
        // What an earlier version did not write is no difference.
        let says_tuning = self.prompt_tuning.is_some() && other.prompt_tuning.is_some();
        let plain = |p: &Self| {
            let prompt_tuning = p.prompt_tuning.clone().filter(|_| says_tuning);
            toml::Table::try_from(Self { notes: Vec::new(), prompt_tuning, ..p.clone() }).unwrap_or_default()
        };
        first_difference(&plain(self), &plain(other), "")
    }
}

/// A configuration as a table of keys.
pub(super) fn as_table(config: &RunConfig) -> Result<toml::Table> {
    toml::Table::try_from(config).map_err(|e| Error::config("config", e.to_string()))
}
