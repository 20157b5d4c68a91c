//! The loop: batches in a fixed random order, steps, logs, checkpoints, progress.

use super::checkpoint::{self, LogLengths};
use super::directory::{CHECKPOINT, Logs, NEXT, PREVIOUS};
use super::trainer::{StepRecord, Trainer};
use crate::data::feature_bank::FeatureBank;
use crate::data::train_images::TrainImages;
use crate::run_dir::RunDir;
use crate::tuners::{Batch, Input, Recipe, Tuner, cross_entropy};
use flatclip::error::Hint;
use flatclip::model::{Clip, Features};
use flatclip::progress::Progress;
use flatclip::prompt::logits;
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use std::time::Instant;

/// Labelled features that no step sees.
#[derive(Clone, Debug)]
pub(super) struct HeldOut {
    /// Unit-norm `[N, D]`.
    pub features: Matrix,
    pub labels: Vec<usize>,
}

impl HeldOut {
    pub(super) fn batch(&self) -> Batch<'_> {
        Batch { labels: &self.labels, features: &self.features, pixels: &[] }
    }
}

/// What the steps are made of.
pub(super) struct TrainData<'a> {
    pub clip: &'a Clip,
    pub images: &'a TrainImages<'a>,
    pub labels: &'a [usize],
    /// Their encoded views; without, every step encodes its batch.
    pub bank: Option<&'a FeatureBank>,
    /// Every step encodes its batch although there is a bank.
    pub fresh: bool,
    pub input: Input,
    /// For averages that look at held-out losses.
    pub held_out: Option<&'a HeldOut>,
    pub seed: u64,
}

/// Where a run writes, and who watches and stops it.
pub(super) struct Control<'a> {
    /// The run directory; without, nothing is written.
    pub directory: Option<&'a RunDir>,
    /// What the progress calls it.
    pub stage: &'a str,
    pub every: usize,
    /// Told after every step; a run that it cancels is saved.
    pub progress: &'a dyn Progress,
}

/// The order of the images in an epoch, shuffled once: it depends on nothing but seed and epoch.
#[derive(Default)]
struct EpochOrder {
    epoch: Option<usize>,
    images: Vec<usize>,
}

impl EpochOrder {
    /// The images of a step.
    fn batch(&mut self, data: &TrainData<'_>, recipe: &Recipe, step: usize) -> Vec<usize> {
        let steps = recipe.steps_per_epoch(data.labels.len()).max(1);
        let epoch = step / steps;
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            self.images = (0..data.labels.len()).collect();
            Stream::new(data.seed, &["order", &epoch.to_string()]).shuffle(&mut self.images);
        }
        self.images.iter().copied().skip(step % steps * recipe.batch).take(recipe.batch).collect()
    }
}

impl TrainData<'_> {
    fn features(&self, images: &[usize], epoch: usize) -> Result<Matrix> {
        match self.bank {
            Some(bank) if !self.fresh => Ok(self.images.draw(bank, images, epoch)),
            _ => {
                let pixels = self.images.pixels(images, epoch)?;
                Ok(Features::unit(self.clip.encode_images(&pixels, images.len())?).0)
            }
        }
    }
}

/// Trains to the end, from the last checkpoint if the directory has one. An interrupted run is saved and is an error.
pub(super) fn fit(data: &TrainData<'_>, recipe: &Recipe, tuner: &mut dyn Tuner, control: &Control<'_>) -> Result<()> {
    let fresh = Trainer::new(recipe, recipe.steps_per_epoch(data.labels.len()));
    let (mut trainer, begin) = (fresh.clone(), tuner.parameters().to_vec());
    let mut lengths = match control.directory {
        Some(directory) => load_newest(directory, &mut trainer, tuner, control.progress)?,
        None => LogLengths::default(),
    };
    if trainer.averager.lacks_steps(recipe, trainer.done()) {
        // Training repeats exactly, so starting again gives what the run should have ended with.
        let what = "the checkpoint is of a version that dropped steps which SWAD averages without convergence";
        control.progress.warn(&format!("{what}; {} starts again from the first step", control.stage));
        (trainer, lengths) = (fresh, LogLengths::default());
        tuner.parameters_mut().clone_from_slice(&begin);
    }
    let mut logs = control.directory.map(|d| d.logs(lengths)).transpose()?;
    let (start, first, mut order) = (Instant::now(), trainer.done(), EpochOrder::default());
    control.progress.start(control.stage, Some(trainer.total() as u64));
    while trainer.done() < trainer.total() {
        if control.progress.cancelled() {
            save(control, &trainer, tuner, logs.as_mut())?;
            let text = format!("stopped after step {} of {}", trainer.done(), trainer.total());
            return Err(Error::Interrupted(text).with_hint(Hint::Resume));
        }
        let record = one_step(data, recipe, &mut trainer, tuner, &mut order)?;
        if let Some(logs) = &mut logs {
            logs.append(&record)?;
        }
        if trainer.done().is_multiple_of(control.every.max(1)) || trainer.done() == trainer.total() {
            save(control, &trainer, tuner, logs.as_mut())?;
        }
        let images = (trainer.done() - first) * recipe.batch.min(data.labels.len());
        let rate = images as f64 / start.elapsed().as_secs_f64().max(1e-9);
        control.progress.advance(record.step as u64, &status(&record, rate));
    }
    control.progress.finish();
    if let Some(directory) = control.directory {
        // The last state is complete and checked: nothing falls back any more.
        let _ = std::fs::remove_file(directory.file(PREVIOUS));
    }
    if let Some(warning) = trainer.averager.without_convergence(recipe) {
        control.progress.warn(&warning);
    }
    trainer.finish(tuner)?;
    match tuner.parameters().iter().find(|tensor| tensor.values.iter().any(|x| !x.is_finite())) {
        None => Ok(()),
        Some(tensor) => Err(Error::NotFinite {
            place: format!("parameter `{}` after the last step", tensor.name),
            reason: "training diverged; lower train.lr".into(),
        }),
    }
}

