//! STSS: sharpness-aware test-time sample selection. With a SAPT prompt it is FGA.
//!
//! Once per prompt and class list: `T_r` = text features at `p + rho' u_r`, `u_r` random unit directions, `r = 1..R`.
//! For each image: `score_v = H_v + lambda (max_r H_{r,v} - H_v)`, `H` the entropy of `softmax(tau f_v T')`; keep the
//! `int(fraction V)` views of lowest score; they vote with the unperturbed prompt. The prompt is never changed.
//! Golden cases: `fga-stss-*`.

use crate::Result;
use crate::methods::aggregate::{Tie, Vote, vote};
use crate::methods::bank::{Directions, Norm, Perturbation, RadiusUnit, TextBank, check_count};
use crate::methods::options::Options;
use crate::methods::select::{Selector, ViewLogits};
use crate::methods::sharpness::{Original, Reduce, Sharpness, Surrogate};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, ViewSet};
use serde::{Deserialize, Serialize};

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "stss",
    aliases: &["fga"],
    needs: Needs { bank: true, ..Needs::CONTEXT },
    summary: "keeps the views whose entropy stays low around the prompt and lets them vote; FGA with a sapt prompt",
    docs: "\
What: the context p is perturbed R times by random directions of length radius; the text features T_r of all perturbed contexts are
computed once per prompt and class list (the text bank). For each view v: score = H_v + lambda * (max_r H_rv - H_v), with H_rv the
entropy of softmax(exp(logit_scale) * f_v . T_r). The int(fraction * V) views of lowest score vote with the unperturbed prompt.
With lambda = 1 the score is max_r H_rv. With radius = 0, perturbations = 0 or lambda = 0 it is TPT's and ZERO's confidence filter.
Cost: one image-tower pass over the views; R * V * K dot products (below 1 % of it); R text-tower passes once per class list.
Options: (paper: the FGA paper; choice: the paper is silent, ours)
  radius = 0.5                 rho', the length of a perturbation (paper)
  radius_unit = \"absolute\"     absolute (paper), or relative: times the length of the context, which transfers to other widths
  norm = \"whole\"               over which entries the length is taken: whole context (paper's symbol), per-class, per-token
  perturbations = 16           R (paper; 4 already costs less than half a point)
  directions = \"gaussian\"      gaussian (paper), antithetic or orthogonal: fewer of them for the same noise
  lambda = 1.0                 weight of the sharpness (paper)
  surrogate = \"entropy\"        entropy (paper), margin, confidence
  reduce = \"max\"               max over r (paper), mean, quantile
  quantile = 0.9               which one, for reduce = \"quantile\"
  clamp = false                true: negative sharpness counts as 0 (the formula has no clamp)
  fraction = 0.1               views kept (paper: 6 of 64)
  count = 0                    views kept as a number; 0: use fraction
  original = \"pool\"            the un-augmented view competes (choice), is forced in, or excluded
  vote = \"mean-probability\"    mean-probability (choice: smooth, no ties), majority, mean-logits, score-weighted
  tie = \"mean-probability\"     for a majority: the tied class of highest mean probability (choice), or discarded-views, ZERO's rule
  vote_text = \"context\"        the vote uses the unperturbed text features (paper), or bank-mean: the mean over the bank
Reference: Flatness-guided adaptation (FGA), ICLR 2026; first version as TLLA, arXiv 2501.18864.
",
    build: Build::Episodic(|table| Ok(Box::new(Stss::new(Config::read(table)?)))),
    defaults: Config::table,
};

/// Which text features the kept views vote with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VoteText {
    /// Those at the context itself.
    Context,
    /// The mean over the context and its perturbations.
    BankMean,
}

