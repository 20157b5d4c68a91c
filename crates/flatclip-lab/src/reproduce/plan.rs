//! The plan of an item: every tuning run, statistic, evaluation, sweep and landscape of its recipe, each with its own folder.
//! Nothing is computed here.

use super::ReproduceRequest;
use super::recipe::{Recipe, RecipePrompt, RecipeRow};
use super::run::parts_folder;
use super::work::{EvaluateWork, LandscapeWork, PromptSource, StatisticsWork, Step, SweepWork, Work};
use crate::data::{Known, Split, open};
use crate::eval::Shard;
use crate::{TuneRequest, ViewChoice};
use flatclip::methods::{Kind, Registry};
use flatclip::settings::parse_settings;
use flatclip::{Error, Model, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All steps of an item.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order in which they run.
    pub steps: Vec<Step>,
    /// Rows that are not possible with this model or these inputs, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Missing data sets, each with the reason.
    pub absent: BTreeMap<String, String>,
}

/// A short name for a folder.
pub(super) fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c.to_ascii_lowercase() } else { '-' };
    let dashed: String = text.chars().map(plain).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// The name of a data set in a table header.
pub(super) fn data_title(spec: &str) -> String {
    let pocket = spec.strip_prefix("pocket:").map(|rest| rest.split(':').next().unwrap_or(rest).to_owned());
    pocket.or_else(|| Known::find(spec).map(|known| known.title.to_owned())).unwrap_or_else(|| spec.to_owned())
}

pub(super) struct Planner<'a> {
    pub(super) request: &'a ReproduceRequest,
    pub(super) recipe: Recipe,
    pub(super) model: &'a Model,
    pub(super) registry: Registry,
    plan: Plan,
    /// Indivisible steps in the order of their first use; they are assigned to the processes round-robin.
    dealt: Vec<PathBuf>,
}

impl Plan {
    /// The plan of a request for a model.
    pub fn new(request: &ReproduceRequest, model: &Model) -> Result<Self> {
        let recipe = request.effective()?;
        let registry = Registry::builtin();
        let mut planner = Planner { request, recipe, model, registry, plan: Self::default(), dealt: Vec::new() };
        planner.data();
        planner.rows()?;
        planner.sweeps()?;
        planner.landscapes()?;
        Ok(planner.plan)
    }
}

