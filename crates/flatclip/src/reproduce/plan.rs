//! The plan of an item: every tune, statistic, evaluation, sweep and landscape that its recipe asks for, each with a folder of
//! its own. Nothing is computed here.

use super::ReproduceRequest;
use super::recipe::{Recipe, RecipePrompt, RecipeRow};
use super::run::parts_folder;
use crate::data::{Known, Split, open};
use crate::eval::{GridAxis, Shard};
use crate::facade::{Model, ViewChoice};
use crate::methods::{AdapterSpec, Kind, Registry, tuners};
use crate::model::ImageConfig;
use crate::settings::parse_settings;
use crate::train::TuneRequest;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What stands for the classes in a step.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptSource {
    /// A text with `{}`, or the name of a known set of templates.
    Text(String),
    /// Each data set's own templates.
    OwnTemplates,
    /// Templates (`own`, a text or a known set) and a file of sentences that describe the classes.
    Described(String, PathBuf),
    /// What this folder's tuning run learned.
    Tuned(PathBuf),
    /// A file of the user's.
    File(PathBuf),
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Work {
    /// Learns a prompt on the source.
    Tune(TuneRequest),
    /// Token statistics of source images, for PromptAlign.
    Statistics(StatisticsWork),
    /// A row on a data set.
    Evaluate(EvaluateWork),
    /// A grid of settings.
    Sweep(SweepWork),
    /// Loss surfaces.
    Landscape(LandscapeWork),
}

/// See [`Work::Statistics`].
#[derive(Clone, Debug)]
pub struct StatisticsWork {
    /// The source.
    pub data: String,
    /// Images per class.
    pub shots: usize,
    /// Its visual prompts are in the tower.
    pub prompt: PromptSource,
    /// Seed of the draw.
    pub seed: u64,
}

/// See [`Work::Evaluate`].
#[derive(Clone, Debug)]
pub struct EvaluateWork {
    /// Label of the row.
    pub row: String,
    /// The data set.
    pub data: String,
    /// What stands for its classes.
    pub prompt: PromptSource,
    /// The adapter.
    pub method: String,
    /// Its options.
    pub options: toml::Table,
    /// How views are made.
    pub policy: ViewChoice,
    /// How many; the method's own number when nothing is said.
    pub views: Option<usize>,
    /// Seed of views and method.
    pub seed: u64,
    /// Seed of the stream's order, for methods that learn from it.
    pub order_seed: Option<u64>,
    /// Folder of the statistics, for PromptAlign.
    pub statistics: Option<PathBuf>,
    /// Part of the stream; never for methods that learn from it.
    pub shard: Option<Shard>,
}

/// See [`Work::Sweep`].
#[derive(Clone, Debug)]
pub struct SweepWork {
    /// What it shows.
    pub title: String,
    /// The data sets.
    pub data: Vec<String>,
    /// What stands for their classes.
    pub prompt: PromptSource,
    /// The adapter.
    pub method: String,
    /// What varies.
    pub axes: Vec<GridAxis>,
    /// How views are made.
    pub policy: ViewChoice,
    /// Seed of views and method.
    pub seed: u64,
}

/// See [`Work::Landscape`].
#[derive(Clone, Debug)]
pub struct LandscapeWork {
    /// What it shows.
    pub title: String,
    /// Names and prompts, side by side.
    pub prompts: Vec<(String, PromptSource)>,
    /// The data: the source for the training loss, else a data set of whose first picture views are shown.
    pub data: String,
    /// Images per class, for the training loss; 0 for views of a picture.
    pub shots: usize,
    /// Grid points along each axis.
    pub points: usize,
    /// Seed of directions, shots and views.
    pub seed: u64,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// For people.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
    /// What it does.
    pub work: Work,
}

/// All steps of an item.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order in which they run.
    pub steps: Vec<Step>,
    /// Rows that this model or these inputs cannot give, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Data sets that are not there, each with the reason.
    pub absent: BTreeMap<String, String>,
}

/// A short name for a folder.
pub(super) fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c.to_ascii_lowercase() } else { '-' };
    let dashed: String = text.chars().map(plain).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// A data set as in a table's head.
pub(super) fn data_title(spec: &str) -> String {
    let pocket = spec.strip_prefix("pocket:").map(|rest| rest.split(':').next().unwrap_or(rest).to_owned());
    pocket.or_else(|| Known::find(spec).map(|known| known.title.to_owned())).unwrap_or_else(|| spec.to_owned())
}

impl PromptSource {
    /// The file that must be there before the step can run.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Text(_) | Self::OwnTemplates => None,
            Self::Tuned(dir) => Some(dir.join("prompt.safetensors")),
            Self::File(path) | Self::Described(_, path) => Some(path.clone()),
        }
    }
}

/// Makes the plan.
pub(super) struct Planner<'a> {
    request: &'a ReproduceRequest,
    recipe: Recipe,
    model: &'a Model,
    registry: Registry,
    plan: Plan,
    tunes: usize,
}

impl Plan {
    /// The plan of a request for a model.
    pub fn new(request: &ReproduceRequest, model: &Model) -> Result<Self> {
        let recipe = request.effective()?;
        let registry = Registry::builtin();
        let mut planner = Planner { request, recipe, model, registry, plan: Self::default(), tunes: 0 };
        planner.data();
        planner.rows()?;
        planner.sweeps()?;
        planner.landscapes()?;
        Ok(planner.plan)
    }
}

