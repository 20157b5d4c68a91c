//! The request, resolved: defaults, then the preset, then the user's file, then single keys.

use crate::data::few_shot::{FewShot, Sampler};
use crate::data::train_images::TrainViews;
use crate::data::{Dataset, reads_exif};
use crate::tuners::{Average, Input, OwnLoss, Recipe, RemoteText, TUNERS, TuneTask, Tuner, TunerSpec};
use crate::tuners::{preset, tuner_among};
use flatclip::model::Precision;
use flatclip::options::{mismatch, named};
use flatclip::{Error, Hint, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// A request for a tuning run.
#[derive(Clone, Debug)]
pub struct TuneRequest {
    /// A tuner or a preset.
    pub method: String,
    /// The model, as the user named it.
    pub model: String,
    /// The data, as the user named them.
    pub data: String,
    /// Images per class; the preset's, or 16.
    pub shots: Option<usize>,
    /// Held-out images per class; as many as are needed, at most 4, when not given.
    pub held_out: Option<usize>,
    /// Seed of every draw.
    pub seed: u64,
    /// How shots are drawn.
    pub sampler: Sampler,
    /// Accept classes with fewer images.
    pub allow_fewer: bool,
    /// An explicit list of training images, instead of a draw.
    pub list: Option<String>,
    /// Unreadable images that are tolerated.
    pub max_errors: usize,
    /// Search the sharpness radius on held-out images.
    pub search: bool,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Tables that override the defaults, the earlier ones first: `[train]`, `[views]` and the tuner's own.
    pub overrides: Vec<toml::Table>,
    /// The test images, only for Tip-Adapter's published search on them.
    pub test: Option<Dataset>,
    /// Runs the text tower where its classes are split over processes.
    pub text: Option<Arc<dyn RemoteText>>,
    /// A loss in the place of the cross-entropy, for coop and sapt.
    pub loss: Option<Arc<dyn OwnLoss>>,
    /// Rotate images per EXIF and scale 16-bit grey, or read them as Pillow does; `None`: by the kind of the data set.
    pub exif: Option<bool>,
    /// Where tuners are looked for: the built-in ones, and a program's own.
    pub tuners: Vec<&'static TunerSpec>,
    /// What the text tower multiplies in; `None`: for coop and sapt, i16 where its products are fast and the image tower is not in
    /// f32, else what the model was loaded with. A resumed run keeps its own.
    pub text_precision: Option<Precision>,
    /// The run directory.
    pub out: PathBuf,
    /// Resume the run that is there.
    pub resume: bool,
}

impl Default for TuneRequest {
    fn default() -> Self {
        Self {
            method: "sapt".into(),
            model: String::new(),
            data: String::new(),
            shots: None,
            held_out: None,
            seed: 1,
            sampler: Sampler::Portable,
            allow_fewer: false,
            list: None,
            max_errors: 0,
            search: false,
            checkpoint_every: 100,
            overrides: Vec::new(),
            test: None,
            text: None,
            loss: None,
            exif: None,
            tuners: TUNERS.to_vec(),
            text_precision: None,
            out: PathBuf::from("tuned"),
            resume: false,
        }
    }
}

impl TuneRequest {
    /// Refuses wrong settings before anything is loaded. True if the tuner chooses on test images, as
    /// published: [`TuneRequest::test`] is needed then.
    pub fn check(&self) -> Result<bool> {
        let settings = Settings::resolve(self)?;
        Ok(settings.options.get("search").and_then(toml::Value::as_str) == Some("test"))
    }

    /// All settings with their defaults: what a run with this request writes as its `config.toml`.
    pub(crate) fn settings_text(&self) -> Result<String> {
        Settings::resolve(self)?.to_toml()
    }

    /// The tuner, its options, and what a run on so many classes does: for a price.
    pub(crate) fn cost(&self, classes: usize) -> Result<TuneCost> {
        let Settings { spec, few_shot, recipe, views, options, .. } = Settings::resolve(self)?;
        let images = few_shot.shots * classes;
        let runs = if self.search { super::search::RADII.len() + 1 } else { 1 };
        let in_steps = if views.bank == 0 || views.fresh { runs * recipe.epochs } else { 0 };
        let encodings = if spec.input == Input::Features { views.bank + in_steps } else { 0 };
        let steps = runs * recipe.epochs * recipe.steps_per_epoch(images);
        Ok(TuneCost { spec, options, epochs: recipe.epochs, batch: recipe.batch.min(images), images, encodings, steps })
    }
}

pub(crate) struct TuneCost {
    pub(crate) spec: &'static TunerSpec,
    pub(crate) options: toml::Table,
    pub(crate) epochs: usize,
    pub(crate) batch: usize,
    pub(crate) images: usize,
    /// Views of each that are encoded: once for the bank, and in the steps where there is none or they take new ones.
    pub(crate) encodings: usize,
    /// Steps, those of a search included.
    pub(crate) steps: usize,
}

/// The settings of a run, complete: what `config.toml` holds.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub spec: &'static TunerSpec,
    pub few_shot: FewShot,
    pub recipe: Recipe,
    /// The logit scale that the learning rate follows, where nobody chose the rate.
    pub rate_follows: Option<f32>,
    pub views: TrainViews,
    pub options: toml::Table,
    pub request: TuneRequest,
}

