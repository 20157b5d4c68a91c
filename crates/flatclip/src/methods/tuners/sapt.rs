//! SAPT: sharpness-aware prompt tuning. CoOp's loss, and how much it can rise within a radius of the context.
//!
//! ```text
//! loss(p) = CE(p) + lambda [CE(p + eps) - CE(p)]        eps = rho g / ‖g‖, g = ∇CE(p), held constant
//! step    = (1 - lambda) ∇CE(p) + lambda ∇CE(p + eps)   on one batch
//! ```
//!
//! lambda = 0 is CoOp to the bit, lambda = 1 (the paper's) is SAM. Weight decay acts in the optimiser, at p, and is no part
//! of eps. Cost: two forward and two backward passes of the text tower over K classes per step.
//!
//! | option | default | source |
//! |---|---|---|
//! | radius (rho) | 0.1 | the paper searches {0.05, 0.1, 0.3, 0.5, 0.7}; `--search radius` does so on held-out shots |
//! | weight (lambda) | 1 | paper |
//! | words | a photo of a | paper: 4 context tokens, as the CoOp row it compares with |
//! | perturbation, norm | sam, whole | paper: one norm over the tuple of all tokens |
//! | asam_eta, fisher_eta | 0.01, 1 | defaults of the methods' own code |
//! | start_epoch | 0 | every epoch, the warm-up included |
//!
//! Reference: "Flatness guided test-time adaptation for vision-language models", ICLR 2026. Held by the golden cases
//! `sapt-*`.

use super::coop::{Coop, CoopConfig};
use super::sharpness::{Ball, Norm, Perturbation, moved, norm};
use super::{Batch, Loss, Perturbed, Step, TuneTask, Tuner};
use crate::Result;
use crate::methods::options::Options;
use crate::model::{Clip, Position};
use crate::prompt::{PromptKind, Tensor};
use flatclip_tensor::Matrix;
use serde::{Deserialize, Serialize};

/// Options of `sapt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SaptConfig {
    /// rho, the length of eps.
    pub radius: f64,
    /// lambda, the weight of the sharpness.
    pub weight: f64,
    /// How eps is made.
    pub perturbation: Perturbation,
    /// What of eps has the length rho.
    pub norm: Norm,
    /// ASAM's eta.
    pub asam_eta: f64,
    /// FisherSAM's eta.
    pub fisher_eta: f64,
    /// The first epoch with a perturbation.
    pub start_epoch: usize,
    /// Words whose embeddings the context starts from; empty for noise.
    pub words: String,
    /// Number of context tokens; 0 means as many as the words have, or 16 without words.
    pub n_ctx: usize,
    /// One context per class.
    pub class_specific: bool,
    /// Where the class name stands.
    pub position: Position,
}

impl Default for SaptConfig {
    fn default() -> Self {
        let CoopConfig { words, n_ctx, class_specific, position } = CoopConfig::default();
        Self {
            radius: 0.1,
            weight: 1.0,
            perturbation: Perturbation::Sam,
            norm: Norm::Whole,
            asam_eta: 0.01,
            fisher_eta: 1.0,
            start_epoch: 0,
            words,
            n_ctx,
            class_specific,
            position,
        }
    }
}

impl Options for SaptConfig {
    const NAME: &'static str = "sapt";

    fn check(&self) -> Result<()> {
        Self::require_not_negative("radius", self.radius)?;
        Self::require((0.0..=1.0).contains(&self.weight), "weight", "a number from 0 to 1", self.weight)?;
        Self::require_not_negative("asam_eta", self.asam_eta)?;
        Self::require_not_negative("fisher_eta", self.fisher_eta)?;
        Self::require(self.n_ctx <= 64, "n_ctx", "at most 64 context tokens", self.n_ctx)
    }
}

impl SaptConfig {
    /// The ball that eps reaches the border of.
    pub fn ball(&self) -> Ball {
        let eta = if self.perturbation == Perturbation::FisherSam { self.fisher_eta } else { self.asam_eta };
        Ball { perturbation: self.perturbation, norm: self.norm, radius: self.radius, eta }
    }

    /// What it shares with CoOp.
    pub fn coop(&self) -> CoopConfig {
        let (words, position) = (self.words.clone(), self.position);
        CoopConfig { words, n_ctx: self.n_ctx, class_specific: self.class_specific, position }
    }
}

/// CoOp's learner, stepping against the sharpness.
#[derive(Clone, Debug)]
pub struct Sapt {
    coop: Coop,
    ball: Ball,
    weight: f32,
    start_epoch: usize,
}

impl Sapt {
    /// Around a given learner.
    pub fn new(coop: Coop, config: &SaptConfig) -> Self {
        Self { coop, ball: config.ball(), weight: config.weight as f32, start_epoch: config.start_epoch }
    }

    /// Starts from words or noise.
    pub fn build(config: &SaptConfig, task: &TuneTask<'_>) -> Result<Self> {
        Ok(Self::new(Coop::build(&config.coop(), task)?, config))
    }
}

impl Tuner for Sapt {
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
        let p = self.parameters();
        let mut step = Step::plain(self.loss(clip, p, batch)?);
        if self.weight == 0.0 || epoch < self.start_epoch {
            return Ok(step);
        }
        let epsilon = self.ball.epsilon(p, &step.gradient);
        let epsilon_norm = norm(&epsilon) as f32;
        if epsilon_norm == 0.0 {
            // Nothing to perturb by: rho is 0, or the gradient vanished.
            step.perturbed = Some(Perturbed { epsilon_norm, loss: step.loss });
            return Ok(step);
        }
        let second = self.loss(clip, &moved(p, &epsilon), batch)?;
        step.perturbed = Some(Perturbed { epsilon_norm, loss: second.value });
        step.gradient = mix(step.gradient, second.gradient, self.weight);
        Ok(step)
    }

    fn text_features(&self, clip: &Clip) -> Result<Option<Matrix>> {
        self.coop.text_features(clip)
    }

    fn prompt(&self) -> PromptKind {
        self.coop.prompt()
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
