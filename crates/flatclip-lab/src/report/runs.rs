//! Finished runs, and tables with one line for each: every metric, and published numbers next to ours.

use super::order::by_name;
use super::rows::row_names;
use super::{Cell, Published, Table, protocol_points, published};
use crate::data::{Known, Split};
use crate::eval::metrics::Interval;
use crate::eval::{Provenance, Record, RunConfig, Summary, Timing};
use crate::run_dir::{CONFIG, RunDir};
use flatclip::methods::bank::{Radius, RadiusUnit};
use flatclip::methods::{Confidence, adapter};
use flatclip::{Error, Hint, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A finished run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its directory.
    pub path: PathBuf,
    /// What was asked for.
    pub config: RunConfig,
    /// What makes it comparable.
    pub provenance: Provenance,
    /// Its numbers.
    pub summary: Summary,
    /// Where the time went.
    pub timing: Option<Timing>,
}

/// How far ours may be from a published number before it is flagged, in points.
pub const TOLERANCE: f64 = 0.5;

impl Run {
    /// Reads a run directory; an unfinished run is an error that says how far it is.
    pub fn read(path: &Path) -> Result<Self> {
        let dir = RunDir::open(path)?;
        if dir.config_table()?.contains_key("shots") {
            let reason = "is a tuning run: it holds a prompt and no answers".to_owned();
            return Err(Error::Run { path: path.to_path_buf(), reason }.with_hint(Hint::Evaluate));
        }
        let provenance = dir.provenance()?;
        let Some(summary) = dir.summary()? else {
            let done = dir.records().map(|records| records.len()).unwrap_or_default();
            let reason = format!("is not finished: {done} of {} samples", provenance.samples);
            return Err(Error::Run { path: path.to_path_buf(), reason }.with_hint(Hint::Resume));
        };
        let read = Self { path: path.to_path_buf(), config: dir.config()?, provenance, summary, timing: dir.timing()? };
        // The digests cover the records; a run of an earlier version has none, so its records are counted.
        if !dir.verify()? {
            let (found, expected) = (dir.records()?.len(), read.summary.samples);
            if found != expected {
                let reason =
                    format!("has {found} records, its summary is of {expected}; restore the file, or run again");
                return Err(Error::Run { path: path.to_path_buf(), reason });
            }
        }
        Ok(read)
    }

    /// All records.
    pub fn records(&self) -> Result<Vec<Record>> {
        RunDir::open(&self.path)?.records()
    }

    /// The names of its classes; `None` if the run did not keep them.
    pub fn class_names(&self) -> Result<Option<Vec<String>>> {
        RunDir::open(&self.path)?.classes()
    }

    /// The radius of its method around the prompt, where it has one.
    pub(crate) fn radius(&self) -> Option<Radius> {
        let value = self.config.options.get("radius")?.as_float()?;
        Some(RadiusUnit::of(&self.config.options).radius(value, self.provenance.context_norm?))
    }

    pub(crate) fn confidence(&self) -> Confidence {
        Confidence::of(&self.config.method, &self.config.options)
    }

    /// The seed that its prompt was tuned with.
    pub(crate) fn tuning_seed(&self) -> Option<u64> {
        self.provenance.prompt_tuning.as_ref().map(|tuning| tuning.seed)
    }

    /// What distinguishes it from the other seeds of its row: its own seed, and that of its prompt.
    pub(super) fn seeds(&self) -> (u64, Option<u64>) {
        (self.config.seed, self.tuning_seed())
    }

    /// Views of an image that its method uses.
    pub(crate) fn views_used(&self) -> usize {
        let uses_one = || adapter(&self.config.method).is_ok_and(|spec| spec.needs.first_view_only);
        match self.timing.as_ref().map_or(0, |timing| timing.views_used) {
            // Runs of earlier versions did not say it.
            0 if uses_one() => 1,
            0 => self.config.views.count,
            used => used,
        }
    }

    /// Seconds of the image tower for the views of one sample that its method uses; `None` where it is not known.
    pub(crate) fn encode_per_sample(&self) -> Option<f64> {
        let timing = self.timing.as_ref()?;
        // Runs of earlier versions were charged for all views.
        let share = match timing.views_used {
            0 => self.views_used() as f64 / self.config.views.count.max(1) as f64,
            _ => 1.0,
        };
        timing.encode_per_sample().map(|seconds| share * seconds)
    }

    /// Prompt and adapter as a row of a table: `coop + stss`.
    pub(crate) fn row_name(&self) -> String {
        let imported = if self.provenance.prompt_origin.is_empty() { "" } else { " (imported)" };
        format!("{}{imported} + {}", self.provenance.prompt, self.config.method)
    }

    /// What is published for it.
    pub fn published(&self) -> Vec<Published> {
        published(&self.provenance.backbone, &self.provenance.prompt, &self.config.method, &self.provenance.dataset)
    }
}

/// The run directories below the given paths (a path that is one stands for itself), in the order of the paths; those of one
/// folder by name, with the numbers in names as numbers.
pub fn find_runs(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        collect(path, 0, &mut found)?;
        if found.len() == before {
            let reason = "not a run directory and contains none".to_owned();
            return Err(Error::Run { path: path.clone(), reason });
        }
    }
    Ok(found)
}

fn collect(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if path.join(CONFIG).is_file() {
        found.push(path.to_path_buf());
        return Ok(());
    }
    if depth < 4 && path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(Error::io(path))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|p| p.is_dir()).collect();
        folders.sort_by(|a, b| by_name(a, b));
        folders.iter().try_for_each(|folder| collect(folder, depth + 1, found))?;
    }
    Ok(())
}

