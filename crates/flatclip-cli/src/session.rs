//! A loaded model with a prompt, and the runs that `eval` and `sweep` make with them.

use crate::inputs::model::Model;
use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use flatclip::Error;
use flatclip::data::{Dataset, imagenet_labels};
use flatclip::eval::cache::{FeatureCache, TextCache};
use flatclip::eval::{
    ClipEncoder, Evaluation, PIXEL_VERSION, Plan, Provenance, RunConfig, RunDir, Shard, Summary, Timing, ViewConfig,
    matrix_hash, prompts_hash, statistics_hash, stream_hash,
};
use flatclip::image::DecodeOptions;
use flatclip::image::views::{ViewOptions, ViewPolicy};
use flatclip::methods::statistics::SourceStatistics;
use flatclip::methods::{self, AdapterSpec, Needs, Task};
use flatclip::model::{Clip, ImageConfig};
use flatclip::prompt::{Prompt, PromptKind};
use flatclip_tensor::Matrix;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What all runs of a call share.
pub(crate) struct Session<'a> {
    pub(crate) model: &'a Model,
    /// As given, for the record.
    pub(crate) model_name: &'a str,
    pub(crate) prompt: &'a Prompt,
    /// As given, for the record.
    pub(crate) prompt_name: String,
    /// Where features are kept; `None` keeps nothing.
    pub(crate) cache: Option<&'a Path>,
    pub(crate) compat: &'a [String],
    pub(crate) generated: Option<PathBuf>,
    /// For PromptAlign.
    pub(crate) statistics: Option<&'a SourceStatistics>,
    /// Text features of the last class list, so that every method and seed of a call shares them.
    pub(crate) texts: RefCell<Option<(Vec<String>, Matrix)>>,
    pub(crate) out: &'a Output,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct RunAsk {
    /// As given, for the record.
    pub(crate) data: String,
    pub(crate) method: &'static AdapterSpec,
    /// Options of the method that differ from its defaults.
    pub(crate) options: toml::Table,
    pub(crate) views: usize,
    pub(crate) policy: ViewPolicy,
    pub(crate) seed: u64,
    pub(crate) order_seed: Option<u64>,
    pub(crate) limit: Option<usize>,
    pub(crate) shard: Option<Shard>,
    pub(crate) max_errors: usize,
    pub(crate) resume: bool,
    pub(crate) dir: PathBuf,
}

