//! The results of an item: its table next to the published one, paired differences, components, tuning, sweeps and landscapes.

use super::efficiency::{BENCH, efficiency};
use super::other_tables::{left_out, sections, tuned};
use super::plan::{Plan, data_title};
use super::step_store::StepStore;
use super::{EvaluateWork, Recipe, Work};
use crate::eval::Record;
use crate::eval::metrics::{Metrics, paired};
use crate::report::{Cell, Run, Section, Table, mean, mean_and_deviation, protocol_points, published_row};
use flatclip::files::write_atomic;
use flatclip::methods::Confidence;
use flatclip::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The runs of one row.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) label: String,
    /// By data set and seed, in the recipe's order.
    #[serde(skip)]
    runs: Vec<Vec<Option<Run>>>,
    /// Mean over seeds of top-1 in per cent, by data set.
    pub(super) means: Vec<Option<f64>>,
    /// Their standard deviation.
    pub(super) deviations: Vec<Option<f64>>,
    /// Published top-1, by data set.
    published: Vec<Option<f64>>,
}

impl Row {
    fn found(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().flatten().flatten()
    }
}

/// `a - b` where both are known.
fn minus(a: &[Option<f64>], b: &[Option<f64>]) -> Vec<Option<f64>> {
    a.iter().zip(b).map(|(a, b)| Some((*a)? - (*b)?)).collect()
}

/// A name and the cells of some values.
fn line(name: &str, values: &[Option<f64>], cell: fn(f64) -> Cell) -> Vec<Cell> {
    std::iter::once(Cell::text(name)).chain(values.iter().map(|value| Cell::some(*value, cell))).collect()
}

/// The tables of an item.
#[derive(Debug)]
pub struct Results {
    pub(crate) recipe: Recipe,
    pub(super) rows: Vec<Row>,
    /// Tables in the order in which they are shown; the first is the item's own.
    pub tables: Vec<Table>,
    /// Sweeps and landscapes.
    pub(crate) sections: Vec<Section>,
}

impl Results {
    pub(super) fn read(store: &StepStore<'_>, plan: &Plan) -> Result<Self> {
        let recipe = store.recipe.clone();
        let rows = read_rows(&recipe, plan)?;
        let mut results = Self { recipe, rows, tables: Vec::new(), sections: Vec::new() };
        if !results.rows.is_empty() {
            results.tables.push(results.comparison());
            results.tables.extend(results.differences()?);
            results.tables.extend(results.components());
            results.tables.push(results.calibration());
            results.tables.extend(results.protocol());
        }
        results.tables.extend(efficiency(&store.request.out.join(BENCH), store)?);
        results.tables.extend(tuned(plan)?);
        results.sections = sections(store, plan)?;
        results.tables.extend(left_out(plan));
        Ok(results)
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.rows.iter().flat_map(Row::found)
    }

    /// Out-of-distribution columns.
    pub(crate) fn shifted(&self) -> Vec<usize> {
        let in_domain = self.in_domain();
        (0..self.recipe.datasets.len()).filter(|place| !in_domain.contains(place)).collect()
    }

    /// In-distribution columns.
    pub(crate) fn in_domain(&self) -> Vec<usize> {
        let is_it = |&place: &usize| self.recipe.in_domain.contains(&self.recipe.datasets[place]);
        (0..self.recipe.datasets.len()).filter(is_it).collect()
    }

