//! Finished runs, and tables with one line for each: every metric, and published numbers next to ours.

use super::cell::Cell;
use super::order::by_name;
use super::paper::{Published, published};
use super::protocol::protocol_points;
use super::rows::row_names;
use super::table::Table;
use crate::data::Known;
use crate::eval::{Provenance, Record, RunConfig, Summary, Timing};
use crate::run_dir::{CONFIG, RunDir};
use flatclip::error::Hint;
use flatclip::methods::bank::{Radius, RadiusUnit};
use flatclip::methods::{Confidence, adapter};
use flatclip::{Error, Result};
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

    /// What its confidence is.
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
    let mut header = vec!["prompt + method", "data", "seed"];
    header.extend(tuned.then_some("prompt seed"));
    header.extend(["samples", "top-1", "95 %", "top-5", "per class", "confidence", "ECE", "NLL", "Brier"]);
    header.extend(["views", "encode ms", "adapt ms"]);
    let mut table = Table::new("Runs", header);
    for (run, name) in runs.iter().zip(row_names(runs)) {
        table.push(metrics_row(run, name, tuned));
    }
    let bins = runs.first().map_or(0, |run| run.summary.metrics.calibration.bins.len());
    table.notes.push(format!(
        "top-1, top-5, per-class accuracy and ECE in per cent; ECE with {bins} right-closed bins on the confidence of the answer; \
         bootstrap intervals of 1000 resamples"
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

fn metrics_row(run: &Run, name: String, tuned: bool) -> Vec<Cell> {
    let (m, failed) = (&run.summary.metrics, run.summary.failed);
    let samples = match failed {
        0 => Cell::count(run.summary.samples),
        _ => Cell {
            text: format!("{} ({failed} bad)", run.summary.samples),
            parts: vec![("bad", failed as f64)],
            ..Cell::count(run.summary.samples)
        },
    };
    let milliseconds = |seconds: Option<f64>| seconds.map_or_else(Cell::none, |s| Cell::number(1000.0 * s, 2));
    let mut row = vec![Cell::text(name), Cell::text(&run.provenance.dataset), Cell::text(run.config.seed.to_string())];
    let prompt_seed = run.tuning_seed().map_or_else(Cell::none, |seed| Cell::text(seed.to_string()));
    row.extend(tuned.then_some(prompt_seed));
    row.extend([
        samples.flag(failed > 0),
        Cell::percent(m.top1),
        Cell::interval(m.top1_interval, |low, high| format!("{low:.2}–{high:.2}")),
        Cell::percent(m.top5),
        Cell::percent(m.mean_per_class),
        Cell::text(run.confidence().name()),
        Cell::percent(m.calibration.ece),
        Cell::nll_of(m),
        Cell::number(m.brier, 4),
        run.summary.mean_views.map_or_else(|| Cell::count(run.views_used()), |mean| Cell::number(mean, 1)),
        milliseconds(run.encode_per_sample()),
        milliseconds(run.timing.as_ref().and_then(Timing::adapt_per_sample)),
    ]);
    row
}

/// Ours, published, difference, for every run that has a published counterpart.
pub fn against_paper(runs: &[Run], tolerance: f64) -> Table {
    let header = [
        "prompt + method",
        "data",
        "samples",
        "ours",
        "published",
        "difference",
        "row",
        "origin",
        "differs in",
        "note",
    ];
    let mut table = Table::new("Against published numbers", header);
    let mut without = 0;
    for (run, name) in runs.iter().zip(row_names(runs)) {
        let rows = run.published();
        without += usize::from(rows.is_empty());
        for row in rows {
            let ours = 100.0 * run.summary.metrics.top1;
            let expected = Known::find(&run.provenance.dataset).and_then(|known| known.count(crate::data::Split::Test));
            let part = expected.is_some_and(|count| run.summary.metrics.count < count);
            let count = run.summary.metrics.count;
            let samples = match expected {
                Some(all) if part => {
                    Cell { text: format!("{count} of {all}"), parts: vec![("all", all as f64)], ..Cell::count(count) }
                }
                _ => Cell::count(count),
            };
            // A part of the test set has sampling noise: flagged only when the published value is outside its interval.
            let inside = |i: crate::eval::metrics::Interval| {
                row.value >= 100.0 * i.low - tolerance && row.value <= 100.0 * i.high + tolerance
            };
            let agrees = if part {
                run.summary.metrics.top1_interval.is_some_and(inside)
            } else {
                (ours - row.value).abs() <= tolerance
            };
            table.push(vec![
                Cell::text(&name),
                Cell::text(&run.provenance.dataset),
                samples.clone(),
                Cell::number(ours, 2),
                Cell::number(row.value, 2),
                Cell::signed(ours - row.value, 2).flag(!agrees),
                Cell::text(format!("{} ({})", row.label, row.table)),
                Cell::text(&row.origin),
                Cell::text(protocol_points(run).join("; ")),
                Cell::text(&row.note),
            ]);
        }
    }
    table.notes.push(format!(
        "flagged (!): more than {tolerance} points from the published value; for a part of a test set, the published value is \
         outside our 95 % interval widened by that"
    ));
    if without > 0 {
        table.notes.push(format!(
            "{without} runs have no published counterpart (backbone, prompt, method and data set must agree)"
        ));
    }
    table
}
