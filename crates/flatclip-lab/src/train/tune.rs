//! A whole tuning run: shots, features, search, training, result.

use super::comparison::{Comparison, Distance, Images, RADIUS, SharpnessAtRadius, measured, sharpness};
use super::directory::{PROMPT, RUN};
use super::fit::{Control, HeldOut, LossAndAccuracy, TrainData, fit};
use super::search::{SearchTable, search};
use super::settings::{Settings, TuneRequest};
use crate::data::feature_bank::FeatureBank;
use crate::data::few_shot::{FewShot, Pool, Sampler, Shots};
use crate::data::train_images::{Readable, TrainImages, TrainViews};
use crate::data::{Dataset, Family, Sample, read_dassl_list};
use crate::run_dir::{CONFIG, RunDir, SUMMARY};
use crate::tuners::{Input, TuneTask, Tuner, vit_of};
use flatclip::digest::Digest;
use flatclip::error::Hint;
use flatclip::image::DecodeOptions;
use flatclip::methods::bank::{Radius, RadiusUnit};
use flatclip::methods::sam::NormScope;
use flatclip::model::{Clip, Features, Precision};
use flatclip::progress::Progress;
use flatclip::prompt::{Prompt, PromptClassifier, PromptContent, PromptKind, Provenance, Tensor, class_hash};
use flatclip::text::Tokenizer;
use flatclip::{Error, Model, Result};
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

pub(crate) struct TuneInput<'a> {
    pub(crate) request: &'a TuneRequest,
    pub(crate) clip: &'a Clip,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) dataset: &'a Dataset,
    pub(crate) progress: &'a dyn Progress,
}

impl TuneInput<'_> {
    /// How training images are read.
    pub(crate) fn decode(&self) -> DecodeOptions {
        self.dataset.decode_options(self.request.exif)
    }

    fn images<'s>(&'s self, samples: &'s [Sample], views: &TrainViews) -> TrainImages<'s> {
        TrainImages::new(self.clip, &self.dataset.name, samples, views, self.request.seed, self.decode())
    }

    /// Features of one un-augmented view of some images.
    pub(crate) fn plain(&self, samples: &[Sample]) -> Result<HeldOut> {
        let raw = self.images(samples, &TrainViews::default()).plain_features(self.clip)?;
        Ok(HeldOut { features: Features::unit(raw).0, labels: samples.iter().map(|s| s.label).collect() })
    }
}

/// The result of a run: `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneSummary {
    /// The tuner.
    pub method: String,
    /// The data set.
    pub dataset: String,
    /// Number of classes.
    pub classes: usize,
    /// Training images.
    pub images: usize,
    /// Training steps.
    pub steps: usize,
    /// Loss and accuracy of the training images (first views of the bank).
    pub train: Option<LossAndAccuracy>,
    /// Loss and accuracy of the held-out images.
    pub held_out: Option<LossAndAccuracy>,
    /// Plain images before and after; not for tuners that change the image tower.
    #[serde(default)]
    pub comparison: Option<Comparison>,
    /// How far the parameters went; none where nothing is trained.
    #[serde(default)]
    pub distance: Option<Distance>,
    /// Peak learning rate; none where nothing is trained.
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// The logit scale that the rate follows, where the caller chose none and the published one would not suit the model.
    #[serde(default)]
    pub rate_follows: Option<f32>,
    /// How flat the loss of the training images is, for learned contexts.
    pub flatness: Option<SharpnessAtRadius>,
    /// The radius that a search chose, in the unit of the tuner's options.
    pub chosen_radius: Option<f64>,
    /// The radius of the perturbed steps at the end, in both units, over all parameters together; none where no step was
    /// perturbed.
    #[serde(default)]
    pub radius: Option<Radius>,
    /// Images that could not be read.
    pub unreadable: Vec<String>,
    /// The prompt file.
    pub prompt: String,
}

