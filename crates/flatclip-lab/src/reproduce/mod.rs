//! Tables, ablations and figures of a paper by one call: a [`Recipe`] becomes a [`Plan`] of tunes, statistics, evaluations,
//! sweeps and landscapes; what is there and valid is skipped, the rest is run or resumed, and the results are compared with
//! the published ones.
//!
//! | in the item's folder | |
//! |---|---|
//! | `prompts/NAME/seed-N` | tuning runs |
//! | `statistics/NAME/seed-N` | token statistics for PromptAlign |
//! | `runs/DATA/ROW/seed-N` | evaluations; `runs-limit-50` for those of a quick look, `seed-N.parts` for shards |
//! | `runs-sweep-NAME`, `landscape-NAME` | grids and surfaces |
//! | `table.md`, `.tex`, `.csv`, `results.json`, `report.html` | the end |
//!
//! Every step's folder has a `step.json` once it is done: a digest of all that the result depends on, and of its files.

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
use flatclip::Model;
use flatclip::error::Hint;
use flatclip::progress::Progress;
use flatclip::{Error, Result};
use plan::picked;
use std::collections::BTreeMap;
use std::path::PathBuf;
use step_store::StepStore;

/// What of an item is made, from what, and where.
#[derive(Clone, Debug)]
pub struct ReproduceRequest {
    /// The item.
    pub recipe: Recipe,
    /// Where data sets lie.
    pub open: OpenOptions,
    /// Oddities of published code that the data sets reproduce, for the record.
    pub compat: Vec<String>,
    /// Only so many images of each data set.
    pub limit: Option<usize>,
    /// Other seeds than the recipe's.
    pub seeds: Vec<u64>,
    /// Another number of views.
    pub views: Option<usize>,
    /// Only rows of these labels or methods; all when empty.
    pub methods: Vec<String>,
    /// Only these data sets; all when empty.
    pub datasets: Vec<String>,
    /// Another number of training images per class.
    pub shots: Option<usize>,
    /// At most so many passes over them.
    pub epochs: Option<usize>,
    /// Only this process's part.
    pub shard: Option<Shard>,
    /// Prompts of the user's instead of the recipe's, by name.
    pub prompts: BTreeMap<String, PathBuf>,
    /// Class embeddings instead of the prompt `template`, and, with a model that has no text tower, of every prompt of texts.
    pub text_features: Option<PathBuf>,
    /// Folder with generated images for DiffTPT.
    pub generated: Option<PathBuf>,
    /// Sentences that describe the classes of each data set: `FOLDER/NAME.json`, or one file for all.
    pub descriptions: Option<PathBuf>,
    /// Unreadable images to skip, in each step.
    pub max_errors: usize,
    /// Folder in which features are kept between steps; `None` keeps nothing.
    pub cache: Option<PathBuf>,
    /// The item's folder.
    pub out: PathBuf,
}

impl ReproduceRequest {
    /// The whole item into this folder.
    pub fn new(recipe: Recipe, out: impl Into<PathBuf>) -> Self {
        Self {
            recipe,
            open: OpenOptions::default(),
            compat: Vec::new(),
            limit: None,
            seeds: Vec::new(),
            views: None,
            methods: Vec::new(),
            datasets: Vec::new(),
            shots: None,
            epochs: None,
            shard: None,
            prompts: BTreeMap::new(),
            text_features: None,
            generated: None,
            descriptions: None,
            max_errors: 100,
            cache: None,
            out: out.into(),
        }
    }

    /// The recipe with the request's own choices in it.
    pub(crate) fn effective(&self) -> Result<Recipe> {
        let mut recipe = self.recipe.clone();
        if self.limit == Some(0) || self.views == Some(0) {
            return Err(Error::config("limit and views", "expected at least 1, found 0"));
        }
        recipe.limit = self.limit.or(recipe.limit);
        if !self.seeds.is_empty() {
            recipe.seeds.clone_from(&self.seeds);
        }
        let named: Vec<String> =
            recipe.datasets.iter().flat_map(|data| [data.clone(), plan::data_title(data)]).collect();
        picked("data set of the recipe", &self.datasets, named.iter().map(String::as_str))?;
        let wanted = |data: &String| {
            let names = [plan::slug(data), plan::slug(&plan::data_title(data))];
            self.datasets.is_empty() || self.datasets.iter().any(|asked| names.contains(&plan::slug(asked)))
        };
        recipe.datasets.retain(wanted);
        recipe.in_domain.retain(wanted);
        let rows: Vec<String> = recipe.rows.iter().flat_map(|row| [row.label.clone(), row.method.clone()]).collect();
        picked("row or method of the recipe", &self.methods, rows.iter().map(String::as_str))?;
        recipe.rows.retain(|row| {
            let names = [plan::slug(&row.label), plan::slug(&row.method)];
            self.methods.is_empty() || self.methods.iter().any(|asked| names.contains(&plan::slug(asked)))
        });
        let known = recipe.prompts.iter().map(|prompt| prompt.name.as_str());
        picked("prompt of the recipe", &self.prompts.keys().cloned().collect::<Vec<_>>(), known)?;
        Ok(recipe)
    }

    fn opening(&self, split: Split) -> OpenOptions {
        OpenOptions { split, ..self.open.clone() }
    }
}

/// What a call of [`reproduce`] did.
#[derive(Debug)]
pub struct Reproduced {
    /// The plan.
    pub plan: Plan,
    /// Steps that were done before.
    pub skipped: usize,
    /// Steps that were done now.
    pub done: usize,
    /// Steps that could not be done, each with the reason.
    pub open: Vec<(String, String)>,
    /// The tables; of what is there.
    pub results: Results,
    /// The page.
    pub report: PathBuf,
}

/// The plan, and how far each of its steps is.
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

/// Makes what is missing of an item, and its tables and page from what is there. An interrupted call leaves every finished
/// step and the beginning of the next; the same call resumes.
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
