//! SAPT: sharpness-aware prompt tuning. CoOp's loss, and how much it can rise within a radius of the context.

use super::Verified;
use super::coop::{Coop, CoopConfig, learned_context};
use super::{Batch, Input, Loss, OwnLoss, Perturbed, Recipe, RemoteText, Step, TuneTask, Tuner, TunerSpec};
use crate::data::train_images::TrainViews;
use flatclip::Result;
use flatclip::methods::bank::RadiusUnit;
use flatclip::methods::sam::{Ascent, NormScope, SamVariant, moved};
use flatclip::model::{Clip, Position};
use flatclip::prompt::{PromptContent, PromptKind, Tensor};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use std::sync::Arc;

/// The registry entry.
pub static SPEC: TunerSpec = TunerSpec {
    name: "sapt",
    aliases: &["fga"],
    input: Input::Features,
    prompt: PromptKind::Learned,
    vit: false,
    table: SaptConfig::NAME,
    summary: "context tokens in a flat minimum: CoOp's loss and its sharpness",
    docs: "\
What: CoOp's loss, and how much it can rise within a radius of the context. Golden cases: sapt-*.
  loss(p) = CE(p) + lambda [CE(p + eps) - CE(p)]        eps = rho g / |g|, g = grad CE(p), held constant
  step    = (1 - lambda) grad CE(p) + lambda grad CE(p + eps)   on one batch
lambda (weight) = 0 is CoOp to the bit, lambda = 1 is SAM; above 1 the gradient at p is subtracted. Weight
decay acts in the optimiser, at p, and is no part of eps. The paper searches the radius in {0.05, 0.1, 0.3,
0.5, 0.7}: a search of the radius does so on held-out shots.
Cost: two forward and two backward passes of the text tower over K classes per step.
Reference: Flatness guided test-time adaptation for vision-language models, ICLR 2026.
",
    verified: Verified::Formula,
    options: SaptConfig::OPTIONS,
    check: |options| SaptConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(Sapt::build(&SaptConfig::read(options)?, task)?)),
    recipe: Recipe::default,
    views: TrainViews::default,
};

flatclip::options! {
    /// Options of `sapt`.
    pub struct SaptConfig for "sapt" {
        /// rho, the length of eps, or its share of the context's norm.
        radius: f64 = 0.1, alias "rho", range at_least(0.0), from "paper, which searches 0.05 to 0.7";
        /// What the radius is measured in; relative transfers to contexts of other norms, and with a norm per token or
        /// class is a share of that token's or class's norm.
        radius_unit: RadiusUnit = RadiusUnit::Absolute, from "paper";
        /// lambda, the weight of the sharpness.
        weight: f64 = 1.0, alias "lambda", range at_least(0.0), from "paper";
        /// How eps is made.
        perturbation: SamVariant = SamVariant::Sam, from "paper";
        /// Over which entries eps has its length.
        norm: NormScope = NormScope::Whole, from "paper: one norm over the tuple of all tokens";
        /// ASAM's eta.
        asam_eta: f64 = 0.01, range at_least(0.0), from "ASAM's code";
        /// FisherSAM's eta.
        fisher_eta: f64 = 1.0, range at_least(0.0), from "re-implementations of FisherSAM";
        /// The first epoch with a perturbation, counted from 0; below train.epochs.
        start_epoch: usize = 0, from "paper: every epoch, the warm-up included";
        include learned_context;
    }
}

impl SaptConfig {
    /// The ascent that makes eps.
    pub fn ascent(&self) -> Ascent {
        let eta = if self.perturbation == SamVariant::FisherSam { self.fisher_eta } else { self.asam_eta };
        Ascent { variant: self.perturbation, norm: self.norm, radius: self.radius, unit: self.radius_unit, eta }
    }

    /// What it shares with CoOp.
    pub fn coop(&self) -> CoopConfig {
        let (words, position) = (self.words.clone(), self.position);
        let Self { n_ctx, class_specific, class_sample, gradient_blocks, .. } = *self;
        CoopConfig { words, n_ctx, class_specific, position, class_sample, gradient_blocks }
    }
}

/// A step against the loss and its sharpness, around the parameters of any tuner.
#[derive(Clone, Debug)]
pub(super) struct Sharpness {
    pub(super) ascent: Ascent,
    pub(super) weight: f32,
    pub(super) start_epoch: usize,
}

/// CoOp's learner, stepping against the sharpness.
#[derive(Clone, Debug)]
pub struct Sapt {
    coop: Coop,
    sharpness: Sharpness,
}

impl Sapt {
    /// Around a given learner.
    pub fn new(coop: Coop, config: &SaptConfig) -> Self {
        let (ascent, weight) = (config.ascent(), config.weight as f32);
        Self { coop, sharpness: Sharpness { ascent, weight, start_epoch: config.start_epoch } }
    }

    /// Starts from words or noise.
    pub fn build(config: &SaptConfig, task: &TuneTask<'_>) -> Result<Self> {
        Ok(Self::new(Coop::build(&config.coop(), task)?, config))
    }
}

impl Tuner for Sapt {
    fn set_remote_text(&mut self, text: Arc<dyn RemoteText>) -> Result<()> {
        self.coop.set_remote_text(text)
    }

    fn set_loss(&mut self, loss: Arc<dyn OwnLoss>) -> Result<()> {
        self.coop.set_loss(loss)
    }

    fn parameters(&self) -> &[Tensor] {
        self.coop.parameters()
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        self.coop.parameters_mut()
    }

    fn loss(&self, clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss> {
        self.coop.loss(clip, at, batch)
    }

    fn step(&self, clip: &Clip, batch: &Batch<'_>, epoch: usize) -> Result<Step> {
        self.sharpness.step(self, clip, batch, epoch)
    }

    fn text_features(&self, clip: &Clip) -> Result<Option<Matrix>> {
        self.coop.text_features(clip)
    }

    fn prompt(&self) -> Result<PromptContent> {
        self.coop.prompt()
    }
}

impl Sharpness {
    /// The gradient of one step of `tuner`.
    pub(super) fn step(&self, tuner: &dyn Tuner, clip: &Clip, batch: &Batch<'_>, epoch: usize) -> Result<Step> {
        let p = tuner.parameters();
        let mut step = Step::plain(tuner.loss(clip, p, batch)?);
        if self.weight == 0.0 || epoch < self.start_epoch {
            return Ok(step);
        }
        let epsilon = self.ascent.epsilon(p, &step.gradient);
        let epsilon_norm = l2_norm(epsilon.iter().flatten()) as f32;
        if epsilon_norm == 0.0 {
            // Nothing to perturb by: rho is 0, or the gradient vanished.
            step.perturbed = Some(Perturbed { epsilon_norm, loss: step.loss });
            return Ok(step);
        }
        let second = tuner.loss(clip, &moved(p, &epsilon), batch)?;
        step.perturbed = Some(Perturbed { epsilon_norm, loss: second.value });
        step.gradient = mix(step.gradient, second.gradient, self.weight);
        Ok(step)
    }
}

/// `(1 - lambda) g1 + lambda g2`; exactly g2 for lambda = 1.
fn mix(first: Vec<Vec<f32>>, second: Vec<Vec<f32>>, lambda: f32) -> Vec<Vec<f32>> {
    if lambda == 1.0 {
        return second;
    }
    let blend = |(a, b): (&f32, &f32)| (1.0 - lambda) * a + lambda * b;
    first.iter().zip(&second).map(|(a, b)| a.iter().zip(b).map(blend).collect()).collect()
}