    /// Mean top-1 of a row over these columns, in per cent.
    pub(crate) fn mean(&self, label: &str, columns: &[usize]) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.label == label)?;
        let values: Vec<f64> = columns.iter().map(|&place| row.means[place]).collect::<Option<_>>()?;
        mean(&values)
    }

    /// Whether a row's prediction is correct, by data set, seed and image.
    pub(crate) fn right(&self, label: &str) -> Result<BTreeMap<(usize, usize, String), bool>> {
        self.rows.iter().find(|row| row.label == label).map_or_else(|| Ok(BTreeMap::new()), right_answers)
    }

    /// The columns of an average: all, or the out-of-distribution ones.
    fn averages(&self) -> Vec<(&'static str, Vec<usize>)> {
        let shifted = self.shifted();
        let mut averages = vec![("Avg.", (0..self.recipe.datasets.len()).collect::<Vec<_>>())];
        if !self.recipe.in_domain.is_empty() && !shifted.is_empty() {
            averages.push(("OOD Avg.", shifted));
        }
        averages
    }

    /// The standard deviation of each average of a row: over the averages of the seeds, if every data set has all seeds.
    fn average_deviations(&self, row: &Row) -> Vec<Option<f64>> {
        let of_seed = |columns: &[usize], seed: usize| -> Option<f64> {
            let top1 = |&data: &usize| Some(100.0 * row.runs[data].get(seed)?.as_ref()?.summary.metrics.top1);
            let values: Option<Vec<f64>> = columns.iter().map(top1).collect();
            mean(&values?)
        };
        let deviation = |columns: &Vec<usize>| {
            let seeds: Option<Vec<f64>> = (0..self.recipe.seeds.len()).map(|seed| of_seed(columns, seed)).collect();
            mean_and_deviation(&seeds?)?.1
        };
        self.averages().iter().map(|(_, columns)| deviation(columns)).collect()
    }

    /// Values by data set, then their averages if no value is missing.
    fn with_averages(&self, values: &[Option<f64>]) -> Vec<Option<f64>> {
        let average = |columns: Vec<usize>| {
            let picked: Option<Vec<f64>> = columns.into_iter().map(|i| values[i]).collect();
            mean(&picked?)
        };
        let averages = self.averages().into_iter().map(|(_, columns)| average(columns));
        values.iter().copied().chain(averages).collect()
    }

    fn header(&self, first: &str) -> Vec<String> {
        let titles = self.recipe.datasets.iter().map(|data| data_title(data));
        let averages = self.averages().into_iter().map(|(name, _)| name.to_owned());
        std::iter::once(first.to_owned()).chain(titles).chain(averages).collect()
    }

    /// Each row, the published one below it, and the difference.
    fn comparison(&self) -> Table {
        let title = match self.recipe.paper.as_str() {
            "" => self.recipe.title.clone(),
            paper => format!("{paper}: {}", self.recipe.title),
        };
        let mut table = Table::new(title, self.header("row"));
        for row in &self.rows {
            let ours = self.with_averages(&row.means);
            let mut cells = vec![Cell::text(&row.label)];
            let deviations = row.deviations.iter().copied().chain(self.average_deviations(row));
            let seeds = self.recipe.seeds.len();
            let cell = |(value, deviation)| Cell::some(value, |mean| Cell::mean(mean, deviation, seeds));
            cells.extend(ours.into_iter().zip(deviations).map(cell));
            table.push(cells);
        }
        table.mark_best(1..table.header.len());
        let mut lines = Vec::new();
        for (row, cells) in self.rows.iter().zip(std::mem::take(&mut table.rows)) {
            lines.push(cells);
            if row.published.iter().any(Option::is_some) {
                let (ours, theirs) = (self.with_averages(&row.means), self.with_averages(&row.published));
                let differences = minus(&ours, &theirs);
                lines.push(line("  published", &theirs, |value| Cell::number(value, 2)));
                lines.push(line("  difference", &differences, |value| Cell::signed(value, 2)));
            }
        }
        table.rows = lines;
        let seeds = self.recipe.seeds.len();
        let mut note = "top-1 in per cent".to_owned();
        if seeds > 1 {
            note.push_str(&format!("; mean over {seeds} seeds ± sample standard deviation (n-1)"));
        }
        if let Some(limit) = self.recipe.limit {
            note.push_str(&format!("; {limit} images of each data set, spread evenly"));
        }
        table.notes.push(note);
        table
    }

    /// Paired comparison of the reference with every other row on the same images of all data sets.
    fn differences(&self) -> Result<Option<Table>> {
        let Some(ours) = self.rows.iter().find(|row| row.label == self.recipe.reference) else { return Ok(None) };
        let title = format!("{} minus each row, on the same images", ours.label);
        let mut compared = Vec::new();
        let mine = right_answers(ours)?;
        for row in self.rows.iter().filter(|row| row.label != ours.label) {
            let theirs = right_answers(row)?;
            let common = theirs.iter().filter_map(|(key, &right)| Some((right, *mine.get(key)?)));
            let (first, second): (Vec<bool>, Vec<bool>) = common.unzip();
            if !first.is_empty() {
                compared.push((&row.label, paired(&first, &second, 1000, 0)));
            }
        }
        let table = Table::of(title, compared)
            .column("row", |(label, _)| Cell::text(*label))
            .column("images", |(_, found)| Cell::count(found.count))
            .column("difference", |(_, found)| Cell::difference(found))
            .column("95 %", |(_, found)| Cell::signed_interval(found))
            .column("fixed", |(_, found)| Cell::count(found.only_second))
            .column("broken", |(_, found)| Cell::count(found.only_first))
            .column("p (McNemar)", |(_, found)| Cell::p_value(found.p_value))
            .with_note("points of top-1 over all images and seeds that both answered; paired bootstrap, exact test");
        Ok((!table.rows.is_empty()).then_some(table))
    }

    /// The effects of SAPT and STSS alone, together, and their interaction.
    fn components(&self) -> Option<Table> {
        let of = |prompt: &str, method: &str| {
            let is_it = |row: &&crate::reproduce::RecipeRow| row.prompt == prompt && row.method == method;
            let label = &self.recipe.rows.iter().find(is_it)?.label;
            self.rows.iter().find(|row| row.label == *label).map(|row| self.with_averages(&row.means))
        };
        let (neither, sapt) = (of("coop", "zero-shot")?, of("sapt", "zero-shot")?);
        let (stss, both) = (of("coop", "stss")?, of("sapt", "stss")?);
        let mut table = Table::new("Components: gain over CoOp in points", self.header("with"));
        let [sapt, stss, both] = [sapt, stss, both].map(|values| minus(&values, &neither));
        let sum = sapt.iter().zip(&stss).map(|(a, b)| Some((*a)? + (*b)?)).collect::<Vec<_>>();
        let beyond = minus(&both, &sum);
        for (name, values) in [("SAPT", &sapt), ("STSS", &stss), ("both", &both), ("interaction", &beyond)] {
            table.push(line(name, values, |value| Cell::signed(value, 2)));
        }
        Some(table)
    }

    /// Calibration metrics of the rows: means over data sets and seeds.
    fn calibration(&self) -> Table {
        let of_all = |row: &Row, value: fn(&Metrics) -> f64| {
            let values: Vec<f64> = row.found().map(|run| value(&run.summary.metrics)).collect();
            mean(&values).unwrap_or_default()
        };
        let nll = |row: &Row| {
            let nlls: Option<Vec<f64>> = row.found().map(|run| run.summary.metrics.nll).collect();
            Cell::nll(mean(&nlls.unwrap_or_default()), row.found().map(|run| run.summary.metrics.infinite_nll).sum())
        };
        let mut table = Table::of("Calibration", &self.rows)
            .column("row", |row| Cell::text(&row.label))
            .column("confidence", |row| Cell::some(row.found().next(), |run| Cell::text(run.confidence().name())))
            .column("ECE", |row| Cell::percent(of_all(row, |metrics| metrics.calibration.ece)))
            .column("NLL", |row| nll(row))
            .column("Brier", |row| Cell::number(of_all(row, |metrics| metrics.brier), 4))
            .with_note("mean over data sets and seeds; ECE in per cent on the confidence of the answer");
        if self.runs().any(|run| run.confidence() == Confidence::VoteShare) {
            table.notes.push(Confidence::NOTE.into());
        }
        table
    }

    /// Differences between a row and the published setting.
    fn protocol(&self) -> Option<Table> {
        self.rows.iter().find(|row| row.published.iter().any(Option::is_some))?;
        let mut table = Table::new("Where the protocol differs from the published row", ["row", "point", "on"]);
        for row in &self.rows {
            let mut points: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (data, runs) in self.recipe.datasets.iter().zip(&row.runs) {
                for point in runs.iter().flatten().next().map(protocol_points).unwrap_or_default() {
                    points.entry(point).or_default().push(data_title(data));
                }
            }
            for (point, on) in points {
                let on = if on.len() == self.recipe.datasets.len() { "all".to_owned() } else { on.join(", ") };
                table.push([row.label.clone(), point, on].map(Cell::text).to_vec());
            }
        }
        if table.rows.is_empty() {
            table.notes.push("nowhere, as far as runs and published protocols say".into());
        }
        Some(table)
    }

    /// The tables as text for a terminal.
    pub fn text(&self) -> String {
        let own = self.sections.iter().flat_map(|section| &section.tables);
        self.tables.iter().chain(own).map(Table::to_text).collect::<Vec<_>>().join("\n")
    }

    /// The results as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema_version": 1, "item": self.recipe.name, "title": self.recipe.title, "datasets": self.recipe.datasets,
            "seeds": self.recipe.seeds, "rows": self.rows, "tables": self.tables,
        })
    }

    /// Writes Markdown, LaTeX, CSV, JSON and the HTML page; they contain no times and no paths.
    pub(super) fn write(&self, out: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(out).map_err(Error::io(out))?;
        let tables: Vec<&Table> = self.tables.iter().chain(self.sections.iter().flat_map(|s| &s.tables)).collect();
        let joined = |form: fn(&Table) -> String| tables.iter().map(|table| form(table)).collect::<Vec<_>>().join("\n");
        write_atomic(&out.join("table.md"), joined(Table::to_markdown).as_bytes())?;
        write_atomic(&out.join("table.tex"), joined(Table::to_latex).as_bytes())?;
        write_atomic(&out.join("table.csv"), joined(Table::to_csv).as_bytes())?;
        let json =
            serde_json::to_string_pretty(&self.json()).map_err(|e| Error::config("results.json", e.to_string()))?;
        write_atomic(&out.join("results.json"), format!("{json}\n").as_bytes())?;
        let file = out.join("report.html");
        write_atomic(&file, self.page(out).to_html().as_bytes())?;
        Ok(file)
    }
}