impl Planner<'_> {
    /// Which data sets are not there.
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
            match self.obstacle(&row.prompt, &row.method, &row.options)? {
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
        let statistics = match spec.build(&row.options)?.needs().unwrap_or(spec.needs).statistics {
            true => Some(self.statistics(&row.prompt, &prompt, seed)),
            false => None,
        };
        let (shard, mine) = self.share(spec);
        if !mine {
            return Ok(());
        }
        let dir = self.runs().join(slug(data)).join(slug(&row.label)).join(format!("seed-{seed}"));
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

    /// The part of a run that this process does: of a stream whose pictures are answered one by one, its share of the
    /// pictures; another is one process's as a whole.
    fn share(&mut self, spec: &AdapterSpec) -> (Option<Shard>, bool) {
        match self.request.shard {
            Some(shard) if spec.kind() == Kind::Episodic => (Some(shard), true),
            Some(shard) => {
                self.tunes += 1;
                (None, self.tunes % shard.count == shard.index)
            }
            None => (None, true),
        }
    }

    /// Where runs of these pictures and views lie: a quick look with a few pictures does not stand in the way of the whole.
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
        if !self.has(&dir) {
            self.tunes += 1;
            // With several processes, each tunes its share; a row waits until its prompt has been brought.
            let mine = self.request.shard.is_none_or(|shard| self.tunes % shard.count == shard.index);
            if mine {
                let request = self.tune_request(&prompt, seed, &dir)?;
                request.check()?;
                self.push(format!("tune {name}, seed {seed}"), dir.clone(), Work::Tune(request));
            }
        }
        Ok(PromptSource::Tuned(dir))
    }

    /// Prompts of fewer shots or epochs lie apart from the recipe's own, and so do the runs with them.
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
            shots: self.request.shots.or(prompt.shots),
            held_out: prompt.held_out.map(|n| self.request.shots.map_or(n, |shots| n.min(shots))),
            seed,
            allow_fewer: prompt.allow_fewer,
            max_errors: self.request.max_errors,
            search: prompt.search,
            overrides: if prompt.settings.is_empty() { Vec::new() } else { vec![prompt.settings.clone()] },
            out: dir.to_path_buf(),
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
        if !self.has(&dir) {
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
            if let Some(reason) = self.obstacle(&sweep.prompt, &sweep.method, &toml::Table::new())? {
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
            let mut reasons = surface.prompts.iter().map(|name| self.obstacle(name, "stss", &toml::Table::new()));
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

    /// Why this model with these inputs cannot give a row.
    fn obstacle(&self, prompt: &str, method: &str, options: &toml::Table) -> Result<Option<String>> {
        let spec = self.registry.adapter(method)?;
        let needs = spec.build(options)?.needs().unwrap_or(spec.needs);
        let source = self.recipe.prompt(prompt)?;
        let config = self.model.config();
        let given = self.given(source);
        let is_features = given.is_some_and(|path| is_features(path));
        let resnet = !matches!(config.image, ImageConfig::Vit { .. });
        let kind = self.prompt_kind(source)?;
        let vit = needs.vit || (given.is_none() && kind.vit);
        Ok(if vit && resnet {
            Some("needs a vision transformer, this image tower is a ResNet".into())
        } else if needs.generated && self.request.generated.is_none() {
            Some("needs pictures that a diffusion model made".into())
        } else if config.text.is_none() && !is_features {
            Some(format!("needs the text tower for the prompt `{prompt}`, this checkpoint has none"))
        } else if is_features && needs.text_tower {
            Some("perturbs or tunes a prompt, but only class embeddings were given".into())
        } else if given.is_none() && !needs.prompts.contains(&kind.name) {
            Some(format!("{} does not work with {} prompts", spec.name, kind.name))
        } else {
            None
        })
    }

    /// The user's own file for a prompt.
    fn given(&self, prompt: &RecipePrompt) -> Option<&PathBuf> {
        let stands = prompt.name == "template" || self.model.config().text.is_none();
        let features = self.request.text_features.as_ref().filter(|_| prompt.tuner.is_empty() && stands);
        self.request.prompts.get(&prompt.name).or(features)
    }

    fn prompt_kind(&self, prompt: &RecipePrompt) -> Result<KindOfPrompt> {
        if prompt.tuner.is_empty() {
            return Ok(KindOfPrompt { name: "templates", vit: false });
        }
        let name = tuners::preset(&prompt.tuner).map_or(prompt.tuner.as_str(), |preset| preset.method);
        let spec = self.registry.tuner(name)?;
        let name = match spec.table {
            "coop" | "sapt" => "learned",
            "gda-clip" => "linear",
            table => table,
        };
        Ok(KindOfPrompt { name, vit: spec.vit })
    }
}

/// What a tuner's prompt will be.
struct KindOfPrompt {
    name: &'static str,
    vit: bool,
}

/// Whether a file holds class embeddings; what it really is shows when it is read.
fn is_features(path: &Path) -> bool {
    crate::prompt::read_text_features(path).is_ok()
}

fn policy(text: &str) -> Result<ViewChoice> {
    match text {
        "published" => Ok(ViewChoice::Published),
        name => Ok(ViewChoice::Policy(name.parse()?)),
    }
}

/// Refuses a name of a filter that picks nothing.
pub(super) fn picked<'a>(
    what: &'static str,
    asked: &[String],
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<()> {
    let plain = |text: &str| slug(text);
    for name in asked {
        if !known.clone().any(|other| plain(other) == plain(name)) {
            return Err(Error::unknown(what, name, known));
        }
    }
    Ok(())
}