impl Settings {
    /// Resolves a request; wrong keys and values are errors that name them.
    pub(crate) fn resolve(request: &TuneRequest) -> Result<Self> {
        let preset = preset(&request.method);
        let shots = request.shots.or(preset.map(|p| p.shots)).unwrap_or(16);
        let spec = tuner_among(&request.tuners, preset.map_or(request.method.as_str(), |p| p.method))?;
        let published = preset.map(|p| p.tables(shots)).transpose()?;
        let mut recipe = (spec.recipe)().table();
        let mut views = (spec.views)().table();
        let mut options = toml::Table::new();
        for table in published.iter().chain(&request.overrides) {
            for (name, value) in table {
                let entries = value.as_table().ok_or_else(|| {
                    Error::config(name, format!("expected a table or `{name}.key=value`, found {value}"))
                });
                match name.as_str() {
                    // By the options' own names, so that an alias replaces what a preset set.
                    "train" => recipe.extend(named("train", Recipe::OPTIONS, entries?)?),
                    "views" => views.extend(named("views", TrainViews::OPTIONS, entries?)?),
                    name if name == spec.table => options.extend(named(name, spec.options, entries?)?),
                    other => {
                        let reason = format!("no such table for {}; known are train, views, {}", spec.name, spec.table);
                        return Err(Error::config(other, reason));
                    }
                }
            }
        }
        (spec.check)(&options)?;
        let options = spec.complete(&options)?;
        let (recipe, views) = (Recipe::read(&recipe)?, TrainViews::read(&views)?);
        let needs_held_out = request.search || recipe.average == Average::Swad || searches_on_val(spec, &options);
        let held_out = request.held_out.unwrap_or(if needs_held_out { shots.min(4) } else { 0 });
        let few_shot =
            FewShot { shots, held_out, seed: request.seed, sampler: request.sampler, allow_fewer: request.allow_fewer };
        let request = request.clone();
        let settings = Self { spec, few_shot, recipe, rate_follows: None, views, options, request };
        settings.check()?;
        Ok(settings)
    }

    /// The learning rate that suits a model, unless the caller chose one.
    pub(crate) fn suit(&mut self, logit_scale: f32) {
        let chosen = |table: &toml::Table| table.get("train").is_some_and(|train| train.get("lr").is_some());
        let factor = self.recipe.rate_factor(logit_scale).min(self.recipe.rate_limit);
        if factor == 1.0 || self.recipe.epochs == 0 || self.request.overrides.iter().any(chosen) {
            return;
        }
        // Three digits say as much as the rule can.
        let rounded = |rate: f64| format!("{:.2e}", rate * factor).parse().unwrap_or(rate * factor);
        self.recipe.lr = rounded(self.recipe.lr);
        self.recipe.warmup_lr = rounded(self.recipe.warmup_lr);
        self.rate_follows = Some(logit_scale);
    }

