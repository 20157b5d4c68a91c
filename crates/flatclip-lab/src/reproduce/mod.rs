//! Reproduces tables, ablations and figures of a paper: a [`Recipe`] becomes a [`Plan`] of tuning runs, statistics,
//! evaluations, sweeps and landscapes; steps with valid results are skipped, the others are run or resumed, and the results
//! are compared with the published ones.
//!
//! | in the item's folder | |
//! |---|---|
//! | `prompts/NAME/seed-N` | tuning runs |
//! | `statistics/NAME/seed-N` | token statistics for PromptAlign |
//! | `runs/DATA/ROW/seed-N` | evaluations; `runs-limit-50` for runs with a limit of 50 images, `seed-N.parts` for shards |
//! | `runs-sweep-NAME`, `landscape-NAME` | grids and surfaces |
//! | `table.md`, `.tex`, `.csv`, `results.json`, `report.html` | final results |
//!
//! The folder of a finished step has a `step.json`: a digest of everything the result depends on, and digests of its files.

mod efficiency;
mod estimate;
mod other_tables;
mod page;
mod plan;
mod recipe;
mod requirements;
mod results;
mod run;
mod step_store;
mod work;

pub use efficiency::BENCH;
pub use estimate::{Estimate, prices};
pub use plan::Plan;
pub use recipe::{Recipe, RecipeLandscape, RecipePrompt, RecipeRow, RecipeSweep};
pub use results::Results;
pub use step_store::State;
pub use work::{EvaluateWork, LandscapeWork, PromptSource, StatisticsWork, Step, SweepWork, Work};

use crate::data::{OpenOptions, Split};
use crate::eval::Shard;
use crate::run_dir::RunDir;
use flatclip::{Error, Hint, Model, Progress, Result};
use plan::Filter;
use std::collections::BTreeMap;
use std::path::PathBuf;
use step_store::StepStore;

/// A request to reproduce an item, or a part of it.
#[derive(Clone, Debug, Default)]
pub struct ReproduceRequest {
    /// The item.
    pub recipe: Recipe,
    /// Where the data sets are.
    pub open: OpenOptions,
    /// Quirks of published code that the data sets reproduce, as recorded in runs.
    pub compat: Vec<String>,
    /// Maximum images per data set.
    pub limit: Option<usize>,
    /// Overrides the recipe's seeds.
    pub seeds: Vec<u64>,
    /// Overrides the number of views.
    pub views: Option<usize>,
    /// Only rows of these labels or methods; all when empty.
    pub methods: Vec<String>,
    /// Only these data sets; all when empty.
    pub datasets: Vec<String>,
    /// Overrides the number of training images per class.
    pub shots: Option<usize>,
    /// Maximum epochs of tuning.
    pub epochs: Option<usize>,
    /// The shard of this process.
    pub shard: Option<Shard>,
    /// The user's prompts, which replace the recipe's, by name.
    pub prompts: BTreeMap<String, PathBuf>,
    /// Class embeddings that replace the prompt `template` and, for a model without a text tower, every text prompt.
    pub text_features: Option<PathBuf>,
    /// Folder with generated images for DiffTPT.
    pub generated: Option<PathBuf>,
    /// Class descriptions of each data set: `FOLDER/NAME.json`, or one file for all.
    pub descriptions: Option<PathBuf>,
    /// Maximum unreadable images to skip in each step.
    pub max_errors: usize,
    /// Folder of the feature cache; `None` disables it.
    pub cache: Option<PathBuf>,
    /// The item's folder.
    pub out: PathBuf,
}

impl ReproduceRequest {
    /// The whole item into this folder.
    pub fn new(recipe: Recipe, out: impl Into<PathBuf>) -> Self {
        Self { recipe, max_errors: 100, out: out.into(), ..Self::default() }
    }

