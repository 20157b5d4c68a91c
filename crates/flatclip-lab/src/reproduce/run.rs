//! Runs one step through the facade, resuming the partial results of an earlier process.

use super::step_store::{STATISTICS, StepStore, split_of};
use super::work::{EvaluateWork, LandscapeWork, StatisticsWork, Step, SweepWork, Work};
use crate::data::Split;
use crate::eval::merge;
use crate::report::folders_in;
use crate::{
    EvaluateRequest, LandscapeOf, LandscapeRequest, NamedPrompt, PromptChoice, StatisticsRequest, SweepRequest,
    evaluate, landscape, statistics, sweep, tune,
};
use flatclip::{Error, Progress, Result, load_statistics, save_statistics};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl StepStore<'_> {
    /// Runs the step and marks it as done.
    pub(super) fn run(&self, step: &Step, progress: &dyn Progress) -> Result<()> {
        self.repair(step)?;
        match &step.work {
            Work::Tune(request) => {
                let train = self.dataset(&request.data, Split::Train)?;
                tune(request, self.model, &train, progress)?;
            }
            Work::Statistics(work) => self.statistics(work, &step.dir, progress)?,
            Work::Evaluate(work) => self.evaluate(work, &step.dir, progress)?,
            Work::Sweep(work) => self.sweep(work, &step.dir, progress)?,
            Work::Landscape(work) => self.landscape(work, &step.dir, progress)?,
        }
        self.stamp(step)
    }

    fn base(&self, out: &Path) -> Result<EvaluateRequest> {
        Ok(EvaluateRequest {
            limit: self.recipe.limit,
            max_errors: self.request.max_errors,
            generated: self.request.generated.clone(),
            cache: self.request.cache.clone(),
            compat: self.request.compat.clone(),
            resume: true,
            ..EvaluateRequest::new(out)?
        })
    }

    fn evaluate(&self, work: &EvaluateWork, dir: &Path, progress: &dyn Progress) -> Result<()> {
        if work.shard.is_none() && !dir.exists() && self.merge(dir, progress)? {
            return Ok(());
        }
        // The facade writes each shard to its own folder.
        let out = if work.shard.is_some() { dir.parent().unwrap_or(dir) } else { dir };
        let statistics = work.statistics.as_ref().map(|dir| load_statistics(&dir.join(STATISTICS))).transpose()?;
        let request = EvaluateRequest {
            methods: vec![work.method.clone()],
            options: work.options.clone(),
            prompt: self.prompt(&work.prompt)?,
            views: work.views,
            view_policy: work.policy,
            seeds: vec![work.seed],
            order_seed: work.order_seed,
            shard: work.shard,
            statistics: statistics.map(Arc::new),
            ..self.base(out)?
        };
        let dataset = self.dataset(&work.data, Split::Test)?;
        evaluate(&request, self.model, std::slice::from_ref(&dataset), progress).map(drop)
    }

    /// Merges the shards of a run if all of them are complete.
    fn merge(&self, dir: &Path, progress: &dyn Progress) -> Result<bool> {
        let parts = folders_in(&parts_folder(dir));
        let count = parts.first().and_then(|part| part.to_str()?.rsplit('-').next()?.parse::<usize>().ok());
        let whole = count == Some(parts.len()) && parts.iter().all(|part| part.join("summary.json").is_file());
        if whole {
            progress.note(&format!("{}: putting {} parts together", dir.display(), parts.len()));
            merge(&parts, dir)?;
        }
        Ok(whole)
    }

    fn statistics(&self, work: &StatisticsWork, dir: &Path, progress: &dyn Progress) -> Result<()> {
        let PromptChoice::One(NamedPrompt { prompt, .. }) = self.prompt(&work.prompt)? else {
            return Err(Error::config("statistics", "expected one prompt for all data sets"));
        };
        let request = StatisticsRequest {
            prompt: Some((*prompt).clone()),
            shots: Some(work.shots),
            seed: work.seed,
            max_errors: self.request.max_errors,
            exif: None,
        };
        let (found, _) = statistics(&request, self.model, &*self.dataset(&work.data, Split::Train)?, progress)?;
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
        save_statistics(&dir.join(STATISTICS), &found)
    }

    fn sweep(&self, work: &SweepWork, dir: &Path, progress: &dyn Progress) -> Result<()> {
        let base = EvaluateRequest {
            methods: vec![work.method.clone()],
            prompt: self.prompt(&work.prompt)?,
            views: self.request.views.or(self.recipe.views),
            view_policy: work.policy,
            seeds: vec![work.seed],
            ..self.base(dir)?
        };
        let sets = work.data.iter().map(|data| Ok((*self.dataset(data, Split::Test)?).clone()));
        let sets = sets.collect::<Result<Vec<_>>>()?;
        sweep(&SweepRequest { base, axes: work.axes.clone() }, self.model, &sets, progress).map(drop)
    }

    fn landscape(&self, work: &LandscapeWork, dir: &Path, progress: &dyn Progress) -> Result<()> {
        let data = self.dataset(&work.data, split_of(work.shots))?;
        let of = if work.shots > 0 {
            LandscapeOf::Training { data: (*data).clone(), shots: work.shots }
        } else {
            LandscapeOf::first_of(&data, None)?
        };
        let mut prompts = Vec::new();
        for (name, source) in &work.prompts {
            let PromptChoice::One(named) = self.prompt(source)? else {
                return Err(Error::config(name, "a landscape needs one prompt"));
            };
            prompts.push(NamedPrompt { name: name.clone(), ..named });
        }
        let request =
            LandscapeRequest { prompts, points: work.points, seed: work.seed, ..LandscapeRequest::new(of, dir)? };
        landscape(&request, self.model, progress).map(drop)
    }
}

/// The folder of the shards that other processes made, next to the folder of the run: `seed-1.parts/shard-0000-of-0004`.
pub(super) fn parts_folder(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(".parts");
    dir.with_file_name(name)
}
