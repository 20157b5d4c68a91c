//! One training step: the tuner's gradient, the learning rate, the optimiser, the average.

use super::averaging::{Averager, restore};
use super::schedule::rate_at;
use crate::tuners::{Batch, OptimiserKind, Recipe, Step, Tuner};
use flatclip::methods::optim::{AdamW, AdamWSettings, AdamWState, Optimiser, Sgd};
use flatclip::model::Clip;
use flatclip::{Error, Result};
use flatclip_tensor::ops::l2_norm;
use serde::Serialize;

/// What one step did: a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepRecord {
    /// Counted from 1.
    pub step: usize,
    /// Counted from 0.
    pub epoch: usize,
    /// Learning rate.
    pub lr: f64,
    /// Loss of the batch before the step.
    pub loss: f32,
    /// Part of the batch that was right.
    pub accuracy: f32,
    /// ‖p‖ before the step.
    pub parameter_norm: f32,
    /// ‖g‖, without weight decay.
    pub gradient_norm: f32,
    /// ‖eps‖, of sharpness-aware steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon_norm: Option<f32>,
    /// ‖eps‖ / ‖p‖.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon_ratio: Option<f32>,
    /// Loss at p + eps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perturbed_loss: Option<f32>,
    /// Loss at p + eps minus loss at p.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharpness: Option<f32>,
}

impl StepRecord {
    /// The numbers under their names, for event files.
    pub(crate) fn scalars(&self) -> Vec<(&'static str, f32)> {
        let mut scalars = vec![
            ("train/loss", self.loss),
            ("train/accuracy", self.accuracy),
            ("train/lr", self.lr as f32),
            ("norm/parameter", self.parameter_norm),
            ("norm/gradient", self.gradient_norm),
        ];
        let optional = [
            ("norm/epsilon", self.epsilon_norm),
            ("norm/epsilon_ratio", self.epsilon_ratio),
            ("train/perturbed_loss", self.perturbed_loss),
            ("train/sharpness", self.sharpness),
        ];
        scalars.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        scalars
    }
}

/// The optimiser of a recipe.
#[derive(Clone, Debug)]
pub(crate) enum Optim {
    Sgd(Sgd),
    AdamW(AdamW),
}

/// The state of an optimiser, for a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OptimState {
    /// SGD's momentum, or AdamW's first and second moments one after the other.
    pub(crate) moments: Vec<Vec<f32>>,
    /// AdamW's steps.
    pub(crate) steps: i32,
}

impl Optim {
    fn new(recipe: &Recipe) -> Self {
        match recipe.optimiser {
            OptimiserKind::Sgd => Self::Sgd(Sgd::new(recipe.lr, recipe.momentum, recipe.weight_decay)),
            OptimiserKind::AdamW => Self::AdamW(AdamW::new(AdamWSettings {
                eps: recipe.eps,
                weight_decay: recipe.weight_decay,
                ..AdamWSettings::new(recipe.lr)
            })),
        }
    }

    fn step(&mut self, lr: f64, parameters: &mut [&mut [f32]], gradients: &[&[f32]]) {
        let optimiser: &mut dyn Optimiser = match self {
            Self::Sgd(sgd) => sgd,
            Self::AdamW(adamw) => adamw,
        };
        optimiser.set_lr(lr);
        optimiser.step(parameters, gradients);
    }

    pub(crate) fn state(&self) -> OptimState {
        match self {
            Self::Sgd(sgd) => OptimState { moments: sgd.buffers.clone(), steps: 0 },
            Self::AdamW(adamw) => {
                let AdamWState { steps, moments } = adamw.state.clone();
                let moments = moments.into_iter().flat_map(|(first, second)| [first, second]).collect();
                OptimState { moments, steps }
            }
        }
    }