impl Planner<'_> {
    /// Finds missing data sets.
    fn data(&mut self) {
        let splits = self.recipe.datasets.iter().map(|data| (data, Split::Test));
        let source = Some((&self.recipe.source, Split::Train)).filter(|(name, _)| !name.is_empty());
        for (data, split) in splits.chain(source) {
            if let Err(error) = open(data, &self.request.opening(split)) {
                self.plan.absent.insert(format!("{data} ({})", split.name()), error.to_string());
            }
        }
    }

    fn rows(&mut self) -> Result<()> {
        let recipe = self.recipe.clone();
        let mut possible = Vec::new();
        for row in &recipe.rows {
            match self.unmet(&row.prompt, &row.method, &row.options)? {
                Some(reason) => self.plan.left_out.push((row.label.clone(), reason)),
                None => possible.push(row),
            }
        }
        for &seed in &recipe.seeds {
            for row in &possible {
                self.prompt(&row.prompt, "", seed)?;
            }
        }
        for data in &recipe.datasets {
            for &seed in &recipe.seeds {
                let here = |row: &&&RecipeRow| row.datasets.is_empty() || row.datasets.contains(data);
                possible.iter().filter(here).try_for_each(|row| self.evaluation(row, data, seed))?;
            }
        }
        Ok(())
    }

    fn evaluation(&mut self, row: &RecipeRow, data: &str, seed: u64) -> Result<()> {
        let spec = self.registry.adapter(&row.method)?;
        let prompt = self.prompt(&row.prompt, data, seed)?;
        let needs = spec.build(&row.options)?.needs().unwrap_or(spec.needs);
        let statistics = needs.statistics.then(|| self.statistics(&row.prompt, &prompt, seed));
        let dir = self.runs().join(slug(data)).join(slug(&row.label)).join(format!("seed-{seed}"));
        // If images are answered independently, every process evaluates its share of the images.
        let shard = self.request.shard.filter(|_| spec.kind() == Kind::Episodic);
        if shard.is_none() && !self.is_mine(&dir) {
            return Ok(());
        }
        let part = |s: Shard| parts_folder(&dir).join(format!("shard-{:04}-of-{:04}", s.index, s.count));
        let dir = shard.map_or(dir.clone(), part);
        let work = Work::Evaluate(EvaluateWork {
            row: row.label.clone(),
            data: data.to_owned(),
            prompt,
            method: spec.name.to_owned(),
            options: row.options.clone(),
            policy: policy(row.policy.as_deref().unwrap_or(&self.recipe.policy))?,
            views: self.request.views.or(row.views).or(self.recipe.views),
            seed,
            order_seed: (spec.kind() != Kind::Episodic).then_some(seed),
            statistics,
            shard,
        });
        self.push(format!("{} on {}, seed {seed}", row.label, data_title(data)), dir, work);
        Ok(())
    }

    /// Whether an indivisible step belongs to this process.
    fn is_mine(&mut self, dir: &Path) -> bool {
        let Some(shard) = self.request.shard else { return true };
        let place = self.dealt.iter().position(|known| known == dir).unwrap_or_else(|| {
            self.dealt.push(dir.to_path_buf());
            self.dealt.len() - 1
        });
        place % shard.count == shard.index
    }

    /// The folder for runs with this limit and these views: runs with few images do not collide with full ones.
    fn runs(&self) -> PathBuf {
        let written = self.request.recipe.limit;
        let limit = self.recipe.limit.filter(|limit| Some(*limit) != written).map(|n| format!("-limit-{n}"));
        let views = self.request.views.map(|n| format!("-views-{n}"));
        let prompts = self.prompts_folder().replace("prompts", "");
        self.request.out.join(format!("runs{}{}{prompts}", limit.unwrap_or_default(), views.unwrap_or_default()))
    }

    /// The source of a prompt for a data set; a tuning step is added for a learned one.
    fn prompt(&mut self, name: &str, data: &str, seed: u64) -> Result<PromptSource> {
        let prompt = self.recipe.prompt(name)?.clone();
        if let Some(file) = self.given(&prompt) {
            return Ok(PromptSource::File(file.clone()));
        }
        if prompt.tuner.is_empty() {
            let text = prompt.on.get(data).unwrap_or(&prompt.text);
            if let Some(place) = self.request.descriptions.as_ref().filter(|_| prompt.described) {
                let own = place.join(format!("{data}.json"));
                let file = if place.is_dir() { own } else { place.clone() };
                return Ok(PromptSource::Described(text.clone(), file));
            }
            return Ok(if text == "own" { PromptSource::OwnTemplates } else { PromptSource::Text(text.clone()) });
        }
        let dir = self.request.out.join(self.prompts_folder()).join(slug(name)).join(format!("seed-{seed}"));
        // With several processes, each tunes its share of the prompts; a row waits until its prompt exists.
        if self.is_mine(&dir) && !self.has(&dir) {
            let request = self.tune_request(&prompt, seed, &dir)?;
            request.check()?;
            self.push(format!("tune {name}, seed {seed}"), dir.clone(), Work::Tune(request));
        }
        Ok(PromptSource::Tuned(dir))
    }

    /// Prompts with overridden shots or epochs have separate folders, and so do the runs with them.
    fn prompts_folder(&self) -> String {
        let shots = self.request.shots.map(|n| format!("-shots-{n}"));
        let epochs = self.request.epochs.map(|n| format!("-epochs-{n}"));
        format!("prompts{}{}", shots.unwrap_or_default(), epochs.unwrap_or_default())
    }

    fn tune_request(&self, prompt: &RecipePrompt, seed: u64, dir: &Path) -> Result<TuneRequest> {
        let mut request = TuneRequest {
            method: prompt.tuner.clone(),
            model: self.model.name().to_owned(),
            data: self.recipe.source.clone(),
            seed,
            allow_fewer: prompt.allow_fewer,
            search: prompt.search,
            overrides: Some(prompt.settings.clone()).filter(|settings| !settings.is_empty()).into_iter().collect(),
            out: dir.to_path_buf(),
            shots: self.request.shots.or(prompt.shots),
            held_out: prompt.held_out.map(|n| self.request.shots.map_or(n, |shots| n.min(shots))),
            max_errors: self.request.max_errors,
            resume: true,
            ..TuneRequest::default()
        };
        if let Some(most) = self.request.epochs.filter(|&most| request.cost(1).is_ok_and(|cost| cost.epochs > most)) {
            request.overrides.push(parse_settings(&[format!("train.epochs={most}")])?);
        }
        Ok(request)
    }

    fn statistics(&mut self, name: &str, prompt: &PromptSource, seed: u64) -> PathBuf {
        let dir = self.request.out.join("statistics").join(slug(name)).join(format!("seed-{seed}"));
        if self.is_mine(&dir) && !self.has(&dir) {
            let (data, prompt) = (self.recipe.source.clone(), prompt.clone());
            let work = Work::Statistics(StatisticsWork { data, shots: 16, prompt, seed });
            self.push(format!("token statistics for {name}, seed {seed}"), dir.clone(), work);
        }
        dir
    }

    fn sweeps(&mut self) -> Result<()> {
        let recipe = self.recipe.clone();
        let (seed, mine) = (recipe.seeds[0], self.request.shard.is_none_or(|shard| shard.index == 0));
        for sweep in recipe.sweeps.iter().filter(|_| mine) {
            if let Some(reason) = self.unmet(&sweep.prompt, &sweep.method, &toml::Table::new())? {
                self.plan.left_out.push((sweep.title.clone(), reason));
                continue;
            }
            let some = if sweep.datasets.is_empty() { &recipe.datasets } else { &sweep.datasets };
            let data: Vec<String> = some.iter().filter(|name| recipe.datasets.contains(name)).cloned().collect();
            if data.is_empty() {
                continue;
            }
            let work = Work::Sweep(SweepWork {
                title: sweep.title.clone(),
                data,
                prompt: self.prompt(&sweep.prompt, "", seed)?,
                method: sweep.method.clone(),
                axes: sweep.axes.iter().map(|axis| axis.parse()).collect::<Result<_>>()?,
                policy: policy(&recipe.policy)?,
                seed,
            });
            let dir = PathBuf::from(format!("{}-sweep-{}", self.runs().display(), slug(&sweep.name)));
            self.push(format!("sweep: {}", sweep.title), dir, work);
        }
        Ok(())
    }

    fn landscapes(&mut self) -> Result<()> {
        let recipe = self.recipe.clone();
        let (seed, mine) = (recipe.seeds[0], self.request.shard.is_none_or(|shard| shard.index == 0));
        for surface in recipe.landscapes.iter().filter(|_| mine) {
            let mut reasons = surface.prompts.iter().map(|name| self.unmet(name, "stss", &toml::Table::new()));
            if let Some(reason) = reasons.find_map(Result::transpose).transpose()? {
                self.plan.left_out.push((surface.title.clone(), reason));
                continue;
            }
            let prompts = surface.prompts.iter().map(|name| Ok((name.clone(), self.prompt(name, "", seed)?)));
            let prompts = prompts.collect::<Result<Vec<_>>>()?;
            let training = surface.of == "training";
            let (data, shots) = if training { (recipe.source.clone(), surface.shots) } else { (surface.of.clone(), 0) };
            let title = surface.title.clone();
            let work = Work::Landscape(LandscapeWork { title, prompts, data, shots, points: surface.points, seed });
            let dir = self.request.out.join(format!("landscape-{}", slug(&surface.name)));
            self.push(format!("landscape: {}", surface.title), dir, work);
        }
        Ok(())
    }

    fn push(&mut self, name: String, dir: PathBuf, work: Work) {
        self.plan.steps.push(Step { name, dir, work });
    }

    fn has(&self, dir: &Path) -> bool {
        self.plan.steps.iter().any(|step| step.dir == dir)
    }
}

fn policy(text: &str) -> Result<ViewChoice> {
    match text {
        "published" => Ok(ViewChoice::Published),
        name => Ok(ViewChoice::Policy(name.parse()?)),
    }
}

/// The names that a user asked for, compared as folder names.
pub(super) struct Filter(Vec<String>);

impl Filter {
    /// Refuses names that select nothing.
    pub(super) fn new<'a>(
        what: &'static str,
        asked: impl IntoIterator<Item = &'a String>,
        known: impl Iterator<Item = String>,
    ) -> Result<Self> {
        let (known, asked): (Vec<String>, Vec<&String>) = (known.collect(), asked.into_iter().collect());
        match asked.iter().find(|name| !known.iter().any(|other| slug(other) == slug(name))) {
            Some(name) => Err(Error::unknown(what, name, known.iter().map(String::as_str))),
            None => Ok(Self(asked.iter().map(|name| slug(name)).collect())),
        }
    }

    /// Whether one of these names was asked for; without any, all are.
    pub(super) fn picks(&self, names: [String; 2]) -> bool {
        self.0.is_empty() || names.iter().any(|name| self.0.contains(&slug(name)))
    }
}
