//! STSS: sharpness-aware test-time sample selection. With a SAPT prompt it is FGA.
//!
//! Once per prompt and class list: `T_r` = text features at `p + rho' u_r`, `u_r` random unit directions, `r = 1..R`.
//! For each image: `score_v = H_v + lambda (max_r H_{r,v} - H_v)`, `H` the entropy of `softmax(tau f_v T')`; keep the
//! `int(fraction V)` views of lowest score; they vote with the unperturbed prompt. The prompt is never changed.
//! Golden cases: `fga-stss-*`.

use super::groups::views_kept;
use super::tpt::cocoop_context;
use crate::Result;
use crate::methods::aggregate::{Tie, Vote, vote};
use crate::methods::bank::{Around, Directions, RadiusUnit, RandomPerturbation, TextBank};
use crate::methods::maple::MapleParameters;
use crate::methods::sam::NormScope;
use crate::methods::select::{Selector, ViewLogits};
use crate::methods::sharpness::{Original, Reduce, SharpnessSelector};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, Verified, ViewSet, no_presets};
use crate::model::Context;
use crate::options::mismatch;
use crate::prompt::{Affine, PromptKind};

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "stss",
    aliases: &["fga"],
    // Class embeddings serve with a bank of other prompts beside them.
    needs: Needs { bank: true, prompts: &["templates", "learned", "features", "maple", "cocoop"], ..Needs::CONTEXT },
    summary: "keeps the views whose entropy stays low around the prompt and lets them vote; FGA with a sapt prompt",
    docs: "\
What: the context p is perturbed R times by random directions of length radius; the text features T_r of all
perturbed contexts are computed once per prompt and class list (the text bank). For each view v: score = H_v
+ lambda * (max_r H_rv - H_v), with H_rv the entropy of softmax(exp(logit_scale) * f_v . T_r). The
int(fraction * V) views of lowest score vote with the unperturbed prompt, one vote each, ties by their mean
probability; the reported probability of a class is (votes + mean probability) / (voters + 1). With lambda =
1 the score is max_r H_rv. With radius = 0, perturbations = 0 or lambda = 0 it is TPT's and ZERO's confidence
filter.
A maple prompt is perturbed in its text tensors, the context and the deep prompts together, one norm over
all; its visual prompts stay. A cocoop context depends on the image: it is perturbed around context +
meta_net(feature of view 0).
Text features of other prompts, where they are given, stand in the place of perturbed contexts: radius, norm,
perturbations and directions are then without effect, and no text tower is needed.
Cost: one image-tower pass over the views; R * V * K dot products (below 1 % of it); R text-tower passes
once per class list; with a cocoop prompt R + 1 text-tower passes for every image.
Reference: Flatness-guided adaptation (FGA), ICLR 2026; first version as TLLA, arXiv 2501.18864.
",
    verified: Verified::Formula,
    presets: no_presets,
    build: Build::Episodic(|table| Ok(Box::new(Stss::new(Config::read(table)?)))),
    options: Config::OPTIONS,
};

crate::choices! {
    /// Which text features the kept views vote with.
    pub enum VoteText {
        /// Those at the context itself.
        Context = "context",
        /// The mean over the context and its perturbations.
        BankMean = "bank-mean",
    }
}

crate::options! {
    /// Options of STSS.
    pub struct Config for "stss" {
        /// Length of a perturbation, rho'.
        radius: f64 = 0.5, alias "rho", range at_least(0.0), from "paper";
        /// What the radius is measured in; relative transfers to contexts of other widths.
        radius_unit: RadiusUnit = RadiusUnit::Absolute, from "paper";
        /// Over which entries a perturbation has that length.
        norm: NormScope = NormScope::Whole, from "paper's symbol";
        /// Number of perturbed contexts, R; 4 already costs less than half a point.
        perturbations: usize = 16, range up_to(4096), from "paper";
        /// How directions are drawn; antithetic and orthogonal ones need fewer for the same noise.
        directions: Directions = Directions::Gaussian, from "paper";
        /// Weight of the sharpness.
        lambda: f64 = 1.0, range at_least(0.0), from "paper";
        /// How the losses around the prompt become one.
        reduce: Reduce = Reduce::Max, from "paper";
        /// Which quantile, for reduce = "quantile".
        quantile: f64 = 0.9, range between(0.0, 1.0), from "choice";
        /// Whether negative sharpness counts as zero.
        clamp: bool = false, from "paper's formula";
        include views_kept { fraction = 0.1, from "paper: 6 of 64"; };
        /// Number of views to keep; 0 means the fraction.
        count: usize = 0, from "choice";
        /// What happens to the un-augmented view.
        original: Original = Original::Pool, from "choice";
        /// How kept views decide.
        vote: Vote = Vote::Majority, alias "pool", from "paper: votes";
        /// Who decides a tie of a majority.
        tie: Tie = Tie::MeanProbability, from "choice";
        /// Which text features the kept views vote with.
        vote_text: VoteText = VoteText::Context, from "paper";
    }
}

