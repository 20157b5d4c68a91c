//! Tuners: they learn a prompt (or adapter) from a few labelled images per class.
//!
//! A tuner is a loss of some trained tensors on a batch, with its gradient, and the prompt that the tensors
//! make; one file each. The loop, the optimiser and the checkpoints are in [`crate::train`] and the same for
//! all.

mod class_sample;
pub mod cocoop;
mod context_init;
pub mod coop;
mod cross_entropy;
pub mod gda_clip;
pub mod maple;
#[cfg(test)]
mod option_tests;
mod own_loss;
mod recipe;
pub mod sapt;
mod spec;
pub mod tip_adapter;

pub use cocoop::{Cocoop, CocoopConfig};
pub use coop::{Coop, CoopConfig};
pub use cross_entropy::{CrossEntropy, cross_entropy};
pub use flatclip::methods::Verified;
pub use gda_clip::{GdaClip, GdaClipConfig};
pub(crate) use maple::vit_of;
pub use maple::{Maple, MapleConfig};
pub use own_loss::OwnLoss;
pub use recipe::{Average, OptimiserKind, Recipe, Schedule, SwadRule};
pub use sapt::{Sapt, SaptConfig};
pub(crate) use spec::tuner_among;
pub use spec::{Input, PRESETS, Preset, TUNERS, TunerSpec, preset, tuner};
pub use tip_adapter::{Grid, TipAdapter, TipAdapterConfig, TipSearch};

use crate::data::feature_bank::FeatureBank;
use flatclip::model::{Clip, Context};
use flatclip::prompt::{Prompt, PromptContent, Tensor};
use flatclip::text::Tokenizer;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use std::sync::Arc;

/// What a tuner is built for.
#[derive(Clone, Copy)]
pub struct TuneTask<'a> {
    /// The frozen model.
    pub clip: &'a Clip,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Class names, by label.
    pub classes: &'a [String],
    /// The data set's zero-shot templates.
    pub templates: &'a [String],
    /// Labels of the shots.
    pub labels: &'a [usize],
    /// Features of augmented views of the shots, where the image tower stays as it is.
    pub bank: Option<&'a FeatureBank>,
    /// Seed of every draw.
    pub seed: u64,
}

impl TuneTask<'_> {
    /// Templates, the data set's own where none are given, and the zero-shot classifier `[K, D]` that they make.
    fn zero_shot(&self, given: &[String]) -> Result<(Vec<String>, Matrix)> {
        let usual = [Prompt::TEMPLATE.to_owned()];
        let templates = [given, self.templates].into_iter().find(|t| !t.is_empty()).unwrap_or(&usual);
        let classifier = Prompt::templates(templates)?.text_features(self.clip, self.tokenizer, self.classes)?;
        Ok((templates.to_vec(), classifier))
    }

    /// The feature bank, for tuners that are nothing without one.
    fn needed_bank(&self, method: &str) -> Result<&FeatureBank> {
        self.bank.ok_or_else(|| Error::method(method, "it needs a feature bank of at least one view"))
    }
}

/// Some labelled images: their unit-norm features, or their pixels for tuners that change the image tower.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Labels.
    pub labels: &'a [usize],
    /// `[B, D]`; empty for tuners of [`Input::Pixels`].
    pub features: &'a Matrix,
    /// `[B, 3, H, W]`; empty for tuners of [`Input::Features`].
    pub pixels: &'a [f32],
}

/// The loss of a batch at some parameters, and its gradient.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Mean cross-entropy, or the caller's own loss.
    pub value: f32,
    /// Images whose class has the highest logit.
    pub correct: usize,
    /// `[B, K]`.
    pub logits: Matrix,
    /// One per parameter; without weight decay.
    pub gradient: Vec<Vec<f32>>,
}

/// What one step learned: the gradient for the optimiser, and what is worth logging.
#[derive(Clone, Debug)]
pub struct Step {
    /// The loss at the parameters.
    pub loss: f32,
    /// Images of the batch that are right.
    pub correct: usize,
    /// The gradient to follow, one per parameter.
    pub gradient: Vec<Vec<f32>>,
    /// Norm of the plain gradient.
    pub gradient_norm: f32,
    /// The perturbed pass, where there was one.
    pub perturbed: Option<Perturbed>,
}

/// The second pass of a sharpness-aware step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perturbed {
    /// Norm of eps.
    pub epsilon_norm: f32,
    /// The loss at p + eps.
    pub loss: f32,
}

/// Text features of a context and the gradient back to it, computed elsewhere: by a text tower whose classes are split over
/// processes.
pub trait RemoteText: Send + Sync + std::fmt::Debug {
    /// Unit-norm text features `[K, D]` of a context.
    fn features(&self, context: &Context) -> Result<Matrix>;

    /// The gradient with respect to the context whose features were asked for last.
    fn gradient(&self, context: &Context, d_features: &Matrix) -> Result<Context>;
}

/// Learns a prompt: a loss of its parameters.
pub trait Tuner: Send + Sync {
    /// Takes text features from elsewhere from now on; a tuner that cannot gives an error.
    fn set_remote_text(&mut self, _text: Arc<dyn RemoteText>) -> Result<()> {
        Err(Error::config("text", "this tuner runs the text tower itself; coop and sapt can leave it to others"))
    }

    /// Takes a loss of the caller's own from now on; a tuner that cannot gives an error.
    fn set_loss(&mut self, _loss: Arc<dyn OwnLoss>) -> Result<()> {
        Err(Error::config("loss", "this tuner has a loss of its own; coop and sapt take another"))
    }

    /// What is trained.
    fn parameters(&self) -> &[Tensor];

    /// What is trained, to write.
    fn parameters_mut(&mut self) -> &mut [Tensor];

    /// Mean cross-entropy (or the caller's own loss) of a batch at the parameters `at`, and its gradient.
    fn loss(&self, clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss>;

    /// The gradient of one training step; the plain one by default.
    fn step(&self, clip: &Clip, batch: &Batch<'_>, _epoch: usize) -> Result<Step> {
        Ok(Step::plain(self.loss(clip, self.parameters(), batch)?))
    }

    /// Text features `[K, D]` of the parameters, where the logits are their cosines with the image features.
    fn text_features(&self, _clip: &Clip) -> Result<Option<Matrix>> {
        Ok(None)
    }

    /// After training, with features of held-out images if there are any: what is chosen and not learned.
    fn finish(&mut self, _held_out: Option<&Batch<'_>>) -> Result<()> {
        Ok(())
    }

    /// The prompt of the parameters.
    fn prompt(&self) -> Result<PromptContent>;
}

impl Step {
    /// Follows the gradient of the loss itself.
    pub fn plain(loss: Loss) -> Self {
        let gradient_norm = l2_norm(loss.gradient.iter().flatten()) as f32;
        Self { loss: loss.value, correct: loss.correct, gradient: loss.gradient, gradient_norm, perturbed: None }
    }
}
