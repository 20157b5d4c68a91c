//! Models, prompts and class lists by name. Replaced as a whole when the configuration is reloaded; running requests keep
//! the catalogue they started with.

use crate::{ClassSet, Config, ModelEntry, Problem, PromptEntry};
use flatclip::model::Precision;
use flatclip::text::imagenet;
use flatclip::{Error, Model, Progress, Prompt, Result};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Catalogue {
    pub(crate) models: Vec<(ModelEntry, Model)>,
    pub(crate) prompts: Vec<NamedPrompt>,
    pub(crate) class_sets: Vec<(String, Vec<String>)>,
}

/// A prompt with a load counter as part of its cache keys: a prompt that was loaded again does not share cache entries.
pub(crate) struct NamedPrompt {
    pub(crate) entry: PromptEntry,
    pub(crate) prompt: Prompt,
    pub(crate) reading: u64,
}

static READINGS: AtomicU64 = AtomicU64::new(0);

impl Catalogue {
    /// Loads the models, prompts and class lists of the configuration. Models of `before` with an unchanged entry are reused.
    pub(crate) fn load(config: &Config, before: Option<&Self>) -> Result<Self> {
        let mut models = Vec::new();
        for entry in &config.models {
            let kept = before.and_then(|before| before.models.iter().find(|(known, _)| known == entry));
            let model = match kept {
                Some((_, model)) => model.clone(),
                None => load_model(config, entry)?,
            };
            models.push((entry.clone(), model));
        }
        let mut prompts = Vec::new();
        for entry in &config.prompts {
            let prompt = Prompt::open(&entry.path)?;
            let reading = READINGS.fetch_add(1, Ordering::Relaxed);
            prompts.push(NamedPrompt { entry: entry.clone(), prompt, reading });
        }
        let mut class_sets = vec![
            ("pocket".to_owned(), flatclip_pocket::CLASS_NAMES.map(str::to_owned).to_vec()),
            ("imagenet".to_owned(), imagenet::CLASS_NAMES.iter().copied().map(str::to_owned).collect()),
        ];
        for set in &config.class_sets {
            class_sets.retain(|(name, _)| name != &set.name);
            class_sets.push((set.name.clone(), classes_of(set)?));
        }
        Ok(Self { models, prompts, class_sets })
    }

    /// A model by name; the first one if no name is given.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<(&str, &Model), Problem> {
        let name = name.or_else(|| self.models.first().map(|(entry, _)| entry.name.as_str())).unwrap_or_default();
        let (entry, model) = find("model", name, &self.models, |(entry, _)| &entry.name, "GET /v1/models lists them")?;
        Ok((&entry.name, model))
    }

    pub(crate) fn prompt(&self, name: &str) -> Result<&NamedPrompt, Problem> {
        find("prompt", name, &self.prompts, |prompt| &prompt.entry.name, "GET /v1/prompts lists them")
    }

    pub(crate) fn class_set(&self, name: &str) -> Result<&[String], Problem> {
        let found = find("class set", name, &self.class_sets, |(name, _)| name, "GET /v1/class_sets lists them");
        found.map(|(_, classes)| classes.as_slice())
    }
}

fn find<'a, T>(
    what: &'static str,
    name: &str,
    all: &'a [T],
    name_of: fn(&T) -> &String,
    hint: &str,
) -> Result<&'a T, Problem> {
    all.iter().find(|one| name_of(one) == name).ok_or_else(|| {
        let known = all.iter().map(|one| name_of(one).as_str());
        Problem::not_found(Error::unknown(what, name, known).to_string()).with_hint(hint)
    })
}

/// Sends warnings during loading to the server's log.
struct Log;

impl Progress for Log {
    fn warn(&self, text: &str) {
        tracing::warn!("{text}");
    }
}

fn load_model(config: &Config, entry: &ModelEntry) -> Result<Model> {
    let source = entry.source.as_deref().unwrap_or(&entry.name);
    let mut builder = Model::builder(source).offline(config.offline);
    if let Some(folder) = &config.model_dir {
        builder = builder.model_dir(folder);
    }
    if let Some(name) = entry.precision.as_deref().filter(|name| *name != "auto") {
        builder = builder.precision(Precision::from_name(name).ok_or_else(|| {
            let reason = format!("expected auto, f32, bf16 or i16, found {name:?}");
            Error::config(format!("models.{}.precision", entry.name), reason)
        })?);
    }
    let model = builder.load(&Log)?;
    model.limit_activations(crate::ask::ACTIVATIONS);
    tracing::info!(model = entry.name, source, architecture = model.describe(), "model loaded");
    Ok(model)
}

fn classes_of(set: &ClassSet) -> Result<Vec<String>> {
    let wrong = |reason: &str| Err(Error::config(format!("class_sets.{}", set.name), reason));
    let classes = match &set.file {
        Some(file) if set.classes.is_empty() => flatclip::text::read_class_names(file)?,
        Some(_) => return wrong("expected classes or a file, found both"),
        None => set.classes.clone(),
    };
    if classes.is_empty() || classes.iter().any(|name| name.trim().is_empty()) {
        return wrong("expected class names that are not empty");
    }
    match duplicate(&classes) {
        Some(name) => wrong(&format!("{name:?} is a duplicate")),
        None => Ok(classes),
    }
}

/// The first duplicate class name: its probability would be split between the two.
pub(crate) fn duplicate(classes: &[String]) -> Option<&str> {
    let mut seen = std::collections::HashSet::new();
    classes.iter().map(|name| name.trim()).find(|name| !seen.insert(*name))
}