    /// The recipe with the overrides of the request.
    pub(crate) fn effective(&self) -> Result<Recipe> {
        let mut recipe = self.recipe.clone();
        if self.limit == Some(0) || self.views == Some(0) {
            return Err(Error::config("limit and views", "expected at least 1, found 0"));
        }
        recipe.limit = self.limit.or(recipe.limit);
        if !self.seeds.is_empty() {
            recipe.seeds.clone_from(&self.seeds);
        }
        let names = |data: &String| [data.clone(), plan::data_title(data)];
        let datasets = Filter::new("data set of the recipe", &self.datasets, recipe.datasets.iter().flat_map(names))?;
        recipe.datasets.retain(|data| datasets.picks(names(data)));
        recipe.in_domain.retain(|data| datasets.picks(names(data)));
        let names = |row: &RecipeRow| [row.label.clone(), row.method.clone()];
        let rows = Filter::new("row or method of the recipe", &self.methods, recipe.rows.iter().flat_map(names))?;
        recipe.rows.retain(|row| rows.picks(names(row)));
        let known = recipe.prompts.iter().map(|prompt| prompt.name.clone());
        Filter::new("prompt of the recipe", self.prompts.keys(), known)?;
        Ok(recipe)
    }

    fn opening(&self, split: Split) -> OpenOptions {
        OpenOptions { split, ..self.open.clone() }
    }
}

/// The result of [`reproduce`].
#[derive(Debug)]
pub struct Reproduced {
    /// The plan.
    pub plan: Plan,
    /// Number of steps that were done before.
    pub skipped: usize,
    /// Number of steps that this call did.
    pub done: usize,
    /// Steps that could not be done, each with the reason.
    pub open: Vec<(String, String)>,
    /// The tables of the available results.
    pub results: Results,
    /// The page.
    pub report: PathBuf,
}

/// The plan, and the state of each step.
pub fn plan(request: &ReproduceRequest, model: &Model) -> Result<(Plan, Vec<State>)> {
    let (plan, store) = (Plan::new(request, model)?, StepStore::new(request, model)?);
    let will_be = |step: &Step| {
        let made = |source: &&PromptSource| matches!(source, PromptSource::Tuned(dir) if plan.steps.iter().any(|s| s.dir == *dir));
        step.prompts().iter().all(|source| made(source) || source.file().is_none_or(|file| file.exists()))
    };
    let state = |step: &Step| match store.state(step)? {
        // The prompt is made by an earlier step of the same plan.
        State::Waits(_) if will_be(step) => store.state_of_data(step),
        state => Ok(state),
    };
    let states = plan.steps.iter().map(state).collect::<Result<_>>()?;
    Ok((plan, states))
}

/// Runs the missing steps of an item, and writes its tables and page from the available results. After an interruption,
/// finished steps and the partial results of the current one remain; the same call resumes.
pub fn reproduce(request: &ReproduceRequest, model: &Model, progress: &dyn Progress) -> Result<Reproduced> {
    let plan = Plan::new(request, model)?;
    let store = StepStore::new(request, model)?;
    let _lock = request.shard.is_none().then(|| RunDir::claim(&request.out)).transpose()?;
    let (mut skipped, mut done, mut open) = (0, 0, Vec::new());
    let total = plan.steps.len();
    for (number, step) in plan.steps.iter().enumerate() {
        match store.state(step)? {
            State::Done => skipped += 1,
            State::Waits(reason) | State::Absent(reason) => open.push((step.name.clone(), reason)),
            State::Begun | State::Ready => {
                progress.note(&format!("{} of {total}: {}", number + 1, step.name));
                store.run(step, progress)?;
                done += 1;
            }
        }
        if progress.cancelled() {
            let text = format!("stopped after {} of {total} steps", number + 1);
            return Err(Error::Interrupted(text).with_hint(Hint::Again("reproduce")));
        }
    }
    let results = Results::read(&store, &plan)?;
    let report = results.write(&request.out)?;
    Ok(Reproduced { plan, skipped, done, open, results, report })
}

#[cfg(test)]
mod tests;