impl Session<'_> {
    /// Makes one run in its directory and says how it went.
    pub(crate) fn run(&self, dataset: &Dataset, ask: &RunAsk) -> Result<(Summary, Timing)> {
        let mut adapter = ask.method.build(&ask.options)?;
        let needs = adapter.needs().unwrap_or(ask.method.needs);
        if let Some(reason) = self.refuses(&needs) {
            return Err(Error::method(ask.method.name, reason).into());
        }
        let fitted = fit_features(self.prompt, dataset)?;
        let prompt = &Arc::new(fitted.unwrap_or_else(|| self.prompt.clone()));
        let clip = &self.model.clip;
        let features = self.text_features(prompt, &dataset.classes)?;
        let tokenizer = &self.model.tokenizer;
        let mut task = Task::from_features(prompt, features, clip, tokenizer, dataset.classes.as_slice(), ask.seed)?;
        if let Some(root) = self.cache {
            task = task.with_store(Arc::new(TextCache::new(root)));
        }
        if let Some(statistics) = self.statistics.filter(|_| needs.statistics) {
            warn_of_strangers(statistics, clip, prompt, self.out);
            task = task.with_statistics(Arc::new(statistics.clone()));
        }
        adapter.prepare(&task)?;
        let encoder = ClipEncoder {
            clip,
            views: ViewOptions { policy: ask.policy, ..self.model.views(ask.views) },
            decode: DecodeOptions::default(),
            seed: ask.seed,
            visual_prompts: prompt.visual_prompts(),
            generated: self.generated.clone().filter(|_| needs.generated),
        };
        let arithmetic = format!("{} {}", clip.precision().name(), isa());
        let cache =
            self.cache.map(|root| FeatureCache::open(root, &encoder.feature_key(dataset, &arithmetic))).transpose()?;
        let plan = Plan::new(dataset.samples.len(), ask.limit, ask.order_seed);
        let config = self.config(dataset, ask);
        let provenance = self.provenance(dataset, prompt, &task, &plan);
        let evaluation = Evaluation {
            dataset,
            task: &task,
            wants_pixels: needs.pixels,
            encoder: &encoder,
            cache: cache.as_ref(),
            plan: &plan,
            shard: ask.shard,
            max_errors: ask.max_errors,
        };
        // Before anything is written.
        evaluation.check(adapter.kind())?;
        let (dir, mut log, mut records) = RunDir::start(&ask.dir, &config, &provenance, &dataset.classes, ask.resume)?;
        if !records.is_empty() {
            self.out.note(format_args!("{}: going on after {} samples", ask.dir.display(), records.len()));
        }
        let bar = self.out.progress(0, &format!("{} {}", dataset.name, ask.method.name));
        let timing = evaluation.run(&mut adapter, &mut log, &mut records, &mut |state| {
            bar.set_length(state.total as u64);
            bar.set_position(state.done as u64);
            let bad = if state.failed > 0 { format!(", {} bad", state.failed) } else { String::new() };
            bar.set_message(format!("top-1 {:.2} %{bad}", 100.0 * state.accuracy()));
        });
        bar.finish_and_clear();
        let timing = timing.with_context(|| format!("{} on {}", ask.method.name, dataset.name))?;
        let summary = Summary::new(&dataset.name, ask.method.name, dataset.classes.len(), &records);
        // A finished run that is resumed keeps its times.
        if timing.samples == 0 && dir.summary()?.as_ref() == Some(&summary) {
            let earlier = dir.timing()?.unwrap_or(timing);
            return Ok((summary, earlier));
        }
        dir.finish(&summary, &timing)?;
        Ok((summary, timing))
    }

    fn text_features(&self, prompt: &Prompt, classes: &[String]) -> Result<Matrix> {
        if let Some((of, features)) = &*self.texts.borrow()
            && of == classes
        {
            return Ok(features.clone());
        }
        let features = prompt.text_features(&self.model.clip, &self.model.tokenizer, classes)?;
        *self.texts.borrow_mut() = Some((classes.to_vec(), features.clone()));
        Ok(features)
    }

    fn config(&self, dataset: &Dataset, ask: &RunAsk) -> RunConfig {
        let mut options = (ask.method.defaults)();
        options.extend(ask.options.clone());
        RunConfig {
            method: ask.method.name.to_owned(),
            model: self.model_name.to_owned(),
            precision: self.model.clip.precision().name().to_owned(),
            data: ask.data.clone(),
            split: dataset.split.name().to_owned(),
            prompt: self.prompt_name.clone(),
            seed: ask.seed,
            order_seed: ask.order_seed,
            limit: ask.limit,
            shard: ask.shard,
            compat: self.compat.to_vec(),
            views: ViewConfig { augmentation: ask.policy.name().to_owned(), count: ask.views },
            options,
        }
    }

    fn provenance(&self, dataset: &Dataset, prompt: &Prompt, task: &Task, plan: &Plan) -> Provenance {
        let clip = &self.model.clip;
        Provenance {
            flatclip: env!("CARGO_PKG_VERSION").to_owned(),
            backbone: clip.config().released_name().map_or_else(|| clip.config().describe(), str::to_owned),
            weights: clip.hash().to_owned(),
            prompt: prompt_label(prompt),
            text_features: matrix_hash(&task.text_features),
            class_names: dataset.classes_hash(),
            classes: dataset.classes.len(),
            dataset: dataset.name.clone(),
            statistics: task.statistics.as_deref().map(statistics_hash).unwrap_or_default(),
            samples: plan.order.len(),
            stream: stream_hash(dataset, plan),
            isa: isa().to_owned(),
            pixels: PIXEL_VERSION.to_owned(),
            decoder: flatclip::image::DECODER.to_owned(),
            notes: dataset.notes.clone(),
        }
    }

    /// Why this session cannot give a method what it needs, and what would.
    pub(crate) fn refuses(&self, needs: &Needs) -> Option<String> {
        let config = self.model.clip.config();
        let kind = self.prompt.kind_name();
        let several = matches!(&self.prompt.kind, PromptKind::Templates(templates) if templates.len() != 1);
        let no_context = several || matches!(self.prompt.kind, PromptKind::Features(_));
        if !needs.prompts.contains(&kind) {
            Some(format!("works with {} prompts, this is a {kind} prompt", one_of(needs.prompts)))
        } else if needs.vit && !matches!(config.image, ImageConfig::Vit { .. }) {
            Some("needs a vision transformer, this image tower is a ResNet".to_owned())
        } else if needs.text_tower && config.text.is_none() {
            Some("needs a text tower, this checkpoint has none".to_owned())
        } else if needs.text_tower && no_context {
            Some("needs a prompt with one context: a learned prompt, or a single template".to_owned())
        } else if needs.generated && self.generated.is_none() {
            Some("needs generated pictures (--generated DIR)".to_owned())
        } else if needs.statistics && self.statistics.is_none() {
            let make = "`flatclip stats --data DATA --prompt PROMPT --out FILE`";
            Some(format!(
                "needs token statistics of training images: make them with {make}, then give --statistics FILE"
            ))
        } else {
            None
        }
    }
}