/// Learns a prompt from a few labelled images per class: runs the tuner, or resumes its run, to the end. The prompt is in
/// the run directory under the summary's name.
pub fn tune(request: &TuneRequest, model: &Model, train: &Dataset, progress: &dyn Progress) -> Result<TuneSummary> {
    let mut request = request.clone();
    if request.model.is_empty() {
        model.name().clone_into(&mut request.model);
    }
    if request.data.is_empty() {
        train.spec.clone_into(&mut request.data);
    }
    request.exif = Some(train.decode_options(request.exif).exif);
    let model = &with_text_tower(&mut request, model, progress)?;
    let (clip, tokenizer) = (model.clip(), model.tokenizer());
    run(&TuneInput { request: &request, clip, tokenizer, dataset: train, progress })
}

/// The model with the text tower that the request asks for; the request then names the precision of that tower.
pub(crate) fn with_text_tower(request: &mut TuneRequest, model: &Model, progress: &dyn Progress) -> Result<Model> {
    let own = model.clip().text_precision();
    // A tower on a device or in other processes has its own precision, and so has a model that was loaded with another one.
    let is_fixed = model.clip().device().is_some() || request.text.is_some() || own != Precision::F32;
    let explicit = request.text_precision.or_else(|| stored_precision(request));
    let wanted = match explicit {
        _ if is_fixed => own,
        Some(named) => named,
        // An image tower in f32 was chosen for exact results.
        None if model.clip().precision() == Precision::F32.name() => own,
        None if Settings::resolve(request)?.spec.prompt == PromptKind::Learned => Precision::auto_for_gradients(),
        None => own,
    };
    let found = match model.with_text_precision(wanted) {
        Err(error) if explicit.is_none() => {
            progress.note(&format!("the text tower stays in {}: {error}", own.name()));
            model.clone()
        }
        found => found?,
    };
    let used = found.clip().text_precision();
    if let Some(named) = request.text_precision.filter(|named| *named != used) {
        let reason =
            format!("the text tower of this model is fixed to {}, found {}; omit it", used.name(), named.name());
        return Err(Error::config("text_precision", reason));
    }
    request.text_precision = Some(used);
    Ok(found)
}

/// The precision of the run that is resumed.
fn stored_precision(request: &TuneRequest) -> Option<Precision> {
    let config = RunDir::open(&request.out).ok().filter(|_| request.resume)?.config_table().ok()?;
    let name = config.get("text_precision").and_then(toml::Value::as_str);
    name.map_or(Some(Precision::F32), Precision::from_name)
}

fn run(input: &TuneInput<'_>) -> Result<TuneSummary> {
    let mut settings = Settings::resolve(input.request)?;
    settings.suit(input.clip.logit_scale());
    // What the data or the model forbid is found before the directory is touched.
    let shots = draw(input, &settings)?;
    if settings.spec.vit {
        vit_of(input.clip)?;
    }
    let (directory, goes_on) = RunDir::take_tuning(&input.request.out, &settings, input.request.resume)?;
    let run = Run::prepare(input, &directory, settings, &shots)?;
    directory.settle_provenance(&run.provenance()?, goes_on)?;
    if directory.is_complete() {
        directory.verify()?;
        input.progress.note(&format!("{}: the run is already complete", directory.path.display()));
        return directory.read_json(SUMMARY);
    }
    if input.request.sampler == Sampler::Python
        && input.request.list.is_none()
        && input.dataset.family == Family::Imagenet
    {
        let why = "CoOp drew its ImageNet shots from an unsorted directory listing, these come from a sorted one";
        input.progress.warn(&format!("sampler python: {why}: they are not CoOp's; a list of CoOp's images gives them"));
    }
    if let Some(scale) = run.settings.rate_follows {
        let recipe = &run.settings.recipe;
        let factor = recipe.rate_factor(scale);
        let factor = match recipe.rate_limit {
            limit if factor > limit => format!("x{limit} for this logit scale (capped by train.rate_limit)"),
            _ => format!("x(100 / {scale:.1})^2 for this logit scale"),
        };
        input.progress.note(&format!("learning rate {}: scaled {factor}; train.lr sets another", recipe.lr));
    }
    run.finish()
}

/// A run whose images are chosen and readable.
struct Run<'a> {
    input: &'a TuneInput<'a>,
    directory: &'a RunDir,
    settings: Settings,
    train: Vec<Sample>,
    held_out: Vec<Sample>,
    unreadable: Vec<String>,
}

