//! Shards of a run put together again, to the same bytes that one run would have written.

use super::log::PredictionLog;
use super::record::Record;
use super::run_dir::{PREDICTIONS, PROVENANCE, RunConfig, as_table};
use super::summary::Summary;
use super::timing::Timing;
use crate::run_dir::{RunDir, first_difference};
use flatclip::error::Hint;
use flatclip::methods::Confidence;
use flatclip::{Error, Result};
use std::path::{Path, PathBuf};

/// Merges the runs in `parts` into a new directory `out`. Refuses gaps, overlaps and mixed configurations.
pub fn merge(parts: &[PathBuf], out: &Path) -> Result<Summary> {
    let runs = parts.iter().map(|path| RunDir::open(path)).collect::<Result<Vec<_>>>()?;
    let Some(first) = runs.first() else {
        return Err(Error::config("merge", "expected at least one run directory"));
    };
    let whole = RunConfig { shard: None, ..first.config()? };
    let provenance = first.provenance()?;
    for run in &runs {
        let other = RunConfig { shard: None, ..run.config()? };
        let difference =
            first_difference(&as_table(&whole)?, &as_table(&other)?, "").or(provenance.difference(&run.provenance()?));
        if let Some(difference) = difference {
            let reason = format!("does not belong to {}: {difference}", first.path.display());
            return Err(Error::Run { path: run.path.clone(), reason });
        }
    }
    for run in runs.iter().filter(|run| run.is_complete()) {
        run.verify()?;
    }
    let records = collect(&runs, provenance.samples)?;
    if out.exists() {
        let fault = Error::Run { path: out.to_path_buf(), reason: "exists already".into() };
        return Err(fault.with_hint(Hint::Elsewhere));
    }
    let dir = RunDir::claim(out)?;
    let mut log = PredictionLog::create(&out.join(PREDICTIONS))?;
    log.append(&records)?;
    log.sync()?;
    dir.write_json(PROVENANCE, &provenance)?;
    if let Some(classes) = first.classes()? {
        dir.write_classes(&classes)?;
    }
    dir.write_config(&as_table(&whole)?)?;
    let summary = Summary::new(&provenance.dataset, &whole.method, provenance.classes, &records)
        .with_confidence(Confidence::of(&whole.method, &whole.options));
    dir.finish(&summary, &total_time(&runs)?)?;
    Ok(summary)
}

/// All records by position: each exactly once.
fn collect(runs: &[RunDir], samples: usize) -> Result<Vec<Record>> {
    let mut by_position: Vec<Option<(usize, Record)>> = Vec::new();
    by_position.resize_with(samples, || None);
    for (number, run) in runs.iter().enumerate() {
        for record in run.records()? {
            let index = record.index;
            let refuse = |reason: String| Err(Error::Run { path: run.path.clone(), reason });
            match by_position.get_mut(index) {
                None => return refuse(format!("has position {index}, but the run has only {samples} samples")),
                Some(Some((other, _))) => {
                    let other = runs[*other].path.display();
                    return refuse(format!("overlaps with {other}: both have position {index} (`{}`)", record.id));
                }
                Some(slot) => *slot = Some((number, record)),
            }
        }
    }
    let missing: Vec<usize> =
        by_position.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(i, _)| i).collect();
    if let Some(first) = missing.first() {
        let path = runs.first().map(|run| run.path.clone()).unwrap_or_default();
        let reason = format!(
            "{} of {samples} positions are in no part, the first is {first}; a shard is missing or not finished",
            missing.len()
        );
        return Err(Error::Run { path, reason }.with_hint(Hint::Resume));
    }
    Ok(by_position.into_iter().flatten().map(|(_, record)| record).collect())
}

fn total_time(runs: &[RunDir]) -> Result<Timing> {
    let mut total = Timing::default();
    for timing in runs.iter().map(RunDir::timing).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        total.wall += timing.wall;
        total.load += timing.load;
        total.encode += timing.encode;
        total.encode_session += timing.encode_session;
        if let Some(count) = timing.encode_samples {
            *total.encode_samples.get_or_insert(0) += count;
        }
        total.views_used = total.views_used.max(timing.views_used);
        total.adapt += timing.adapt;
        total.samples += timing.samples;
        total.cached += timing.cached;
        total.peak_memory = total.peak_memory.max(timing.peak_memory);
    }
    Ok(total)
}
