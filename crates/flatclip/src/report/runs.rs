//! Finished runs as tables: one line per run, and methods by data sets with the averages of the benchmark.

use super::paper::{Published, published};
use super::protocol::protocol_points;
use super::rows::{row_names, rows_in_order};
use super::table::{Cell, Table};
use crate::data::{Family, Known};
use crate::error::Hint;
use crate::eval::metrics::paired;
use crate::eval::{Provenance, Record, RunConfig, Summary, Timing};
use crate::methods::bank::{Radius, RadiusUnit};
use crate::run_dir::{CONFIG, RunDir};
use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
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

/// The run directories below the given paths (a path that is one stands for itself), sorted.
pub fn find_runs(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        collect(path, 0, &mut found)?;
        if found.len() == before {
            let reason = "is no run directory and has none below it".to_owned();
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
        folders.sort();
        folders.iter().try_for_each(|folder| collect(folder, depth + 1, found))?;
    }
    Ok(())
}

/// One line per run with every metric.
pub fn metrics_table(runs: &[Run]) -> Table {
    let header = [
        "data",
        "prompt + method",
        "seed",
        "samples",
        "top-1",
        "95 %",
        "top-5",
        "per class",
        "ECE",
        "NLL",
        "Brier",
        "encode ms",
        "adapt ms",
    ];
    let mut table = Table::new("Runs", header);
    for (run, name) in runs.iter().zip(row_names(runs)) {
        let m = &run.summary.metrics;
        let interval = m.top1_interval.map_or("-".into(), |i| format!("{:.2}–{:.2}", 100.0 * i.low, 100.0 * i.high));
        let samples = match run.summary.failed {
            0 => run.summary.samples.to_string(),
            failed => format!("{} ({failed} bad)", run.summary.samples),
        };
        table.push(vec![
            Cell::text(&run.provenance.dataset),
            Cell::text(name),
            Cell::text(run.config.seed.to_string()),
            Cell::text(samples).flag(run.summary.failed > 0),
            Cell::percent(m.top1),
            Cell::text(interval),
            Cell::percent(m.top5),
            Cell::percent(m.mean_per_class),
            Cell::percent(m.calibration.ece),
            Cell::number(m.nll, 4),
            Cell::number(m.brier, 4),
            run.timing
                .as_ref()
                .and_then(|t| per_picture(t.encode, t.samples - t.cached.min(t.samples)))
                .unwrap_or_else(Cell::none),
            run.timing.as_ref().and_then(|t| per_picture(t.adapt, t.samples)).unwrap_or_else(Cell::none),
        ]);
    }
    let bins = runs.first().map_or(0, |run| run.summary.metrics.calibration.bins.len());
    table.notes.push(format!(
        "top-1, top-5, per-class accuracy and ECE in per cent; ECE with {bins} right-closed bins on the probability of the answer; \
         bootstrap intervals of 1000 resamples"
    ));
    table.notes.push(
        "milliseconds per picture on the machine that ran it: encode counts pictures whose features were not kept yet (-: all were), \
         adapt is the method's own work"
            .into(),
    );
    table
}

/// Milliseconds per picture; none where there were no pictures.
fn per_picture(seconds: f64, pictures: usize) -> Option<Cell> {
    (pictures > 0).then(|| Cell::number(1000.0 * seconds / pictures as f64, 2))
}

/// Methods by data sets: mean over seeds (± standard deviation), then the benchmark's averages.
pub fn benchmark_table(runs: &[Run], title: &str) -> Table {
    let datasets = datasets_of(runs);
    let names = row_names(runs);
    let rows = rows_in_order(runs, &names);
    let imagenets = datasets.iter().filter(|d| family(d) == Some(Family::Imagenet)).count() == 5;
    let mut header: Vec<String> = vec!["prompt + method".into()];
    header.extend(datasets.iter().map(|name| Known::find(name).map_or(name.clone(), |known| known.title.to_owned())));
    header.push("Avg.".into());
    if imagenets {
        header.push("OOD Avg.".into());
    }
    let mut table = Table::new(title, header);
    for row in rows {
        let means: Vec<Option<(f64, f64, usize)>> =
            datasets.iter().map(|data| mean_of(runs, &names, &row, data)).collect();
        let mut cells = vec![Cell::text(&row)];
        cells.extend(means.iter().map(mean_cell));
        let average = |pick: &dyn Fn(usize) -> bool| {
            let picked: Vec<Option<f64>> =
                (0..datasets.len()).filter(|&i| pick(i)).map(|i| means[i].map(|m| m.0)).collect();
            let whole: Option<Vec<f64>> = picked.into_iter().collect();
            whole
                .filter(|v| !v.is_empty())
                .map_or_else(Cell::none, |v| Cell::number(v.iter().sum::<f64>() / v.len() as f64, 2))
        };
        cells.push(average(&|_| true));
        if imagenets {
            cells.push(average(&|i| datasets[i] != "imagenet"));
        }
        table.push(cells);
    }
    let columns = 1..table.header.len();
    table.mark_best(columns);
    table.notes.push(
        "top-1 in per cent, mean over seeds ± standard deviation where there are several; averages are unweighted; runs that differ \
         in anything but the seed are rows of their own"
            .into(),
    );
    table
}