impl<'a> Run<'a> {
    fn prepare(input: &'a TuneInput<'a>, directory: &'a RunDir, settings: Settings, shots: &Shots) -> Result<Self> {
        let pick =
            |places: &[usize]| -> Vec<Sample> { places.iter().map(|&i| input.dataset.samples[i].clone()).collect() };
        let (train, held_out) = (pick(&shots.train), pick(&shots.held_out));
        let mut run = Self { input, directory, settings, train, held_out, unreadable: Vec::new() };
        run.drop_unreadable()?;
        Ok(run)
    }

    fn drop_unreadable(&mut self) -> Result<()> {
        let fault = |reason: String| Error::Data { path: self.input.dataset.name.clone().into(), reason };
        for samples in [&mut self.train, &mut self.held_out] {
            let Readable { good, bad, changes } = Readable::of(samples, &self.input.decode());
            if let Some(line) = changes.line() {
                self.input.progress.note(&line);
            }
            for (id, error) in bad {
                self.input.progress.warn(&format!("{id}: {error}"));
                self.unreadable.push(id);
            }
            *samples = good.into_iter().map(|i| samples[i].clone()).collect();
        }
        let (found, allowed) = (self.unreadable.len(), self.input.request.max_errors);
        if found > allowed {
            let named = self.unreadable.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            let reason = format!("{found} of the chosen images cannot be read ({named})");
            return Err(fault(reason).with_hint(Hint::AllowErrors(found)));
        }
        let has = |label: usize| self.train.iter().any(|s| s.label == label);
        let classes = &self.input.dataset.classes;
        if let Some(empty) = (0..classes.len()).find(|&label| !has(label)) {
            return Err(fault(format!("no readable training image is left for class {:?}", classes[empty])));
        }
        Ok(())
    }

    /// What makes the run comparable; nothing in it depends on time or machine.
    fn provenance(&self) -> Result<serde_json::Value> {
        let ids = |samples: &[Sample]| samples.iter().map(|s| s.id.clone()).collect::<Vec<_>>();
        Ok(serde_json::json!({
            "flatclip": env!("CARGO_PKG_VERSION"),
            "method": self.settings.spec.name,
            "model": self.input.request.model,
            "model_hash": self.input.clip.hash(),
            "precision": self.input.clip.precision(),
            "isa": flatclip_tensor::isa::current().name(),
            "dataset": self.input.dataset.name,
            "class_hash": class_hash(&self.input.dataset.classes),
            "classes": self.input.dataset.classes,
            "seed": self.input.request.seed,
            "images": self.images()?,
            "train": ids(&self.train),
            "held_out": ids(&self.held_out),
            "unreadable": self.unreadable,
            "test_searched": self.input.request.test.is_some(),
        }))
    }

    /// Names the content of all chosen images.
    fn images(&self) -> Result<String> {
        let mut all = Digest::default();
        for sample in self.train.iter().chain(&self.held_out) {
            all = all.part(sample.content_digest()?);
        }
        Ok(all.short())
    }

    /// Encodes, searches, trains and writes the result.
    fn finish(mut self) -> Result<TuneSummary> {
        let (input, spec) = (self.input, self.settings.spec);
        let TuneInput { clip, tokenizer, dataset, progress, request } = *input;
        let seed = request.seed;
        let train = std::mem::take(&mut self.train);
        let images = self.input.images(&train, &self.settings.views);
        let labels: Vec<usize> = train.iter().map(|s| s.label).collect();
        let start = Instant::now();
        let bank = match (spec.input, self.settings.views.bank) {
            (Input::Features, views) if views > 0 => Some(self.bank(&images, views)?),
            _ => None,
        };
        let held_out = self.held_out_features()?;
        if bank.is_some()
            && let Ok(tower) = clip.text()
        {
            tower.keep_more_activations();
        }
        let plain = match spec.input {
            Input::Features => Some(Images::choose(input, held_out.as_ref(), &train)?),
            Input::Pixels => None,
        };
        self.directory.time("features", start)?;

        let (classes, templates) = (&dataset.classes, &dataset.templates);
        let task = TuneTask { clip, tokenizer, classes, templates, labels: &labels, bank: bank.as_ref(), seed };
        let (bank, held_out) = (bank.as_ref(), held_out.as_ref());
        let fresh = self.settings.views.fresh;
        let data = TrainData { clip, images: &images, labels: &labels, bank, fresh, input: spec.input, held_out, seed };
        let table = self.search(&data, &task)?;
        let start = Instant::now();
        let mut tuner = self.settings.build(&self.settings.options, &task)?;
        let begin = tuner.parameters().to_vec();
        let every = request.checkpoint_every;
        let control = Control { directory: Some(self.directory), stage: "tuning", every, progress };
        fit(&data, &self.settings.recipe, tuner.as_mut(), &control)?;
        self.directory.time("training", start)?;
        tuner.finish(held_out.map(HeldOut::batch).as_ref())?;
        let found = Found { begin, plain, table };
        self.result(tuner.as_ref(), &data, found)
    }