impl Config {
    /// How the context is perturbed.
    pub fn perturbation(&self) -> RandomPerturbation {
        RandomPerturbation {
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

/// Options that say how perturbed contexts are made.
const OF_PERTURBATION: [&str; 5] = ["radius", "radius_unit", "norm", "perturbations", "directions"];

/// Refuses options that a ready text bank leaves without a meaning: what stands around the prompt is in the bank.
pub(crate) fn check_bank_options(spec: &AdapterSpec, given: &toml::Table) -> Result<()> {
    if spec.name != Config::NAME {
        return Ok(());
    }
    let of_perturbation = |key: &String| {
        let option = Config::OPTIONS.iter().find(|option| option.answers_to(key))?;
        OF_PERTURBATION.contains(&option.name).then_some(option.name)
    };
    match given.keys().find_map(of_perturbation) {
        Some(name) => {
            let reason = "has no effect with a ready text bank, which holds the text features around the prompt already; \
                          leave the option out, or make the bank with it";
            Err(crate::Error::config(format!("{}.{name}", Config::NAME), reason))
        }
        None => Ok(()),
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
    pub fn selector<'b>(&self, bank: &'b TextBank, scale: f32) -> SharpnessSelector<'b> {
        let o = &self.options;
        SharpnessSelector {
            bank,
            scale,
            lambda: o.lambda,
            score: o.score,
            reduce: o.reduce,
            quantile: o.quantile,
            clamp: o.clamp,
            original: o.original,
            fraction: o.fraction,
            count: o.count,
        }
    }
}

/// The prompt of a task, where it is one.
fn kind_of(task: &Task) -> Option<&PromptKind> {
    task.prompt.as_deref().map(|prompt| &prompt.kind)
}

impl Stss {
    /// The bank around the context that a CoCoOp prompt makes for one image.
    fn bank_of_image(
        &self,
        task: &Task,
        context: &Context,
        meta: &[Affine; 2],
        image: &ViewSet<'_>,
    ) -> Result<TextBank> {
        let side = task.text_side(Config::NAME)?;
        let start = cocoop_context(context, meta, image.features.row(0));
        let base = side.tower.encode(side.tokens, std::slice::from_ref(&start))?.swap_remove(0);
        let how = self.options.perturbation();
        let moved: Vec<Context> = how.draw(&start, task.seed).iter().map(|noise| how.apply(&start, noise)).collect();
        TextBank::encode(side, base, &moved)
    }
}

impl Adapter for Stss {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let towards = matches!(self.options.directions, Directions::Jacobian | Directions::Ascent);
        if towards && matches!(kind_of(task), Some(PromptKind::CoCoOp { .. } | PromptKind::Maple { .. })) {
            let expected = "gaussian, antithetic or orthogonal for a maple or cocoop prompt";
            return Err(mismatch(Config::NAME, "directions", expected, self.options.table()["directions"].clone()));
        }
        let bank = if let Some(ready) = &task.bank {
            TextBank::clone(ready)
        } else if self.options.is_flat() {
            TextBank::flat(task.text_features().clone())
        } else if let Some(PromptKind::CoCoOp { .. }) = kind_of(task) {
            // Every image has a context, and a bank, of its own.
            return task.text_side(Config::NAME).map(|_| ());
        } else if let Some(PromptKind::Maple { .. }) = kind_of(task) {
            let parameters = MapleParameters::of(task.prompt.as_deref(), Config::NAME)?;
            let side = task.text_side(Config::NAME)?;
            TextBank::around_maple(side, task.text_features(), &parameters, &self.options.perturbation(), task.seed)?
        } else {
            let at = Around {
                side: task.text_side(Config::NAME)?,
                base: task.text_features(),
                context: task.start_context(Config::NAME)?,
                scale: task.logit_scale,
                seed: task.seed,
                progress: task.progress.as_ref(),
            };
            let id = task.need_clip(Config::NAME)?.features_id();
            TextBank::load_or_encode(&at, &self.options.perturbation(), &id, task.store.as_deref())?
        };
        self.bank = Some(bank);
        Ok(())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let own;
        let bank = match (&self.bank, kind_of(task)) {
            (Some(bank), _) => bank,
            (None, Some(PromptKind::CoCoOp { context, meta, .. })) => {
                own = self.bank_of_image(task, context, meta, image)?;
                &own
            }
            (None, _) => return Err(crate::Error::method(Config::NAME, "prepare was not called")),
        };
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
