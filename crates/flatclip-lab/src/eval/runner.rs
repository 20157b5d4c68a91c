//! One run of an evaluation: a prompt, an adapter and a data set, in a directory of its own.

use super::cache::{FeatureCache, Imported};
use super::encoder::{Encoder, NoTowers};
use super::{EvaluateRequest, Evaluation, Plan, Provenance, RunConfig, Sets, Summary, Timing};
use super::{ViewConfig, feature_key, stream_hash};
use crate::data::{Dataset, imagenet_labels};
use crate::run_dir::RunDir;
use flatclip::classify::{
    Capabilities, Certainty, ClipEncoder, FeaturePreparation, PIXEL_VERSION, Preparation, Prepared, Rounds, Settings,
    TextCache,
};
use flatclip::digest::matrix_hash;
use flatclip::image::views::ViewPolicy;
use flatclip::methods::bank::{Radius, RadiusUnit, TextBank};
use flatclip::methods::statistics::statistics_hash;
use flatclip::methods::{AdapterSpec, AnyAdapter, Confidence, Needs, Task, TextStore};
use flatclip::{Error, Model, Progress, Prompt, Result, TextFeatures};
use flatclip_tensor::{Matrix, isa};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A prompt and how records call it.
#[derive(Clone, Debug)]
pub struct NamedPrompt {
    /// As it is recorded: a template, a file, a run directory.
    pub name: String,
    /// The prompt.
    pub prompt: Arc<Prompt>,
}

impl From<Prompt> for NamedPrompt {
    fn from(prompt: Prompt) -> Self {
        Self { name: prompt.title(), prompt: Arc::new(prompt) }
    }
}

/// Where the features of images and classes come from.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Towers and a prompt.
    Model(&'a Model),
    /// Made elsewhere: what needs no tower runs with them.
    Features(&'a Imported),
}

impl<'a> From<&'a Model> for Subject<'a> {
    fn from(model: &'a Model) -> Self {
        Self::Model(model)
    }
}

impl<'a> From<&'a Imported> for Subject<'a> {
    fn from(features: &'a Imported) -> Self {
        Self::Features(features)
    }
}

pub(crate) struct ImportedText {
    pub(crate) text: TextFeatures,
    pub(crate) bank: Option<Arc<TextBank>>,
}

/// What all runs with one model (or imported features) and one prompt share.
pub(crate) struct Runner<'a> {
    pub(crate) base: &'a EvaluateRequest,
    pub(crate) subject: Subject<'a>,
    pub(crate) prompt: NamedPrompt,
    /// Text features that belong to imported features.
    pub(crate) text: Option<ImportedText>,
    pub(crate) progress: &'a dyn Progress,
    /// Text features of the last class list, so that every method and seed shares them.
    pub(crate) texts: Mutex<Option<(Vec<String>, Matrix)>>,
}

/// One run: what differs between those of a [`Runner`].
#[derive(Clone, Debug)]
pub(crate) struct RunRequest {
    pub(crate) method: &'static AdapterSpec,
    /// Options of the method that differ from its defaults.
    pub(crate) options: toml::Table,
    pub(crate) policy: ViewPolicy,
    pub(crate) views: usize,
    /// Any-time views, at most `views` of them.
    pub(crate) certainty: Option<Certainty>,
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
}

/// A method that is ready, and where features come from.
struct Ready {
    adapter: AnyAdapter,
    needs: Needs,
    task: Task,
    encoder: Box<dyn Encoder>,
    rounds: Option<Rounds>,
    cache: Option<FeatureCache>,
    prompt: Arc<Prompt>,
}