/// "a", "a or b", "a, b or c".
fn one_of(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

/// Says so when statistics were computed with another model or other prompts: numbers would mean nothing.
pub(crate) fn warn_of_strangers(statistics: &SourceStatistics, clip: &Clip, prompt: &Prompt, out: &Output) {
    if let Some(reason) = statistics.stranger_to(clip.hash(), &prompts_hash(&prompt.visual_prompts())) {
        out.warn(format_args!("--statistics: {reason}"));
    }
}

fn isa() -> &'static str {
    flatclip_tensor::isa::current().name()
}

/// How tables call a prompt.
fn prompt_label(prompt: &Prompt) -> String {
    match &prompt.kind {
        PromptKind::Templates(templates) if templates.len() == 1 => "template".to_owned(),
        PromptKind::Templates(templates) => format!("templates-{}", templates.len()),
        PromptKind::Learned { .. } if !prompt.provenance.method.is_empty() => prompt.provenance.method.clone(),
        _ => prompt.kind_name().to_owned(),
    }
}

/// Embeddings of the 1000 ImageNet classes serve ImageNet-A and -R by their 200 rows.
fn fit_features(prompt: &Prompt, dataset: &Dataset) -> Result<Option<Prompt>> {
    let (PromptKind::Features(rows), Some(labels)) = (&prompt.kind, imagenet_labels(&dataset.name)) else {
        return Ok(None);
    };
    if rows.rows() != 1000 {
        return Ok(None);
    }
    let mut fitted = Prompt::features(rows.select_rows(&labels))?;
    fitted.path.clone_from(&prompt.path);
    Ok(Some(fitted))
}

/// The methods of `--method`: names, or `all` that the session can serve.
pub(crate) fn methods_of(names: &[String], session: &Session<'_>) -> Result<Vec<&'static AdapterSpec>> {
    let mut specs: Vec<&'static AdapterSpec> = Vec::new();
    for name in names {
        if name == "all" {
            for spec in methods::ADAPTERS.iter().copied() {
                match session.refuses(&spec.needs) {
                    None => specs.push(spec),
                    Some(reason) => session.out.note(format_args!("{} is left out: it {reason}", spec.name)),
                }
            }
        } else {
            specs.push(methods::adapter(name)?);
        }
    }
    ensure!(!specs.is_empty(), "--method: no method is left");
    Ok(specs)
}

/// A directory name for a data set or a value.
pub(crate) fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() || "._-=".contains(c) { c } else { '-' }).collect()
}