/// Options of STSS.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Length of a perturbation, rho'.
    pub radius: f64,
    /// What the radius is measured in.
    pub radius_unit: RadiusUnit,
    /// Over which entries it is measured.
    pub norm: Norm,
    /// Number of perturbed contexts, R.
    pub perturbations: usize,
    /// How directions are drawn.
    pub directions: Directions,
    /// Weight of the sharpness.
    pub lambda: f64,
    /// Loss of a view without label.
    pub surrogate: Surrogate,
    /// How losses around the prompt become one.
    pub reduce: Reduce,
    /// Which quantile.
    pub quantile: f64,
    /// Whether negative sharpness counts as zero.
    pub clamp: bool,
    /// Fraction of the views to keep.
    pub fraction: f64,
    /// Number of views to keep; 0 means the fraction.
    pub count: usize,
    /// The un-augmented view.
    pub original: Original,
    /// How kept views decide.
    pub vote: Vote,
    /// Who decides a tie of a majority.
    pub tie: Tie,
    /// Which text features they vote with.
    pub vote_text: VoteText,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            radius: 0.5,
            radius_unit: RadiusUnit::Absolute,
            norm: Norm::Whole,
            perturbations: 16,
            directions: Directions::Gaussian,
            lambda: 1.0,
            surrogate: Surrogate::Entropy,
            reduce: Reduce::Max,
            quantile: 0.9,
            clamp: false,
            fraction: 0.1,
            count: 0,
            original: Original::Pool,
            vote: Vote::MeanProbability,
            tie: Tie::MeanProbability,
            vote_text: VoteText::Context,
        }
    }
}

impl Options for Config {
    const NAME: &'static str = "stss";
    fn check(&self) -> Result<()> {
        Self::require_not_negative("radius", self.radius)?;
        check_count("stss.perturbations", self.perturbations)?;
        Self::require_not_negative("lambda", self.lambda)?;
        Self::require((0.0..=1.0).contains(&self.quantile), "quantile", "0 to 1", self.quantile)?;
        Self::require_fraction("fraction", self.fraction)
    }
}

impl Config {
    fn perturbation(&self) -> Perturbation {
        Perturbation {
            count: self.perturbations,
            radius: self.radius,
            unit: self.radius_unit,
            norm: self.norm,
            directions: self.directions,
        }
    }

    /// Whether the score is the plain loss, so that no perturbed context is needed.
    fn is_flat(&self) -> bool {
        self.perturbation().is_none() || self.lambda == 0.0
    }
}

/// The adapter and its text bank.
#[derive(Clone, Debug)]
pub struct Stss {
    options: Config,
    bank: Option<TextBank>,
}

impl Stss {
    /// With these options; [`Adapter::prepare`] makes the bank.
    pub fn new(options: Config) -> Self {
        Self { options, bank: None }
    }

    /// With a bank from elsewhere.
    pub fn with_bank(options: Config, bank: TextBank) -> Self {
        Self { options, bank: Some(bank) }
    }

    /// The bank, once there is one.
    pub fn bank(&self) -> Option<&TextBank> {
        self.bank.as_ref()
    }

    /// The selector these options make.
    pub fn selector<'b>(&self, bank: &'b TextBank, scale: f32) -> Sharpness<'b> {
        let o = &self.options;
        Sharpness {
            bank,
            scale,
            lambda: o.lambda,
            surrogate: o.surrogate,
            reduce: o.reduce,
            quantile: o.quantile,
            clamp: o.clamp,
            original: o.original,
            fraction: o.fraction,
            count: o.count,
        }
    }
}

impl Adapter for Stss {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let bank = if self.options.is_flat() {
            TextBank::flat(task.text_features.clone())
        } else if let Some(ready) = &task.bank {
            TextBank::clone(ready)
        } else {
            TextBank::load_or_encode(
                task.text_side(Config::NAME)?,
                &task.text_features,
                task.start_context(Config::NAME)?,
                &self.options.perturbation(),
                task.seed,
                task.need_clip(Config::NAME)?.hash(),
                task.store.as_deref(),
            )?
        };
        self.bank = Some(bank);
        Ok(())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let bank = self.bank.as_ref().ok_or_else(|| crate::Error::method(Config::NAME, "prepare was not called"))?;
        let views = ViewLogits::new(image.features, bank.base(), task.logit_scale);
        let selection = self.selector(bank, task.logit_scale).select(image.features, &views);
        let ballot = match self.options.vote_text {
            VoteText::Context => vote(self.options.vote, self.options.tie, &views.logits, &selection),
            VoteText::BankMean => {
                let mean = ViewLogits::new(image.features, &bank.mean(), task.logit_scale);
                vote(self.options.vote, self.options.tie, &mean.logits, &selection)
            }
        };
        Ok(ballot.answer(views.explain(selection)))
    }
}
