//! Sweeps: a grid of settings, answered from cached features; a table and a figure per axis.

use crate::data::Dataset;
use crate::eval::{
    EvaluateRequest, GridAxis, NamedPrompt, PromptChoice, RunRequest, Subject, Summary, cells, file_name,
};
use crate::report::figure::Figure;
use crate::report::{Cell, Page, Run, Section, Table, find_runs, sweep_figures};
use crate::run_dir::RunDir;
use flatclip::classify::{Certainty, options_of};
use flatclip::files::write_atomic;
use flatclip::methods::bank::Radius;
use flatclip::methods::{AdapterSpec, Confidence};
use flatclip::settings::parse_settings;
use flatclip::{Error, Progress, Prompt, Result};
use std::path::{Path, PathBuf};

/// A grid of evaluations.
#[derive(Clone, Debug)]
pub struct SweepRequest {
    /// What stays the same in all cells; its first method is the one that is varied unless an axis is `method`.
    pub base: EvaluateRequest,
    /// What varies: options such as `stss.radius`, or `method`, `prompt`, `views`, `seed`.
    pub axes: Vec<GridAxis>,
}

/// What a sweep found on one data set.
#[derive(Clone, Debug)]
pub struct SweptData {
    /// The data set.
    pub dataset: String,
    /// One row per cell.
    pub table: Table,
    /// Samples that could not be answered, over all cells.
    pub failed: usize,
}

struct DoneCell {
    number: usize,
    cell: Vec<usize>,
    /// The radius in its two units, where the method has one around the prompt.
    radius: Option<Radius>,
    summary: Summary,
}

/// Runs every cell on each data set, and writes `table.csv`, `table.md`, `figure-N.svg` and one `report.html` below
/// the base request's directory.
pub fn sweep<'a>(
    request: &SweepRequest,
    subject: impl Into<Subject<'a>>,
    datasets: &[Dataset],
    progress: &dyn Progress,
) -> Result<Vec<SweptData>> {
    if request.axes.is_empty() {
        return Err(Error::config("axes", "expected at least one setting to vary, found none"));
    }
    // Every key and value is checked before the first cell runs.
    for cell in cells(&request.axes) {
        let (method, options) = request.method(&cell)?;
        method.build(&options)?;
    }
    let (subject, out) = (subject.into(), &request.base.out);
    let _whole = RunDir::claim(out)?;
    let (mut swept, mut sections) = (Vec::new(), Vec::new());
    for dataset in datasets {
        let folder = request.folder(&dataset.name, datasets.len());
        let _own = (folder != *out).then(|| RunDir::claim(&folder)).transpose()?;
        let mut done = request.cells(subject, dataset, &folder, progress)?;
        done.sort_by_key(|cell| cell.number);
        let table = request.table(&done, &dataset.name);
        sections.push(request.write(&folder, &done, &dataset.name, &table)?);
        let failed = done.iter().map(|cell| cell.summary.failed).sum();
        swept.push(SweptData { dataset: dataset.name.clone(), table, failed });
    }
    sections.push(Page::provenance(&first_runs(out)?));
    let page = Page { title: "flatclip sweep".into(), sections, ..Page::default() };
    write_atomic(&out.join("report.html"), page.to_html().as_bytes())?;
    Ok(swept)
}