/// One line per run with every metric.
pub fn metrics_table(runs: &[Run]) -> Table {
    let tuned = runs.iter().any(|run| run.tuning_seed().is_some());
    let milliseconds = |seconds: Option<f64>| Cell::some(seconds, |seconds| Cell::number(1000.0 * seconds, 2));
    let bins = runs.first().map_or(0, |run| run.summary.metrics.calibration.bins.len());
    let mut table = Table::of("Runs", runs.iter().zip(row_names(runs)))
        .column("prompt + method", |(_, name)| Cell::text(name))
        .column("data", |(run, _)| Cell::text(&run.provenance.dataset))
        .column("seed", |(run, _)| Cell::text(run.config.seed.to_string()))
        .column_if(tuned, "prompt seed", |(run, _)| Cell::some(run.tuning_seed(), |seed| Cell::text(seed.to_string())))
        .column("samples", |(run, _)| samples_cell(&run.summary))
        .column("top-1", |(run, _)| Cell::percent(run.summary.metrics.top1))
        .column("95 %", |(run, _)| {
            Cell::interval(run.summary.metrics.top1_interval, |low, high| format!("{low:.2}–{high:.2}"))
        })
        .column("top-5", |(run, _)| Cell::percent(run.summary.metrics.top5))
        .column("per class", |(run, _)| Cell::percent(run.summary.metrics.mean_per_class))
        .column("confidence", |(run, _)| Cell::text(run.confidence().name()))
        .column("ECE", |(run, _)| Cell::percent(run.summary.metrics.calibration.ece))
        .column("NLL", |(run, _)| Cell::nll_of(&run.summary.metrics))
        .column("Brier", |(run, _)| Cell::number(run.summary.metrics.brier, 4))
        .column("views", |(run, _)| match run.summary.mean_views {
            Some(mean) => Cell::number(mean, 1),
            None => Cell::count(run.views_used()),
        })
        .column("encode ms", |(run, _)| milliseconds(run.encode_per_sample()))
        .column("adapt ms", |(run, _)| milliseconds(run.timing.as_ref().and_then(Timing::adapt_per_sample)))
        .with_note(format!(
            "top-1, top-5, per-class accuracy and ECE in per cent; ECE with {bins} right-closed bins on the confidence of the \
             answer; bootstrap intervals of 1000 resamples"
        ));
    if runs.iter().any(|run| run.confidence() == Confidence::VoteShare) {
        table.notes.push(Confidence::NOTE.into());
    }
    if runs.iter().any(|run| run.summary.metrics.nll.is_none()) {
        table.notes.push(
            "NLL: undefined where answers give their label probability zero, so that its logarithm is infinite; their number is given"
                .into(),
        );
    }
    table.notes.push(
        "milliseconds per image on the machine that ran it: encode is the image tower for the views that the method uses, \
         measured when they were encoded, by this run or by another that shares them (-: not known); adapt is the method's own work"
            .into(),
    );
    table
}

fn samples_cell(summary: &Summary) -> Cell {
    let (samples, failed) = (summary.samples, summary.failed);
    match failed {
        0 => Cell::count(samples),
        _ => Cell::count(samples).with_part(format!("{samples} ({failed} bad)"), "bad", failed).flag(true),
    }
}

/// Ours, published, difference, for every run that has a published counterpart.
pub fn against_paper(runs: &[Run], tolerance: f64) -> Table {
    let ours = |run: &Run| 100.0 * run.summary.metrics.top1;
    // The size of the test set, where the run saw only a part of it.
    let whole = |run: &Run| {
        let expected = Known::find(&run.provenance.dataset).and_then(|known| known.count(Split::Test));
        expected.filter(|&all| run.summary.metrics.count < all)
    };
    // A part of the test set has sampling noise: flagged only when the published value is outside its interval.
    let agrees = |run: &Run, value: f64| {
        let inside = |i: Interval| value >= 100.0 * i.low - tolerance && value <= 100.0 * i.high + tolerance;
        match whole(run) {
            Some(_) => run.summary.metrics.top1_interval.is_some_and(inside),
            None => (ours(run) - value).abs() <= tolerance,
        }
    };
    let rows = |(run, name): (_, String)| Run::published(run).into_iter().map(move |row| (run, name.clone(), row));
    let without = runs.iter().filter(|run| run.published().is_empty()).count();
    let mut table = Table::of("Against published numbers", runs.iter().zip(row_names(runs)).flat_map(rows))
        .column("prompt + method", |(_, name, _)| Cell::text(name))
        .column("data", |(run, ..)| Cell::text(&run.provenance.dataset))
        .column("samples", |(run, ..)| {
            let (count, all) = (run.summary.metrics.count, whole(run));
            all.map_or(Cell::count(count), |all| Cell::count(count).with_part(format!("{count} of {all}"), "all", all))
        })
        .column("ours", |(run, ..)| Cell::number(ours(run), 2))
        .column("published", |(.., row)| Cell::number(row.value, 2))
        .column("difference", |(run, _, row)| {
            Cell::signed(ours(run) - row.value, 2).flag(!agrees(run, row.value))
        })
        .column("row", |(.., row)| Cell::text(format!("{} ({})", row.label, row.table)))
        .column("origin", |(.., row)| Cell::text(&row.origin))
        .column("differs in", |(run, ..)| Cell::text(protocol_points(run).join("; ")))
        .column("note", |(.., row)| Cell::text(&row.note))
        .with_note(format!(
            "flagged (!): more than {tolerance} points from the published value; for a part of a test set, the published value \
             is outside our 95 % interval widened by that"
        ));
    if without > 0 {
        table.notes.push(format!(
            "{without} runs have no published counterpart (backbone, prompt, method and data set must agree)"
        ));
    }
    table
}
