//! Prompts tuned on a few photos: CoOp and SAPT from the same words, shots, steps and learning rate.

use super::protocol::{self, Protocol, RATES};
use crate::data::{self, Dataset, OpenOptions, Split};
use crate::train::{LossAndAccuracy, RADII, TuneRequest};
use crate::tune;
use flatclip::Model;
use flatclip::progress::Progress;
use flatclip::prompt::Prompt;
use flatclip::settings::parse_settings;
use flatclip::{Error, Result};
use rayon::prelude::*;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a prompt was tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Tuner {
    /// With the rule's learning rate.
    #[serde(rename = "CoOp")]
    Coop,
    /// With the rule's learning rate and a radius that was chosen.
    #[serde(rename = "SAPT")]
    Sapt,
    /// With a learning rate that was chosen.
    #[serde(rename = "CoOp, lr chosen")]
    CoopChosen,
}

impl Tuner {
    pub(super) fn name(self) -> &'static str {
        match self {
            Tuner::Coop => "CoOp",
            Tuner::Sapt => "SAPT",
            Tuner::CoopChosen => "CoOp, lr chosen",
        }
    }

    /// Its part of a folder's name: two rows share the method `coop`, and the factor 1.
    fn folder(self) -> &'static str {
        match self {
            Tuner::Coop => "coop",
            Tuner::Sapt => "sapt",
            Tuner::CoopChosen => "coop-rate",
        }
    }

    /// The settings that are tried: factors on the rule's rate or shares of the context's norm.
    fn grid(self) -> &'static [f64] {
        match self {
            Tuner::Coop => &[1.0],
            Tuner::Sapt => &RADII,
            Tuner::CoopChosen => &RATES,
        }
    }
}

/// One tuned prompt.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tuned {
    pub(super) tuner: Tuner,
    pub(super) shots: usize,
    pub(super) seed: u64,
    /// The value of the grid.
    pub(super) setting: f64,
    held_out_accuracy: f32,
    held_out_loss: f32,
    #[serde(skip)]
    pub(super) prompt: Prompt,
}

/// What one setting gave on held-out photos, over the draws that choose.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tried {
    pub(super) tuner: Tuner,
    pub(super) shots: usize,
    pub(super) setting: f64,
    pub(super) accuracy: f64,
    pub(super) loss: f64,
    pub(super) chosen: bool,
}

/// All prompts of a model, and how their settings were chosen.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    pub(super) tuned: Vec<Tuned>,
    pub(super) tried: Vec<Tried>,
}

struct Bench<'a> {
    model: &'a Model,
    photos: Dataset,
    protocol: &'a Protocol,
    /// The rule's learning rate.
    rate: f64,
    dir: &'a Path,
}

pub(super) fn tune_all(model: &Model, protocol: &Protocol, dir: &Path, progress: &dyn Progress) -> Result<Prompts> {
    let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
    let photos = data::open(&protocol.recipe.source, &options)?;
    let bench = Bench { model, photos, protocol, rate: protocol::learning_rate(model), dir };
    let tuners: &[Tuner] =
        if protocol.choose_rate { &[Tuner::Coop, Tuner::Sapt, Tuner::CoopChosen] } else { &[Tuner::Coop, Tuner::Sapt] };
    let mut first: Vec<Job> = Vec::new();
    for &shots in protocol.shots {
        for &tuner in tuners {
            let seeds = if tuner.grid().len() == 1 { protocol.seeds } else { protocol.choosing };
            let settings = tuner.grid().iter();
            first.extend(settings.flat_map(|&s| (1..=seeds).map(move |seed| Job { tuner, shots, seed, setting: s })));
        }
    }
    let tried = bench.run(&first, "tuning", progress)?;
    let mut prompts = Prompts::default();
    let mut rest: Vec<Job> = Vec::new();
    for &shots in protocol.shots {
        for &tuner in tuners {
            let setting = prompts.choose(&tried, tuner, shots)?;
            let mine = tried.iter().filter(|t| (t.tuner, t.shots, t.setting) == (tuner, shots, setting));
            let before = prompts.tuned.len();
            prompts.tuned.extend(mine.cloned());
            let missing = (prompts.tuned.len() - before) as u64 + 1..=protocol.seeds;
            rest.extend(missing.map(|seed| Job { tuner, shots, seed, setting }));
        }
    }
    prompts.tuned.extend(bench.run(&rest, "tuning with what was chosen", progress)?);
    prompts.tuned.sort_by_key(|t| (t.shots, t.tuner as usize, t.seed));
    Ok(prompts)
}

