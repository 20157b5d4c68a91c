//! Shared state of the steps of an item: the model, the opened data sets, and whether a step's result exists and is valid for
//! this recipe, model and prompt.

use super::plan::data_title;
use super::{EvaluateWork, PromptSource, Recipe, ReproduceRequest, Step, Work};
use crate::data::{Dataset, Split, open};
use crate::eval::{Plan as Stream, stream_hash};
use crate::{NamedPrompt, PromptChoice};
use flatclip::digest::Digest;
use flatclip::files::write_atomic;
use flatclip::prompt::{Prompt, PromptContent, read_text_features};
use flatclip::{Error, Model, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Stored with every result: a digest of its inputs, and digests of its files.
const STAMP: &str = "step.json";

/// The state of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "reason")]
pub enum State {
    /// Its result exists and is valid.
    Done,
    /// Unfinished; the step resumes it.
    Begun,
    /// It can run.
    Ready,
    /// It needs the result of a step that another process runs.
    Waits(String),
    /// It needs missing data.
    Absent(String),
}

pub(super) struct StepStore<'a> {
    pub(super) request: &'a ReproduceRequest,
    pub(super) recipe: Recipe,
    pub(super) model: &'a Model,
    sets: Mutex<BTreeMap<(String, &'static str), Arc<Dataset>>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Stamp {
    /// Digest of everything the result depends on.
    made_from: String,
    /// Digests of the result's files.
    files: BTreeMap<String, String>,
}

impl<'a> StepStore<'a> {
    pub(super) fn new(request: &'a ReproduceRequest, model: &'a Model) -> Result<Self> {
        Ok(Self { request, recipe: request.effective()?, model, sets: Mutex::default() })
    }

    /// A data set, opened once.
    pub(super) fn dataset(&self, spec: &str, split: Split) -> Result<Arc<Dataset>> {
        let key = (spec.to_owned(), split.name());
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = sets.get(&key) {
            return Ok(Arc::clone(found));
        }
        let dataset = Arc::new(open(spec, &self.request.opening(split))?);
        // The training split of ImageNet lists a million images: it is not cached.
        if split == Split::Test {
            sets.insert(key, Arc::clone(&dataset));
        }
        Ok(dataset)
    }

    /// A prompt with its name in records, which does not depend on the path of the item's folder.
    pub(super) fn prompt(&self, source: &PromptSource) -> Result<PromptChoice> {
        Ok(match source {
            PromptSource::OwnTemplates => PromptChoice::OwnTemplates,
            PromptSource::Text(word) => PromptChoice::One(Prompt::parse(word)?.into()),
            PromptSource::Described(word, file) => {
                PromptChoice::Described { templates: templates(word)?, file: file.clone() }
            }
            PromptSource::Tuned(dir) => PromptChoice::One(self.named(Prompt::open(dir)?)),
            PromptSource::File(path) => PromptChoice::One(self.named(given(path)?)),
        })
    }

    /// The name that an evaluation in the item's folder would record.
    fn named(&self, prompt: Prompt) -> NamedPrompt {
        let inside = prompt.path.strip_prefix(&self.request.out).unwrap_or(&prompt.path);
        NamedPrompt { name: inside.display().to_string(), prompt: Arc::new(prompt) }
    }

    /// The state of a step.
    pub(super) fn state(&self, step: &Step) -> Result<State> {
        let statistics = match &step.work {
            Work::Evaluate(work) => work.statistics.as_ref().map(|dir| dir.join(STATISTICS)),
            _ => None,
        };
        let needed = step.prompts().into_iter().filter_map(PromptSource::file).chain(statistics);
        if let Some(missing) = needed.into_iter().find(|file| !file.exists()) {
            return Ok(State::Waits(format!("{} is not there yet", missing.display())));
        }
        // Check for a finished step before searching its training data, which may be on another machine.
        if self.is_done(step)? {
            return Ok(State::Done);
        }
        self.state_of_data(step)
    }

    /// The state of a step whose prompts exist and whose result does not.
    pub(super) fn state_of_data(&self, step: &Step) -> Result<State> {
        let data: Vec<(&str, Split)> = match &step.work {
            Work::Tune(tune) => vec![(&tune.data, Split::Train)],
            Work::Statistics(work) => vec![(&work.data, Split::Train)],
            Work::Evaluate(work) => vec![(&work.data, Split::Test)],
            Work::Sweep(work) => work.data.iter().map(|data| (data.as_str(), Split::Test)).collect(),
            Work::Landscape(work) => vec![(&work.data, split_of(work.shots))],
        };
        for (name, split) in data {
            if let Err(error) = self.dataset(name, split) {
                return Ok(State::Absent(format!("{}: {error}", data_title(name))));
            }
        }
        let begun = step.dir.join("config.toml").is_file() || step.dir.join(STAMP).is_file();
        Ok(if begun { State::Begun } else { State::Ready })
    }

    /// Whether the result exists, is complete, and was made from the same inputs.
    fn is_done(&self, step: &Step) -> Result<bool> {
        let Ok(bytes) = std::fs::read(step.dir.join(STAMP)) else { return Ok(false) };
        let Ok(stamp) = serde_json::from_slice::<Stamp>(&bytes) else { return Ok(false) };
        let Ok(made_from) = self.made_from(step) else { return Ok(false) };
        let whole =
            |(name, digest): (&String, &String)| file_digest(&step.dir.join(name)).ok().as_ref() == Some(digest);
        Ok(stamp.made_from == made_from && !stamp.files.is_empty() && stamp.files.iter().all(whole))
    }

    pub(super) fn stamp(&self, step: &Step) -> Result<()> {
        let named = step.results().into_iter().map(|name| Ok((name.to_owned(), file_digest(&step.dir.join(name))?)));
        let stamp = Stamp { made_from: self.made_from(step)?, files: named.collect::<Result<_>>()? };
        let mut text = serde_json::to_string_pretty(&stamp).map_err(|e| Error::config(STAMP, e.to_string()))?;
        text.push('\n');
        write_atomic(&step.dir.join(STAMP), text.as_bytes())
    }

    /// Removes a stamp or a summary whose files have changed, so that the step runs again.
    pub(super) fn repair(&self, step: &Step) -> Result<()> {
        let Ok(bytes) = std::fs::read(step.dir.join(STAMP)) else { return Ok(()) };
        let files = serde_json::from_slice::<Stamp>(&bytes).map(|stamp| stamp.files).unwrap_or_default();
        let damaged =
            files.iter().any(|(name, digest)| file_digest(&step.dir.join(name)).ok().as_ref() != Some(digest));
        if damaged || files.is_empty() {
            for name in ["summary.json", STAMP] {
                match std::fs::remove_file(step.dir.join(name)) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(&step.dir)(e)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Digest of everything that a result depends on: settings, weights, prompts, images; without paths and times.
    fn made_from(&self, step: &Step) -> Result<String> {
        let model = self.model.clip();
        let mut digest = Digest::default().part(model.features_id()).part(model.precision());
        digest = digest.part(env!("CARGO_PKG_VERSION")).part(step.key()?).part(self.request.compat.join(","));
        for source in step.prompts() {
            digest = match source {
                PromptSource::Text(word) => digest.part(word),
                PromptSource::OwnTemplates => digest.part("own templates"),
                PromptSource::Tuned(_) | PromptSource::File(_) | PromptSource::Described(..) => {
                    let word = if let PromptSource::Described(word, _) = source { word } else { "" };
                    digest.part(word).part(source.file().map_or(Ok(String::new()), |file| file_digest(&file))?)
                }
            };
        }
        let tests: Vec<&String> = match &step.work {
            Work::Evaluate(work) => vec![&work.data],
            Work::Sweep(work) => work.data.iter().collect(),
            _ => Vec::new(),
        };
        for data in tests {
            let dataset = self.dataset(data, Split::Test)?;
            let stream = Stream::new(dataset.samples.len(), self.recipe.limit, None);
            digest = digest.part(stream_hash(&dataset, &stream)).part(dataset.classes_hash());
        }
        Ok(digest.key())
    }
}

/// The templates that a word stands for; none for the data set's own.
pub(super) fn templates(word: &str) -> Result<Vec<String>> {
    match word {
        "own" => Ok(Vec::new()),
        word => match Prompt::parse(word)?.content {
            PromptContent::Templates(templates) => Ok(templates),
            _ => Ok(Vec::new()),
        },
    }
}

/// Class embeddings, or any prompt.
fn given(path: &Path) -> Result<Prompt> {
    match Prompt::open(path) {
        Ok(prompt) => Ok(prompt),
        Err(error) => read_text_features(path).map_err(|_| error),
    }
}

/// The split of a landscape's data: training images for the training loss, a test image for views.
pub(super) fn split_of(shots: usize) -> Split {
    if shots > 0 { Split::Train } else { Split::Test }
}

fn file_digest(path: &Path) -> Result<String> {
    Ok(Digest::default().bytes(std::fs::read(path).map_err(Error::io(path))?).short())
}

impl Step {
    /// The prompts that it reads.
    pub fn prompts(&self) -> Vec<&PromptSource> {
        match &self.work {
            Work::Tune(_) => Vec::new(),
            Work::Statistics(work) => vec![&work.prompt],
            Work::Evaluate(work) => vec![&work.prompt],
            Work::Sweep(work) => vec![&work.prompt],
            Work::Landscape(work) => work.prompts.iter().map(|(_, source)| source).collect(),
        }
    }

    /// The files that are its result.
    fn results(&self) -> Vec<&'static str> {
        match self.work {
            Work::Tune(_) => vec!["summary.json", "prompt.safetensors"],
            Work::Statistics(_) => vec![STATISTICS],
            Work::Evaluate(_) => vec!["summary.json"],
            Work::Sweep(_) => vec!["report.html"],
            Work::Landscape(_) => vec!["landscape.json", "landscape.html"],
        }
    }

    fn key(&self) -> Result<String> {
        Ok(match &self.work {
            Work::Tune(tune) => tune.settings_text()?,
            Work::Statistics(work) => format!("statistics {} {} {}", work.data, work.shots, work.seed),
            Work::Evaluate(work) => {
                let EvaluateWork { method, options, policy, views, seed, order_seed, shard, data, .. } = work;
                let shard = shard.map(String::from);
                format!("evaluate {data} {method} {options} {policy:?} {views:?} {seed} {order_seed:?} {shard:?}")
            }
            Work::Sweep(work) => {
                format!("sweep {} {:?} {:?} {} {:?}", work.method, work.axes, work.policy, work.seed, work.data)
            }
            Work::Landscape(work) => {
                format!("landscape {} {} {} {}", work.data, work.shots, work.points, work.seed)
            }
        })
    }
}

/// The file of a statistics step.
pub(super) const STATISTICS: &str = "statistics.safetensors";