fn family(dataset: &str) -> Option<Family> {
    Known::find(dataset).map(|known| known.family)
}

/// Known data sets in the paper's order, then the rest by name.
fn datasets_of(runs: &[Run]) -> Vec<String> {
    let rank = |name: &str| crate::data::KNOWN.iter().position(|known| known.name == name).unwrap_or(usize::MAX);
    let mut names: Vec<String> = runs.iter().map(|run| run.provenance.dataset.clone()).collect();
    names.sort_by(|a, b| (rank(a), a).cmp(&(rank(b), b)));
    names.dedup();
    names
}

fn mean_of(runs: &[Run], names: &[String], row: &str, dataset: &str) -> Option<(f64, f64, usize)> {
    let is_it = |(run, name): &(&Run, &String)| *name == row && run.provenance.dataset == dataset;
    let matching = runs.iter().zip(names).filter(is_it);
    let values: Vec<f64> = matching.map(|(run, _)| 100.0 * run.summary.metrics.top1).collect();
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n.max(2) - 1) as f64;
    Some((mean, variance.sqrt(), n))
}

fn mean_cell(mean: &Option<(f64, f64, usize)>) -> Cell {
    match *mean {
        None => Cell::none(),
        Some((mean, _, 1)) => Cell::number(mean, 2),
        Some((mean, deviation, _)) => Cell { text: format!("{mean:.2} ± {deviation:.2}"), ..Cell::number(mean, 2) },
    }
}

/// Ours, published, difference, for every run that has a published counterpart.
pub fn against_paper(runs: &[Run], tolerance: f64) -> Table {
    let header = [
        "data",
        "prompt + method",
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
            let samples = match expected {
                Some(count) if part => format!("{} of {count}", run.summary.metrics.count),
                _ => run.summary.metrics.count.to_string(),
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
                Cell::text(&run.provenance.dataset),
                Cell::text(&name),
                Cell::text(samples),
                Cell::number(ours, 2),
                Cell::number(row.value, 2),
                Cell { text: format!("{:+.2}", ours - row.value), ..Cell::number(ours - row.value, 2) }.flag(!agrees),
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

/// Paired comparison of runs on the same samples: each against the first of its data set and seed.
pub fn paired_table(runs: &[Run]) -> Result<Table> {
    let header = [
        "data",
        "seed",
        "first",
        "second",
        "samples",
        "only first",
        "only second",
        "difference",
        "95 %",
        "p (McNemar)",
    ];
    let mut table = Table::new("Paired comparison", header);
    let names = row_names(runs);
    let mut firsts: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for (number, run) in runs.iter().enumerate() {
        let key = (run.provenance.dataset.clone(), run.config.seed);
        let first = *firsts.entry(key).or_insert(number);
        if first == number {
            continue;
        }
        let (a, b) = common(&runs[first].records()?, &run.records()?);
        let p = paired(&a, &b, 1000, 0);
        let interval = p.interval.map_or("-".into(), |i| format!("{:+.2} to {:+.2}", 100.0 * i.low, 100.0 * i.high));
        table.push(vec![
            Cell::text(&run.provenance.dataset),
            Cell::text(run.config.seed.to_string()),
            Cell::text(&names[first]),
            Cell::text(&names[number]),
            Cell::number(p.count as f64, 0),
            Cell::number(p.only_first as f64, 0),
            Cell::number(p.only_second as f64, 0),
            Cell { text: format!("{:+.2}", 100.0 * p.difference), ..Cell::percent(p.difference) },
            Cell::text(interval),
            Cell::number(p.p_value, 4),
        ]);
    }
    table.notes.push("difference of top-1 in points, second minus first, on the samples that both answered; exact test, paired bootstrap".into());
    Ok(table)
}

/// Right or wrong of both runs on the samples that both answered, matched by id.
fn common(first: &[Record], second: &[Record]) -> (Vec<bool>, Vec<bool>) {
    let right = |record: &Record| Some(record.answer.as_ref()?.prediction == record.label);
    let by_id: BTreeMap<&str, bool> = first.iter().filter_map(|r| Some((r.id.as_str(), right(r)?))).collect();
    second.iter().filter_map(|r| Some((*by_id.get(r.id.as_str())?, right(r)?))).unzip()
}
