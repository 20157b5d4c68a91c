//! What an image, an answer and a training step cost on this machine, measured in moments and kept, so that long work can be
//! priced before it starts.

use super::cases::{class_names, noise, pixels};
use super::measure::seconds;
use super::methods::Given;
use crate::data::feature_bank::FeatureBank;
use crate::data::{self, OpenOptions};
use crate::train::{TuneCost, TuneRequest, with_text_tower};
use crate::tuners::{Batch, Input, TuneTask};
use crate::{EvaluateRequest, PromptChoice, ViewChoice, evaluate};
use flatclip::files::write_atomic;
use flatclip::image::sheet::encode_png;
use flatclip::image::views::ViewPolicy;
use flatclip::methods::{ViewSet, adapter};
use flatclip::model::Features;
use flatclip::{Error, Image, Model, Progress, Prompt, Result};
use flatclip_tensor::{Matrix, isa};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Images of a measurement, and their size: a usual photo of ImageNet.
const IMAGES: usize = 4;
const SIZE: (usize, usize) = (500, 375);
/// Most views of a measurement; the time grows with their number.
const VIEWS: usize = 32;
/// Views of an image by default.
const ALL_VIEWS: usize = 64;
/// How long what was measured counts as what this machine does now: it may be busier, or less busy, later.
const FRESH: Duration = Duration::from_secs(3600);
/// Class counts between which a line is drawn.
const CLASSES: [usize; 2] = [48, 192];

/// Seconds of this machine for a model, measured when first asked for.
pub struct Rates<'a> {
    model: &'a Model,
    progress: &'a dyn Progress,
    file: Option<PathBuf>,
    known: Mutex<BTreeMap<String, f64>>,
}

impl<'a> Rates<'a> {
    /// With what was measured before for the same shape, arithmetic and threads.
    pub fn open(model: &'a Model, cache: Option<&Path>, progress: &'a dyn Progress) -> Self {
        let (precision, isa) = (model.clip().precision(), isa::current().name());
        let plain =
            |text: &str| -> String { text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect() };
        let (shape, precision) = (plain(&model.describe()), plain(&precision));
        let threads = rayon::current_num_threads();
        let name = format!("{shape}-{precision}-{isa}-{threads}-{}.json", env!("CARGO_PKG_VERSION"));
        let file = cache.map(|folder| folder.join("rates").join(name));
        let fresh = |file: &&PathBuf| {
            let written = std::fs::metadata(file).and_then(|about| about.modified());
            written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < FRESH))
        };
        let known =
            file.as_ref().filter(fresh).and_then(|file| serde_json::from_slice(&std::fs::read(file).ok()?).ok());
        Self { model, progress, file, known: Mutex::new(known.unwrap_or_default()) }
    }

    fn remembered(&self, key: String, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let known = |map: &BTreeMap<String, f64>| map.get(&key).copied();
        if let Some(seconds) = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(seconds);
        }
        self.progress.start(&format!("measuring {key}"), None);
        let seconds = measure();
        self.progress.finish();
        let seconds = seconds?;
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key, seconds);
        if let Some(file) = &self.file {
            let folder = file.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
            write_atomic(file, &serde_json::to_vec_pretty(&*all).unwrap_or_default())?;
        }
        Ok(seconds)
    }

    /// Reading, cutting and encoding the views of one image, as an evaluation does it.
    pub fn image(&self, policy: ViewPolicy, views: usize) -> Result<f64> {
        let measured = views.min(VIEWS);
        let key = format!("image {} x{measured}", policy.name());
        let seconds = self.remembered(key, || image(self.model, policy, measured))?;
        Ok(seconds * views as f64 / measured as f64)
    }

    /// What an adapter adds for one image. Of a few views it is priced as of all: beside encoding them, what fewer save is
    /// little, and measuring it would take longer.
    pub fn answer(&self, method: &str, options: &toml::Table, views: usize, classes: usize) -> Result<f64> {
        let views = if views > 1 { views.max(ALL_VIEWS) } else { 1 };
        let at = |classes: usize| {
            let key = format!("answer {method} {options} x{views} of {classes}");
            self.remembered(key, || answer(self.model, method, options, views, classes))
        };
        on_line(classes, at)
    }

    /// One step of a tuner.
    pub fn step(&self, request: &TuneRequest, classes: usize) -> Result<f64> {
        let at = |classes: usize| {
            let cost = request.cost(classes)?;
            let key = format!("step {} {} of {classes}, batch {}", cost.spec.name, cost.options, cost.batch);
            self.remembered(key, || step(&with_text_tower(&mut request.clone(), self.model, &())?, &cost, classes))
        };
        on_line(classes, at)
    }

    /// The text tower over a class list, once.
    pub fn text(&self, classes: usize) -> Result<f64> {
        let at = |classes: usize| {
            self.remembered(format!("text of {classes}"), || {
                let prompt = Prompt::templates(&[Prompt::TEMPLATE])?;
                let names = class_names(classes);
                fastest(|| prompt.text_features(self.model.clip(), self.model.tokenizer(), &names).map(drop))
            })
        };
        on_line(classes, at)
    }
}