impl SweepRequest {
    /// Prompt after prompt, so that each prompt's text features are computed once.
    fn cells(
        &self,
        subject: Subject<'_>,
        dataset: &Dataset,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<Vec<DoneCell>> {
        let grid = cells(&self.axes);
        let mut done = Vec::new();
        for word in self.prompts() {
            let base = match word {
                None => self.base.clone(),
                Some(word) => {
                    let prompt = NamedPrompt { name: word.to_owned(), ..Prompt::parse(word)?.into() };
                    EvaluateRequest { prompt: PromptChoice::One(prompt), ..self.base.clone() }
                }
            };
            let runner = base.runner(subject, dataset, progress)?;
            let mine = |cell: &Vec<usize>| self.value(cell, "prompt") == word;
            for (number, cell) in grid.iter().enumerate().filter(|(_, cell)| mine(cell)) {
                let dir = cell_dir(folder, number);
                let (method, options) = self.method(cell)?;
                let most = method.needs.default_views.max(self.most_views());
                let (policy, views) = base.views_for(subject, method, dataset, most)?;
                let (views, certainty) = self.views(cell, views)?;
                let seed = self.number(cell, "seed")?.unwrap_or_else(|| base.seeds.first().copied().unwrap_or(0));
                let run = RunRequest { method, options, policy, views, certainty, seed, dir };
                let (summary, _) = runner.run(dataset, &run)?;
                let radius = runner.radius(method, &run.options);
                done.push(DoneCell { number, cell: cell.clone(), radius, summary });
            }
        }
        Ok(done)
    }

    /// The tables and figures of finished sweeps on data sets of these names, from their cells on disk.
    pub(crate) fn finished(&self, datasets: &[String]) -> Result<Vec<Section>> {
        let section = |dataset: &String| {
            let folder = self.folder(dataset, datasets.len());
            let read = |(number, cell): (usize, Vec<usize>)| {
                let run = Run::read(&cell_dir(&folder, number))?;
                Ok(DoneCell { number, cell, radius: run.radius(), summary: run.summary })
            };
            let done = cells(&self.axes).into_iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
            let table = self.table(&done, dataset);
            Ok(Section { figures: self.figures(&done, dataset), ..section_of(dataset, table) })
        };
        datasets.iter().map(section).collect()
    }

    /// Where the cells of a data set lie.
    fn folder(&self, dataset: &str, datasets: usize) -> PathBuf {
        if datasets > 1 { self.base.out.join(file_name(dataset)) } else { self.base.out.clone() }
    }

    fn figures(&self, done: &[DoneCell], dataset: &str) -> Vec<Figure> {
        let values: Vec<(Vec<usize>, f64)> =
            done.iter().map(|done| (done.cell.clone(), done.summary.metrics.top1)).collect();
        sweep_figures(&self.axes, &values, dataset)
    }

    fn method(&self, cell: &[usize]) -> Result<(&'static AdapterSpec, toml::Table)> {
        let registry = &self.base.registry;
        let named = self.value(cell, "method").or(self.base.methods.first().map(String::as_str));
        let method = registry.adapter(named.unwrap_or("stss"))?;
        let special = ["method", "prompt", "views", "seed"];
        let settings: Vec<String> = (self.axes.iter().zip(cell))
            .filter(|(axis, _)| !special.contains(&axis.key.as_str()))
            .map(|(axis, &i)| format!("{}={}", axis.key, axis.values[i]))
            .collect();
        let mut settings = parse_settings(&settings)?;
        for (key, value) in &self.base.options {
            settings.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let running = self.methods()?;
        let options = options_of(&settings, method, &running, |name| registry.adapter(name).ok())?;
        Ok((method, options))
    }

    fn methods(&self) -> Result<Vec<&'static str>> {
        let named =
            self.axis("method").map_or(&self.base.methods[..1.min(self.base.methods.len())], |axis| &axis.values);
        named.iter().map(|name| Ok(self.base.registry.adapter(name)?.name)).collect()
    }

    fn axis(&self, key: &str) -> Option<&GridAxis> {
        self.axes.iter().find(|axis| axis.key == key)
    }

    fn value(&self, cell: &[usize], key: &str) -> Option<&str> {
        self.axes.iter().zip(cell).find(|(axis, _)| axis.key == key).map(|(axis, &i)| axis.values[i].as_str())
    }

    /// Views of a cell and the certainty at which fewer suffice; `auto` on an axis is the base's certainty or the usual one.
    fn views(&self, cell: &[usize], default: usize) -> Result<(usize, Option<Certainty>)> {
        let asked = self.base.certainty;
        match self.value(cell, "views") {
            None => Ok((default, asked)),
            Some("auto") => Ok((default, asked.or(Some(Certainty::Usual)))),
            Some(_) => Ok((self.number(cell, "views")?.map_or(default, |n| n as usize), None)),
        }
    }

    fn number(&self, cell: &[usize], key: &str) -> Result<Option<u64>> {
        let parsed = self.value(cell, key).map(|text| {
            let whole = text.parse::<u64>();
            whole.map_err(|_| Error::config(key, format!("expected a whole number, found {text:?}")))
        });
        let parsed = parsed.transpose()?;
        if key == "views" && parsed == Some(0) {
            return Err(Error::config(key, "expected at least 1, found 0"));
        }
        Ok(parsed)
    }

    /// The prompts of the grid; `None` for the base's own.
    fn prompts(&self) -> Vec<Option<&str>> {
        let Some(axis) = self.axis("prompt") else { return vec![None] };
        axis.values.iter().map(|value| Some(value.as_str())).collect()
    }

    fn most_views(&self) -> usize {
        let named = self.axis("method").into_iter().flat_map(|axis| &axis.values);
        let specs = named.filter_map(|name| self.base.registry.adapter(name).ok());
        specs.map(|spec| spec.needs.default_views).max().unwrap_or(1)
    }

    fn table(&self, done: &[DoneCell], dataset: &str) -> Table {
        // A radius has a meaning only together with its context.
        let radii =
            self.axes.iter().any(|axis| axis.key.ends_with("radius")) && done.iter().any(|d| d.radius.is_some());
        let mut columns = Table::of(format!("Sweep on {dataset}"), done);
        for (place, axis) in self.axes.iter().enumerate() {
            columns = columns.column(&axis.key, |done| Cell::text(&axis.values[done.cell[place]]));
        }
        let share = |radius: Radius| Cell::text(format!("{:.4}", radius.share));
        let mut table = columns
            .column_if(radii, "of the context's norm", |done| Cell::some(done.radius, share))
            .column("top-1", |done| Cell::percent(done.summary.metrics.top1))
            .column("ECE", |done| Cell::percent(done.summary.metrics.calibration.ece))
            .with_note("top-1 and ECE in per cent; all settings use the same views");
        let top1 = table.header.len() - 2;
        table.mark_best([top1]);
        if done.iter().any(|done| done.summary.confidence == Confidence::VoteShare) {
            table.notes.push(Confidence::NOTE.into());
        }
        table
    }

    fn write(&self, folder: &Path, done: &[DoneCell], dataset: &str, table: &Table) -> Result<Section> {
        let figures = self.figures(done, dataset);
        for (number, figure) in figures.iter().enumerate() {
            write_atomic(&folder.join(format!("figure-{}.svg", number + 1)), figure.to_svg().as_bytes())?;
        }
        write_atomic(&folder.join("table.csv"), table.to_csv().as_bytes())?;
        write_atomic(&folder.join("table.md"), table.to_markdown().as_bytes())?;
        Ok(Section { figures, ..section_of(dataset, table.clone()) })
    }
}

fn section_of(dataset: &str, table: Table) -> Section {
    Section { tables: vec![table], ..Section::new(dataset, "") }
}

fn cell_dir(folder: &Path, number: usize) -> PathBuf {
    folder.join("cells").join(format!("{number:04}"))
}

/// The first cell of every data set: what the whole sweep shares.
fn first_runs(out: &Path) -> Result<Vec<Run>> {
    let found = find_runs(&[out.to_path_buf()])?;
    let first = found.iter().filter(|path| path.file_name().is_some_and(|name| name == "0000"));
    // Named from the sweep's folder: where that lies is no part of the result.
    let named = |run: Run| Run { path: run.path.strip_prefix(out).map_or(run.path.clone(), Path::to_path_buf), ..run };
    first.map(|path| Run::read(path).map(named)).collect()
}