    fn bank(&self, images: &TrainImages<'_>, views: usize) -> Result<FeatureBank> {
        let TuneInput { clip, progress, request, .. } = *self.input;
        let lines = (0..images.len()).map(|i| format!("{}\n", images.id(i)));
        let ids = lines.fold(Digest::default(), Digest::bytes).short();
        let key = format!("{} {:?} {} {ids}", clip.features_id(), self.settings.views, request.seed);
        let path = self.directory.file("features.safetensors");
        if let Some(bank) = FeatureBank::load(&path, &key) {
            return Ok(bank);
        }
        progress.start("encoding", Some(images.len() as u64));
        let bank = images.bank(clip, views, &mut |done| {
            progress.advance(done as u64, "");
            let stopped = || Error::Interrupted(format!("stopped after {done} of {} images", images.len()));
            if progress.cancelled() { Err(stopped().with_hint(Hint::Resume)) } else { Ok(()) }
        })?;
        progress.finish();
        bank.save(&path, &key)?;
        Ok(bank)
    }

    /// Features of the images that settings are chosen on.
    fn held_out_features(&self) -> Result<Option<HeldOut>> {
        let samples = match &self.input.request.test {
            Some(test) => {
                self.input.progress.warn("alpha and beta are chosen on TEST images, as published: not a fair number");
                test.samples.as_slice()
            }
            None => self.held_out.as_slice(),
        };
        if samples.is_empty() || self.settings.spec.input == Input::Pixels {
            return Ok(None);
        }
        self.input.plain(samples).map(Some)
    }

    /// Searches the radius, if asked to, and sets it; `config.toml` then holds what is trained with.
    fn search(&mut self, data: &TrainData<'_>, task: &TuneTask<'_>) -> Result<Option<SearchTable>> {
        let Some(held_out) = data.held_out.filter(|_| self.input.request.search) else { return Ok(None) };
        let table = search(data, task, &self.settings, held_out, self.directory, self.input.progress)?;
        if let Some(radius) = table.chosen {
            self.settings.options.insert("radius".into(), radius.into());
            self.directory.write_config(&self.settings.to_table()?)?;
        }
        Ok(Some(table))
    }

    /// The radius of the perturbed steps, if there were any. Where each token or class has its own, that of all together.
    fn radius(&self, parameters: &[Tensor], steps: usize) -> Option<Radius> {
        let options = &self.settings.options;
        let value = options.get("radius")?.as_float()?;
        let weight = options.get("weight").and_then(toml::Value::as_float).unwrap_or(1.0);
        let norm = l2_norm(parameters.iter().flat_map(|tensor| &tensor.values));
        let unit = RadiusUnit::of(options);
        let whole = match unit {
            RadiusUnit::Absolute => value * (NormScope::of(options).count(parameters) as f64).sqrt(),
            // Shares of the parts are that share of the whole.
            RadiusUnit::Relative => value,
        };
        (steps > 0 && weight > 0.0).then(|| unit.radius(whole, norm))
    }