#[derive(Clone, Copy)]
struct Job {
    tuner: Tuner,
    shots: usize,
    seed: u64,
    setting: f64,
}

impl Bench<'_> {
    fn run(&self, jobs: &[Job], stage: &str, progress: &dyn Progress) -> Result<Vec<Tuned>> {
        progress.start(stage, Some(jobs.len() as u64));
        let done = AtomicU64::new(0);
        let run = |job: &Job| {
            let tuned = self.tune(*job);
            progress.advance(done.fetch_add(1, Ordering::Relaxed) + 1, "");
            if progress.cancelled() { Err(super::stopped()) } else { tuned }
        };
        let tuned = jobs.par_iter().map(run).collect();
        progress.finish();
        tuned
    }

    /// The item's tuning with these shots and this setting.
    fn tune(&self, job: Job) -> Result<Tuned> {
        let Job { tuner, shots, seed, setting } = job;
        let (method, rate) = match tuner {
            Tuner::Coop => ("coop", self.rate),
            Tuner::CoopChosen => ("coop", self.rate * setting),
            Tuner::Sapt => ("sapt", self.rate),
        };
        let mut own = vec![format!("train.epochs={}", self.protocol.epochs(shots)), format!("train.lr={rate:?}")];
        if tuner == Tuner::Sapt {
            own.push(format!("sapt.radius={setting:?}"));
        }
        let recipe = &self.protocol.recipe;
        let out = self.dir.join(format!("{}-{setting}-shots-{shots}-seed-{seed}", tuner.folder()));
        let mut request = TuneRequest {
            shots: Some(shots),
            // Both are judged on the same photos.
            held_out: recipe.prompt("sapt")?.held_out,
            search: false,
            ..recipe.prompt(method)?.tuning(&recipe.source, seed, &out)
        };
        request.overrides.push(parse_settings(&own)?);
        let summary = tune(&request, self.model, &self.photos, &())?;
        let LossAndAccuracy { loss, accuracy } =
            summary.held_out.unwrap_or(LossAndAccuracy { loss: f32::INFINITY, accuracy: 0.0 });
        let prompt = Prompt::load(&out.join(&summary.prompt))?;
        Ok(Tuned { tuner, shots, seed, setting, held_out_accuracy: accuracy, held_out_loss: loss, prompt })
    }
}

impl Prompts {
    /// Highest accuracy on held-out photos, then lowest loss, then the smaller setting: as a search of the radius does.
    fn choose(&mut self, tuned: &[Tuned], tuner: Tuner, shots: usize) -> Result<f64> {
        let mut rows: Vec<Tried> = Vec::new();
        for &setting in tuner.grid() {
            let mine = || tuned.iter().filter(|t| (t.tuner, t.shots, t.setting) == (tuner, shots, setting));
            let mean =
                |of: &dyn Fn(&Tuned) -> f32| mine().map(|t| f64::from(of(t))).sum::<f64>() / mine().count() as f64;
            let (accuracy, loss) = (mean(&|t| t.held_out_accuracy), mean(&|t| t.held_out_loss));
            rows.push(Tried { tuner, shots, setting, accuracy, loss, chosen: false });
        }
        let better = |a: &Tried, b: &Tried| a.accuracy > b.accuracy || (a.accuracy == b.accuracy && a.loss < b.loss);
        let best = (0..rows.len()).reduce(|best, i| if better(&rows[i], &rows[best]) { i } else { best });
        let best = best.ok_or_else(|| Error::config(tuner.name(), "no setting was tried"))?;
        rows[best].chosen = true;
        let setting = rows[best].setting;
        self.tried.extend(rows);
        Ok(setting)
    }

    /// The prompts of one row, by seed.
    pub(super) fn of(&self, tuner: Tuner, shots: usize) -> Vec<&Tuned> {
        self.tuned.iter().filter(|t| t.tuner == tuner && t.shots == shots).collect()
    }
}