/// A step for people.
fn status(record: &StepRecord, images_per_second: f64) -> String {
    let sharpness = record.sharpness.map(|s| format!(", sharpness (one SAM step) {s:.3}")).unwrap_or_default();
    let accuracy = 100.0 * record.accuracy;
    format!("loss {:.3}, accuracy {accuracy:.0} %{sharpness}, {images_per_second:.0} images/s", record.loss)
}

fn one_step(
    data: &TrainData<'_>,
    recipe: &Recipe,
    trainer: &mut Trainer,
    tuner: &mut dyn Tuner,
    order: &mut EpochOrder,
) -> Result<StepRecord> {
    let (step, epoch) = (trainer.done(), trainer.epoch());
    let images = order.batch(data, recipe, step);
    let labels: Vec<usize> = images.iter().map(|&i| data.labels[i]).collect();
    let (mut features, mut pixels) = (Matrix::default(), Vec::new());
    match data.input {
        Input::Features => features = data.features(&images, epoch)?,
        Input::Pixels => pixels = data.images.pixels(&images, epoch)?,
    }
    let batch = Batch { labels: &labels, features: &features, pixels: &pixels };
    let record = trainer.step(data.clip, tuner, &batch).map_err(|error| match error {
        Error::NotFinite { place, reason } => {
            let ids: Vec<&str> = images.iter().take(8).map(|&i| data.images.id(i)).collect();
            let place = format!("{place}, batch [{}{}]", ids.join(", "), if images.len() > 8 { ", ..." } else { "" });
            Error::NotFinite { place, reason: format!("{reason}; lower train.lr, or look at these images") }
        }
        other => other,
    })?;
    if let Some(held_out) = data.held_out.filter(|_| trainer.epoch() > epoch || trainer.done() == trainer.total()) {
        trainer.evaluated(f64::from(evaluate(data.clip, tuner, held_out)?.loss));
    }
    Ok(record)
}

fn save(control: &Control<'_>, trainer: &Trainer, tuner: &dyn Tuner, logs: Option<&mut Logs>) -> Result<()> {
    let (Some(directory), Some(logs)) = (control.directory, logs) else { return Ok(()) };
    let lengths = logs.sync()?;
    let (next, file) = (directory.file(NEXT), directory.file(CHECKPOINT));
    // Written whole before either of the two is touched: a full disk changes nothing.
    checkpoint::save(&next, &directory.run_digest(), trainer, tuner, lengths)?;
    if file.is_file() {
        std::fs::rename(&file, directory.file(PREVIOUS)).map_err(Error::io(&file))?;
    }
    std::fs::rename(&next, &file).map_err(Error::io(&file))
}

/// Loads the newest checkpoint that is whole; without any, training starts anew.
fn load_newest(
    directory: &RunDir,
    trainer: &mut Trainer,
    tuner: &mut dyn Tuner,
    progress: &dyn Progress,
) -> Result<LogLengths> {
    let run = directory.run_digest();
    let mut first_fault = None;
    for file in [CHECKPOINT, PREVIOUS].map(|name| directory.file(name)).into_iter().filter(|file| file.is_file()) {
        match checkpoint::load(&file, &run, trainer, tuner) {
            Ok(lengths) => {
                if let Some(fault) = first_fault {
                    let done = trainer.done();
                    progress.warn(&format!("{fault}; going on from the checkpoint before it, after step {done}"));
                }
                return Ok(lengths);
            }
            Err(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    match first_fault {
        Some(fault) => Err(fault.with_hint(Hint::Elsewhere)),
        None => Ok(LogLengths::default()),
    }
}

/// Loss and accuracy on some features.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LossAndAccuracy {
    /// Mean cross-entropy.
    pub loss: f32,
    /// Part that is right.
    pub accuracy: f32,
}

impl LossAndAccuracy {
    pub(super) fn of(logits: &Matrix, labels: &[usize]) -> Self {
        let entropy = cross_entropy(logits, labels);
        Self { loss: entropy.loss, accuracy: entropy.correct as f32 / labels.len().max(1) as f32 }
    }
}

/// Loss and accuracy of a tuner of features.
pub(super) fn evaluate(clip: &Clip, tuner: &dyn Tuner, held_out: &HeldOut) -> Result<LossAndAccuracy> {
    let found = match tuner.text_features(clip)? {
        Some(text) => logits(&held_out.features, &text, clip.logit_scale()),
        None => tuner.loss(clip, tuner.parameters(), &held_out.batch())?.logits,
    };
    Ok(LossAndAccuracy::of(&found, &held_out.labels))
}