    /// Measures, and writes the prompt and the summary.
    fn result(&self, tuner: &dyn Tuner, data: &TrainData<'_>, found: Found) -> Result<TuneSummary> {
        let TuneInput { clip, tokenizer, dataset, progress, .. } = *self.input;
        let classes = &dataset.classes;
        let provenance = Provenance {
            method: self.settings.spec.name.into(),
            source: dataset.name.clone(),
            model_hash: clip.hash().to_owned(),
            class_hash: class_hash(classes),
            classes: classes.clone(),
            config: self.settings.to_toml()?,
            version: env!("CARGO_PKG_VERSION").into(),
            start_token: Vec::new(),
        };
        let prompt = Prompt::new(tuner.prompt()?, provenance);
        let classifier = PromptClassifier::new(&prompt, clip, tokenizer, classes)?;
        let own = data.bank.map(|bank| HeldOut { features: bank.first_views(), labels: data.labels.to_vec() });
        let flatness = match (&prompt.content, &own) {
            (PromptContent::Learned { .. }, Some(own)) => Some(sharpness(clip, tuner, &own.batch(), RADIUS)?),
            _ => None,
        };
        let recipe = &self.settings.recipe;
        let steps = recipe.epochs * recipe.steps_per_epoch(data.labels.len());
        let distance = (steps > 0).then(|| Distance::between(&found.begin, tuner.parameters()));
        let comparison = found.plain.map(|plain| plain.compare(self.input, &classifier)).transpose()?;
        if comparison.is_some_and(|found| found.changed_nothing()) {
            let what = "on plain images the tuned prompt is as good as the untuned one, no better";
            progress.warn(&format!("{what}: more shots, or images that differ more from these, would show more"));
        }
        if let Some(gone) = distance.filter(Distance::stands_still) {
            let percent = 100.0 * gone.relative;
            let what =
                format!("the parameters changed by {percent:.2} % of their norm: the prompt is essentially unchanged");
            progress.warn(&format!("{what}; raise train.lr (it is {}) or train.epochs", recipe.lr));
        }
        let summary = TuneSummary {
            method: self.settings.spec.name.into(),
            dataset: dataset.name.clone(),
            classes: classes.len(),
            images: data.labels.len(),
            steps,
            train: own.as_ref().map(|own| measured(&classifier, own)).transpose()?,
            held_out: data.held_out.map(|own| measured(&classifier, own)).transpose()?,
            comparison,
            distance,
            learning_rate: (steps > 0).then_some(recipe.lr),
            rate_follows: self.settings.rate_follows.filter(|_| steps > 0),
            flatness,
            chosen_radius: found.table.and_then(|t| t.chosen),
            radius: self.radius(tuner.parameters(), steps),
            unreadable: self.unreadable.clone(),
            prompt: PROMPT.into(),
        };
        prompt.save(&self.directory.file(PROMPT))?;
        self.directory.finish_with(&[CONFIG, RUN, PROMPT], &summary)?;
        Ok(summary)
    }
}

/// What the result is measured by.
struct Found {
    /// The parameters before the first step.
    begin: Vec<Tensor>,
    plain: Option<Images>,
    table: Option<SearchTable>,
}

/// The images to train on and to choose on.
fn draw(input: &TuneInput<'_>, settings: &Settings) -> Result<Shots> {
    let (pool, few_shot) = (Pool::of(&input.dataset.name, input.dataset), &settings.few_shot);
    let Some(list) = &input.request.list else { return few_shot.draw(&pool) };
    let path = Path::new(list);
    let mut shots = Shots::default();
    if path.extension().is_some_and(|ending| ending == "pkl") {
        let part = |name: &str| pool.with_paths(path, &read_dassl_list(path, name)?);
        shots.train = part("train")?;
        if few_shot.held_out > 0 {
            shots.held_out = part("val")?;
        }
    } else {
        shots.train = pool.listed(path, &std::fs::read_to_string(path).map_err(Error::io(path))?)?;
    }
    if few_shot.held_out > 0 && shots.held_out.is_empty() {
        // Held out from what the list does not name.
        let rest: Vec<usize> = (0..pool.ids.len()).filter(|i| !shots.train.contains(i)).collect();
        let (ids, labels) = rest.iter().map(|&i| (pool.ids[i], pool.labels[i])).unzip();
        let draw = FewShot { shots: few_shot.held_out, held_out: 0, ..few_shot.clone() };
        let drawn = draw.draw(&Pool { ids, labels, ..pool })?;
        shots.held_out = drawn.train.into_iter().map(|i| rest[i]).collect();
    }
    Ok(shots)
}