/// A time that grows with the number of classes: itself where that is small, else on the line through two measurements.
fn on_line(classes: usize, at: impl Fn(usize) -> Result<f64>) -> Result<f64> {
    let [low, high] = CLASSES;
    if classes <= high {
        return at(classes);
    }
    let (a, b) = (at(low)?, at(high)?);
    Ok(b + (b - a).max(0.0) * (classes - high) as f64 / (high - low) as f64)
}

/// The faster of two runs after one that warms up; a long run is not repeated.
fn fastest(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let first = seconds(&mut work)?;
    if first > 1.0 {
        return Ok(first);
    }
    Ok(seconds(&mut work)?.min(seconds(&mut work)?))
}

fn image(model: &Model, policy: ViewPolicy, views: usize) -> Result<f64> {
    let folder = tempfile::tempdir().map_err(Error::io("temporary folder"))?;
    let (width, height) = SIZE;
    for number in 0..IMAGES {
        let class = folder.path().join(["a", "b"][number % 2]);
        std::fs::create_dir_all(&class).map_err(Error::io(&class))?;
        // Smooth, so that decoding costs what a photo costs, and not what noise costs.
        let wave = |x: usize, y: usize| (127.0 + 90.0 * ((x + 31 * number) as f64 / 37.0).sin() + 0.1 * y as f64) as u8;
        let rgb = (0..width * height * 3).map(|i| wave(i / 3 % width + i % 3, i / 3 / width)).collect();
        let file = class.join(format!("{number}.png"));
        write_atomic(&file, &encode_png(&Image { width, height, rgb })?)?;
    }
    let data = data::open(&format!("folder:{}", folder.path().display()), &OpenOptions::default())?;
    let features = Matrix::from_vec(2, model.width(), noise("classes", 2 * model.width()));
    let run = |name: &str| {
        let request = EvaluateRequest {
            methods: vec!["zero-shot".into()],
            prompt: PromptChoice::One(Prompt::features(features.clone())?.into()),
            views: Some(views),
            view_policy: ViewChoice::Policy(policy),
            ..EvaluateRequest::new(folder.path().join(name))?
        };
        let done = evaluate(&request, model, std::slice::from_ref(&data), &())?;
        Ok(done.first().map_or(0.0, |run| run.timing.wall) / IMAGES as f64)
    };
    let first: f64 = run("first")?;
    if first > 1.0 { Ok(first) } else { Ok(first.min(run("second")?)) }
}

fn answer(model: &Model, method: &str, options: &toml::Table, views: usize, classes: usize) -> Result<f64> {
    let clip = model.clip();
    let mut adapter = adapter(method)?.build(options)?;
    let needs = adapter.needs().unwrap_or(flatclip::methods::adapter(method)?.needs);
    let (mut given, width) = (Given::new(clip, &needs)?, model.width());
    if clip.config().text.is_none() {
        given.prompt = Arc::new(Prompt::features(Matrix::from_vec(classes, width, noise("classes", classes * width)))?);
    }
    let task = given.task(model, class_names(classes))?;
    adapter.prepare(&task)?;
    let features = Features::unit(Matrix::from_vec(views, width, noise("views", views * width)));
    let pixels = if needs.pixels { pixels(clip, views) } else { Vec::new() };
    fastest(|| {
        let image = ViewSet {
            norms: &features.1,
            pixels: needs.pixels.then_some(pixels.as_slice()),
            generated: given.generated.as_ref(),
            ..ViewSet::new("rates", &features.0)
        };
        adapter.adapt_set(&task, std::slice::from_ref(&image)).map(drop)
    })
}

fn step(model: &Model, cost: &TuneCost, classes: usize) -> Result<f64> {
    let (clip, width) = (model.clip(), model.width());
    let TuneCost { spec, options, batch, .. } = cost;
    let names = class_names(classes);
    let labels: Vec<usize> = (0..classes).collect();
    let bank = FeatureBank::new(1, Matrix::from_vec(classes, width, noise("bank", classes * width)))?;
    let templates = vec![Prompt::TEMPLATE.to_owned()];
    let task = TuneTask {
        clip,
        tokenizer: model.tokenizer(),
        classes: &names,
        templates: &templates,
        labels: &labels,
        bank: (spec.input == Input::Features).then_some(&bank),
        seed: 0,
    };
    let tuner = (spec.build)(options, &task)?;
    let mine: Vec<usize> = (0..*batch).map(|i| i % classes).collect();
    let (features, pixels) = match spec.input {
        Input::Features => {
            (Features::unit(Matrix::from_vec(*batch, width, noise("batch", batch * width))).0, Vec::new())
        }
        Input::Pixels => (Matrix::default(), pixels(clip, *batch)),
    };
    let batch = Batch { labels: &mine, features: &features, pixels: &pixels };
    fastest(|| tuner.step(clip, &batch, usize::MAX).map(drop))
}