/// Correct predictions by data set, seed and image.
fn right_answers(row: &Row) -> Result<BTreeMap<(usize, usize, String), bool>> {
    let mut found = BTreeMap::new();
    for (data, runs) in row.runs.iter().enumerate() {
        for (seed, run) in runs.iter().enumerate() {
            let records = run.as_ref().map(Run::records).transpose()?.unwrap_or_default();
            let right = |r: &Record| Some(r.answer.as_ref()?.prediction == r.label);
            found.extend(records.iter().filter_map(|r| Some(((data, seed, r.id.clone()), right(r)?))));
        }
    }
    Ok(found)
}

/// The finished runs of the plan, by row.
fn read_rows(recipe: &Recipe, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for row in &recipe.rows {
        let empty = || vec![None; recipe.seeds.len()];
        let mut runs: Vec<Vec<Option<Run>>> = recipe.datasets.iter().map(|_| empty()).collect();
        for step in &plan.steps {
            let Work::Evaluate(EvaluateWork { row: label, data, seed, shard: None, .. }) = &step.work else { continue };
            let place = recipe.datasets.iter().position(|d| d == data).zip(recipe.seeds.iter().position(|s| s == seed));
            if let (true, Some((data, seed))) = (*label == row.label && step.dir.join("summary.json").is_file(), place)
            {
                runs[data][seed] = Some(Run::read(&step.dir)?);
            }
        }
        if runs.iter().flatten().all(Option::is_none) {
            continue;
        }
        let backbone = runs.iter().flatten().flatten().next().map_or("", |run| run.provenance.backbone.as_str());
        let published = recipe.datasets.iter().map(|data| published_row(backbone, &row.label, data)).collect();
        let (means, deviations) = runs.iter().map(|runs| over_seeds(runs)).unzip();
        rows.push(Row { label: row.label.clone(), runs, means, deviations, published });
    }
    Ok(rows)
}

/// Mean over the seeds, and the standard deviation if there are several. A data set with a missing seed has no mean.
fn over_seeds(runs: &[Option<Run>]) -> (Option<f64>, Option<f64>) {
    let values: Option<Vec<f64>> = runs.iter().map(|run| Some(100.0 * run.as_ref()?.summary.metrics.top1)).collect();
    let found = values.and_then(|values| mean_and_deviation(&values));
    found.map_or((None, None), |(mean, deviation)| (Some(mean), deviation))
}