    pub(crate) fn restore(&mut self, state: OptimState) {
        match self {
            Self::Sgd(sgd) => sgd.buffers = state.moments,
            Self::AdamW(adamw) => {
                let moments = state.moments.chunks(2).filter(|c| c.len() == 2).map(|c| (c[0].clone(), c[1].clone()));
                adamw.state = AdamWState { steps: state.steps, moments: moments.collect() };
            }
        }
    }
}

/// Trains a tuner step by step. All of its state can be saved.
#[derive(Clone, Debug)]
pub struct Trainer {
    pub(crate) recipe: Recipe,
    steps_per_epoch: usize,
    pub(crate) optim: Optim,
    pub(crate) averager: Averager,
    /// Steps done.
    pub(crate) done: usize,
}

impl Trainer {
    /// No step done yet.
    pub fn new(recipe: &Recipe, steps_per_epoch: usize) -> Self {
        Self {
            steps_per_epoch,
            optim: Optim::new(recipe),
            averager: Averager::default(),
            recipe: recipe.clone(),
            done: 0,
        }
    }

    /// Steps done.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Steps in all.
    pub fn total(&self) -> usize {
        self.recipe.epochs * self.steps_per_epoch
    }

    /// The epoch of the next step.
    pub(crate) fn epoch(&self) -> usize {
        self.done / self.steps_per_epoch.max(1)
    }

    /// One step on a batch. A loss or gradient that is not finite is an error, and nothing has moved then.
    pub fn step(&mut self, clip: &Clip, tuner: &mut dyn Tuner, batch: &Batch<'_>) -> Result<StepRecord> {
        let (epoch, lr) = (self.epoch(), rate_at(&self.recipe, self.steps_per_epoch, self.done));
        let step = tuner.step(clip, batch, epoch)?;
        let record = self.record(tuner, &step, batch, lr);
        let finite = step.loss.is_finite() && step.gradient.iter().flatten().all(|g| g.is_finite());
        if !finite {
            return Err(Error::NotFinite {
                place: format!("step {} (epoch {epoch})", record.step),
                reason: format!("loss {}, gradient norm {}", step.loss, step.gradient_norm),
            });
        }
        let gradients: Vec<&[f32]> = step.gradient.iter().map(Vec::as_slice).collect();
        let mut parameters: Vec<&mut [f32]> =
            tuner.parameters_mut().iter_mut().map(|p| p.values.as_mut_slice()).collect();
        self.optim.step(lr, &mut parameters, &gradients);
        self.done += 1;
        let progress = self.done as f64 / self.total().max(1) as f64;
        self.averager.step(&self.recipe, progress, tuner.parameters());
        Ok(record)
    }

    fn record(&self, tuner: &dyn Tuner, step: &Step, batch: &Batch<'_>, lr: f64) -> StepRecord {
        let parameter_norm = l2_norm(tuner.parameters().iter().flat_map(|p| &p.values)) as f32;
        let perturbed = step.perturbed;
        StepRecord {
            step: self.done + 1,
            epoch: self.epoch(),
            lr,
            loss: step.loss,
            accuracy: step.correct as f32 / batch.labels.len().max(1) as f32,
            parameter_norm,
            gradient_norm: step.gradient_norm,
            epsilon_norm: perturbed.map(|p| p.epsilon_norm),
            epsilon_ratio: perturbed.map(|p| p.epsilon_norm / parameter_norm),
            perturbed_loss: perturbed.map(|p| p.loss),
            sharpness: perturbed.map(|p| p.loss - step.loss),
        }
    }

    /// After an evaluation on held-out data: its loss.
    pub fn evaluated(&mut self, loss: f64) {
        self.averager.evaluated(&self.recipe, loss);
    }

    /// Puts the average in place of the last step, if the recipe has one.
    pub fn finish(&self, tuner: &mut dyn Tuner) -> Result<()> {
        match self.averager.result(&self.recipe) {
            Some(values) => restore(tuner.parameters_mut(), &values),
            None => Ok(()),
        }
    }
}