    fn check(&self) -> Result<()> {
        if self.request.search && self.spec.name != "sapt" {
            let reason = format!("only sapt has a sharpness radius; {} has nothing to search", self.spec.name);
            return Err(Error::config("search", reason));
        }
        let start_epoch = self.options.get("start_epoch").and_then(toml::Value::as_integer).unwrap_or(0);
        if start_epoch > 0 && start_epoch as usize >= self.recipe.epochs {
            let expected = format!("less than train.epochs ({}), or no step is perturbed", self.recipe.epochs);
            return Err(mismatch(self.spec.table, "start_epoch", &expected, start_epoch));
        }
        let held_out_used = self.request.search || self.recipe.average == Average::Swad;
        if held_out_used && (self.few_shot.held_out == 0 || self.spec.input == Input::Pixels) {
            let reason = "this run chooses on held-out features; expected at least 1 per class";
            return Err(Error::config("held-out", reason).with_hint(Hint::HeldOut));
        }
        Ok(())
    }

    /// Takes from the configuration of a resumed run the values that this run cannot have or an earlier version did not
    /// write: the radius of a search, which is what the search chose, and options that have their defaults.
    pub(crate) fn to_table_beside(&self, stored: &toml::Table) -> Result<toml::Table> {
        let mut table = self.to_table()?;
        let defaults = [
            ("train", (self.spec.recipe)().table()),
            ("views", (self.spec.views)().table()),
            (self.spec.table, self.spec.defaults()),
        ];
        for (name, defaults) in defaults {
            let (Some(before), Some(now)) = (stored.get(name), table.get_mut(name)) else { continue };
            let (Some(before), Some(now)) = (before.as_table(), now.as_table_mut()) else { continue };
            now.retain(|key, value| before.contains_key(key) || defaults.get(key) != Some(value));
            if let Some(radius) = before.get("radius").filter(|_| self.request.search) {
                now.insert("radius".into(), radius.clone());
            }
        }
        Ok(table)
    }

    pub(crate) fn to_toml(&self) -> Result<String> {
        toml::to_string(&self.to_table()?).map_err(|e| Error::config("config.toml", e.to_string()))
    }

    /// What `config.toml` holds.
    pub(crate) fn to_table(&self) -> Result<toml::Table> {
        let r = &self.request;
        let mut top = serde_json::json!({
            "method": self.spec.name,
            "model": r.model,
            "data": r.data,
            "shots": self.few_shot.shots,
            "held_out": self.few_shot.held_out,
            "seed": r.seed,
            "sampler": r.sampler,
            "allow_fewer": r.allow_fewer,
            "list": r.list.as_deref().unwrap_or_default(),
            "max_errors": r.max_errors,
            "search": r.search,
            "checkpoint_every": r.checkpoint_every,
        });
        // What is as it usually is, is not written.
        if let Some(precision) = r.text_precision.filter(|p| *p != Precision::F32) {
            top["text_precision"] = precision.name().into();
        }
        if let Some(loss) = &r.loss {
            top["loss"] = loss.identity().into();
        }
        if reads_exif(&r.data, r.exif) {
            top["exif"] = true.into();
        }
        let mut table = toml::Table::try_from(top).map_err(|e| Error::config("config.toml", e.to_string()))?;
        table.insert("train".into(), self.recipe.table().into());
        table.insert("views".into(), self.views.table().into());
        table.insert(self.spec.table.into(), self.options.clone().into());
        Ok(table)
    }

    /// The tuner with these options, and with what the request puts in the place of its text tower and its loss.
    pub(crate) fn build(&self, options: &toml::Table, task: &TuneTask<'_>) -> Result<Box<dyn Tuner>> {
        let mut tuner = (self.spec.build)(options, task)?;
        if let Some(text) = &self.request.text {
            tuner.set_remote_text(Arc::clone(text))?;
        }
        if let Some(loss) = &self.request.loss {
            tuner.set_loss(Arc::clone(loss))?;
        }
        Ok(tuner)
    }
}

/// Tip-Adapter and GDA-CLIP choose their weights on held-out images unless told otherwise.
fn searches_on_val(spec: &TunerSpec, options: &toml::Table) -> bool {
    ["tip-adapter", "gda-clip"].contains(&spec.table)
        && options.get("search").and_then(toml::Value::as_str) == Some("val")
}