impl Runner<'_> {
    pub(crate) fn capabilities(&self) -> Capabilities<'_> {
        match self.subject {
            Subject::Model(model) => Capabilities {
                bank: !self.base.bank.is_empty(),
                statistics: self.base.statistics.is_some(),
                generated: self.base.generated.is_some(),
                ..Capabilities::new(model, &self.prompt.prompt)
            },
            Subject::Features(features) => Capabilities { bank: features.bank().is_some(), ..Capabilities::features() },
        }
    }

    pub(crate) fn run(&self, dataset: &Dataset, request: &RunRequest) -> Result<(Summary, Timing)> {
        let spec = request.method;
        let request =
            &RunRequest { options: self.options_for(spec, &request.options, &dataset.name), ..request.clone() };
        let plan = Plan::new(dataset.samples.len(), self.base.limit, self.base.order_seed);
        let Ready { mut adapter, needs, task, encoder, rounds, cache, prompt } = match self.subject {
            Subject::Model(model) => self.with_model(model, dataset, request, &plan)?,
            Subject::Features(features) => self.with_features(features, request, &plan)?,
        };
        let evaluation = Evaluation {
            dataset,
            task: &task,
            wants_pixels: needs.pixels,
            views_used: if needs.first_view_only { 1 } else { request.views },
            encoder: encoder.as_ref(),
            cache: cache.as_ref(),
            plan: &plan,
            shard: self.base.shard,
            max_errors: self.base.max_errors,
            rounds,
            keep_probabilities: self.base.keep_probabilities,
        };
        // Before anything is written.
        evaluation.check(spec.kind())?;
        let config = self.config(dataset, request)?;
        let provenance = self.provenance(dataset, &prompt, &task, &plan);
        let (dir, mut log, mut records) =
            RunDir::start(&request.dir, &config, &provenance, &dataset.classes, self.base.resume)?;
        if !records.is_empty() {
            self.progress.note(&format!("{}: resuming after {} samples", dir.path.display(), records.len()));
        }
        let total = plan.positions(self.base.shard).len() as u64;
        self.progress.start(&format!("{} {}", dataset.name, spec.name), Some(total));
        let timing = evaluation.run(&mut adapter, &mut log, &mut records, self.progress);
        self.progress.finish();
        let timing = timing?;
        let mut summary = Summary::new(&dataset.name, spec.name, dataset.classes.len(), &records)
            .with_confidence(Confidence::of(spec.name, &config.options));
        if adapter.set_size() != 1 {
            summary = summary.with_sets(Sets::new(adapter.set_size(), &records));
        }
        // A finished run that is resumed keeps its times.
        if timing.samples == 0 && dir.summary()?.as_ref() == Some(&summary) {
            let earlier = dir.timing()?.unwrap_or(timing);
            dir.renew_summary(&summary)?;
            return Ok((summary, earlier));
        }
        dir.finish(&summary, &timing)?;
        Ok((summary, timing))
    }

    /// The radius of a method around this prompt.
    pub(crate) fn radius(&self, spec: &AdapterSpec, options: &toml::Table) -> Option<Radius> {
        let options = spec.complete(options).ok()?;
        let value = options.get("radius")?.as_float()?;
        Some(RadiusUnit::of(&options).radius(value, self.context_norm(&self.prompt.prompt)?))
    }

    /// The options on this data set: the user's, then the authors' values for it, with a note.
    fn options_for(&self, spec: &AdapterSpec, given: &toml::Table, data: &str) -> toml::Table {
        let options = spec.for_data(given, data);
        if options != *given
            && let Some(preset) = options.get("preset").and_then(toml::Value::as_str)
        {
            let what =
                format!("{} on {data}: its authors' values for {preset}, evidently chosen on test data", spec.name);
            self.progress.note(&format!("{what}; preset = \"neutral\" takes the same everywhere"));
        }
        options
    }

    fn context_norm(&self, prompt: &Prompt) -> Option<f64> {
        match self.subject {
            Subject::Model(model) => prompt.context_norm(model.clip(), model.tokenizer()),
            Subject::Features(_) => None,
        }
    }

    /// Imported features: what needs a tower is refused.
    fn with_features(&self, features: &Imported, request: &RunRequest, plan: &Plan) -> Result<Ready> {
        let (views, most) = (request.views, features.views());
        if views > most {
            let reason = format!("`{}` has {most} views of each sample, {views} were asked for", features.name());
            return Err(Error::config("views", reason));
        }
        let no_text = || Error::config("prompt", "the import has features of images and no text features");
        let ImportedText { text, bank } = self.text.as_ref().ok_or_else(no_text)?;
        let preparation = FeaturePreparation {
            spec: request.method,
            options: &request.options,
            text,
            bank: bank.as_ref(),
            settings: &Self::settings(request, plan),
        };
        let Prepared { adapter, needs, task, rounds } = preparation.prepare()?;
        if most == 1 && needs.default_views > 1 {
            let what = format!("{} answers from the image alone", request.method.name);
            self.progress.warn(&format!("`{}` has one view of each sample: {what}", features.name()));
        }
        let encoder = Box::new(NoTowers { views });
        let prompt = Arc::clone(&self.prompt.prompt);
        Ok(Ready { adapter, needs, task, encoder, rounds, cache: Some(features.cache()?), prompt })
    }

    fn with_model(&self, model: &Model, dataset: &Dataset, request: &RunRequest, plan: &Plan) -> Result<Ready> {
        let prompt = fitted(&self.prompt.prompt, dataset)?;
        let (prepared, encoder) = self.prepare(model, dataset, request, &prompt, plan)?;
        let Prepared { adapter, needs, task, rounds } = prepared;
        let arithmetic = format!("{} {}", model.clip().precision(), isa::current().name());
        let key = feature_key(&encoder, dataset, &arithmetic);
        let cache =
            self.base.cache.as_deref().map(|root| FeatureCache::open(root, &key)).transpose().unwrap_or_else(|error| {
                self.progress.warn(&format!("the feature cache cannot be used: {error}"));
                None
            });
        Ok(Ready { adapter, needs, task, encoder: Box::new(encoder), rounds, cache, prompt })
    }

    fn settings(request: &RunRequest, plan: &Plan) -> Settings {
        Settings {
            seed: request.seed,
            views: Some(request.views),
            policy: request.policy,
            certainty: request.certainty,
            stream_length: Some(plan.order.len()),
            ..Settings::default()
        }
    }

    fn prepare(
        &self,
        model: &Model,
        dataset: &Dataset,
        request: &RunRequest,
        prompt: &Arc<Prompt>,
        plan: &Plan,
    ) -> Result<(Prepared, ClipEncoder)> {
        let preparation = Preparation {
            spec: request.method,
            options: &request.options,
            model,
            prompt,
            classes: &dataset.classes,
            bank: !self.base.bank.is_empty(),
            settings: Settings {
                decode: dataset.decode_options(self.base.exif),
                statistics: self.base.statistics.clone(),
                generated: self.base.generated.clone(),
                store: self.base.cache.as_deref().map(|root| Arc::new(TextCache::new(root)) as Arc<dyn TextStore>),
                ..Self::settings(request, plan)
            },
        };
        let beside = || {
            let features = |other: &NamedPrompt| {
                fitted(&other.prompt, dataset)?.text_features(model.clip(), model.tokenizer(), &dataset.classes)
            };
            self.base.bank.iter().map(features).collect()
        };
        let text = || self.text_features(model, prompt, &dataset.classes);
        preparation.prepare(text, beside, |text| self.progress.warn(text))
    }

    fn text_features(&self, model: &Model, prompt: &Prompt, classes: &[String]) -> Result<Matrix> {
        let mut kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, features)) = &*kept
            && of == classes
        {
            return Ok(features.clone());
        }
        let features = prompt.text_features(model.clip(), model.tokenizer(), classes)?;
        *kept = Some((classes.to_vec(), features.clone()));
        Ok(features)
    }

    fn config(&self, dataset: &Dataset, request: &RunRequest) -> Result<RunConfig> {
        let (model, precision, logit_scale, policy) = match self.subject {
            Subject::Model(model) => {
                (model.name(), model.clip().precision(), model.logit_scale(), request.policy.name())
            }
            Subject::Features(features) => {
                (features.model(), features.dtype().to_owned(), features.logit_scale(), crate::data::IMPORTED)
            }
        };
        Ok(RunConfig {
            method: request.method.name.to_owned(),
            implementation: request.method.identity(),
            model: model.to_owned(),
            precision,
            data: if dataset.spec.is_empty() { dataset.name.clone() } else { dataset.spec.clone() },
            split: dataset.split.name().to_owned(),
            prompt: self.prompt.name.clone(),
            seed: request.seed,
            order_seed: self.base.order_seed,
            limit: self.base.limit,
            shard: self.base.shard,
            compat: self.base.compat.to_vec(),
            bank: self.base.bank.iter().map(|prompt| prompt.name.clone()).collect(),
            exif: dataset.decode_options(self.base.exif).exif,
            views: ViewConfig {
                policy: policy.to_owned(),
                count: request.views,
                certainty: request.certainty.map(|certainty| certainty.at(logit_scale)),
            },
            keep_probabilities: self.base.keep_probabilities,
            options: request.method.complete(&request.options)?,
        })
    }

    fn provenance(&self, dataset: &Dataset, prompt: &Prompt, task: &Task, plan: &Plan) -> Provenance {
        let (backbone, weights, pixels, decoder) = match self.subject {
            Subject::Model(model) => {
                let config = model.config();
                let backbone = config.released_name().map_or_else(|| config.describe(), str::to_owned);
                (backbone, model.hash(), PIXEL_VERSION, flatclip::image::DECODER)
            }
            Subject::Features(features) => (features.model().to_owned(), features.digest(), crate::data::IMPORTED, ""),
        };
        Provenance {
            flatclip: env!("CARGO_PKG_VERSION").to_owned(),
            backbone,
            weights: weights.to_owned(),
            prompt: prompt.label(),
            prompt_origin: prompt.origin(),
            prompt_tuning: prompt.tuning(),
            context_norm: self.context_norm(prompt),
            text_features: matrix_hash(task.text_features()),
            class_names: dataset.classes_hash(),
            classes: dataset.classes.len(),
            dataset: dataset.name.clone(),
            statistics: task.statistics.as_deref().map(statistics_hash).unwrap_or_default(),
            samples: plan.order.len(),
            stream: stream_hash(dataset, plan),
            isa: isa::current().name().to_owned(),
            device: match self.subject {
                Subject::Model(model) => model.clip().device().cloned(),
                Subject::Features(_) => None,
            },
            pixels: pixels.to_owned(),
            decoder: decoder.to_owned(),
            notes: dataset.notes.clone(),
        }
    }
}

/// What was made for the 1000 ImageNet classes (embeddings, a cache of shots, a linear classifier) serves ImageNet-A and -R by
/// its part for their 200.
fn fitted(prompt: &Arc<Prompt>, dataset: &Dataset) -> Result<Arc<Prompt>> {
    match imagenet_labels(&dataset.name) {
        Some(labels) if prompt.bound_classes() == Some(1000) => Ok(Arc::new(prompt.restricted(&labels)?)),
        _ => Ok(Arc::clone(prompt)),
    }
}

/// A directory name for a data set or a value.
pub(crate) fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() || "._-=".contains(c) { c } else { '-' }).collect()
}
