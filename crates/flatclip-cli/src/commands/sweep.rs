//! `flatclip sweep`: a grid of settings, answered from kept features; a table and a figure per axis.

use super::eval::{SetupArgs, options_of};
use crate::inputs::model::Model;
use crate::output::{Exit, Output};
use crate::session::RunAsk;
use anyhow::{Context as _, Result, ensure};
use flatclip::data::Dataset;
use flatclip::eval::{GridAxis, SWEEP_PRESETS, cells, preset};
use flatclip::methods::{self, AdapterSpec};
use flatclip::report::{Cell, Page, Run, Section, Table, sweep_figures};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `flatclip sweep`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: SetupArgs,
    /// The adapter, unless an axis is `method`
    #[arg(long, default_value = "stss", value_name = "NAME")]
    method: String,
    /// An axis (or a fixed value): stss.radius=0,0.1,0.2 or stss.radius=0..1:0.1; also method=, prompt=, views=, seed= (repeatable)
    #[arg(long = "set", value_name = "KEY=A,B,..")]
    axes: Vec<GridAxis>,
    /// An ablation of the paper: radius, kept or directions
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Where runs, table and figures go
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Go on with an unfinished sweep
    #[arg(long)]
    resume: bool,
}

/// A finished cell.
struct Done {
    number: usize,
    cell: Vec<usize>,
    failed: usize,
    top1: f64,
    ece: f64,
    encode: f64,
    adapt: f64,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let mut axes = args.axes.clone();
    if let Some(name) = &args.preset {
        axes.extend(preset(name)?);
    }
    let presets: Vec<&str> = SWEEP_PRESETS.iter().map(|(name, _, _)| *name).collect();
    ensure!(!axes.is_empty(), "what to vary? give --set KEY=A,B,.. or --preset {}", presets.join("|"));
    let grid = cells(&axes);
    let model = args.setup.model.load(out)?;
    let mut pages = Vec::new();
    let (mut failed, mut documents) = (0, Vec::new());
    for spec in &args.setup.data.data {
        let dataset = args.setup.data.open(spec, out)?;
        let folder = if args.setup.data.data.len() > 1 {
            args.out.join(crate::session::file_name(&dataset.name))
        } else {
            args.out.clone()
        };
        let start = Instant::now();
        let mut done = args.cells(&axes, &grid, &model, &dataset, spec, &folder, out)?;
        done.sort_by_key(|run| run.number);
        failed += done.iter().map(|run| run.failed).sum::<usize>();
        out.note(format_args!(
            "{}: {} cells in {:.1} s, in {}",
            dataset.name,
            done.len(),
            start.elapsed().as_secs_f64(),
            folder.display()
        ));
        let table = table(&axes, &done, &dataset.name);
        let section = write(&folder, &axes, &done, &dataset.name, &table)?;
        documents.push(json!({ "data": dataset.name, "table": table }));
        if !out.is_json() {
            out.line(table.to_text())?;
        }
        pages.push(section);
    }
    let runs: Vec<Run> = first_runs(&args.out)?;
    pages.push(Page::provenance(&runs));
    let page = Page { title: "flatclip sweep".into(), sections: pages, ..Page::default() };
    let file = args.out.join("report.html");
    flatclip::files::write_atomic(&file, page.to_html().as_bytes())?;
    out.note(format_args!("page: {}", file.display()));
    if out.is_json() {
        out.json(&json!({ "schema_version": 1, "sweeps": documents }))?;
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Counted })
}

impl Args {
    /// Runs every cell: prompt after prompt, so that each prompt's text features are computed once.
    fn cells(
        &self,
        axes: &[GridAxis],
        grid: &[Vec<usize>],
        model: &Model,
        dataset: &Dataset,
        spec: &str,
        folder: &Path,
        out: &Output,
    ) -> Result<Vec<Done>> {
        let bar = out.progress(grid.len() as u64, "cells");
        let mut done = Vec::new();
        for prompt in prompts_of(axes) {
            self.setup.with_session(model, dataset, prompt, out, |session| {
                let mine = |cell: &Vec<usize>| value_of(axes, cell, "prompt") == prompt;
                for (number, cell) in grid.iter().enumerate().filter(|(_, cell)| mine(cell)) {
                    let dir = folder.join("cells").join(format!("{number:04}"));
                    let ask = self.ask(axes, cell, dataset, spec, dir)?;
                    let (summary, timing) = session.run(dataset, &ask).with_context(|| describe(axes, cell))?;
                    done.push(Done {
                        number,
                        cell: cell.clone(),
                        failed: summary.failed,
                        top1: summary.metrics.top1,
                        ece: summary.metrics.calibration.ece,
                        encode: timing.encode,
                        adapt: timing.adapt,
                    });
                    bar.inc(1);
                }
                Ok(())
            })?;
        }
        bar.finish_and_clear();
        Ok(done)
    }

    fn ask(&self, axes: &[GridAxis], cell: &[usize], dataset: &Dataset, data: &str, dir: PathBuf) -> Result<RunAsk> {
        let value = |key: &str| value_of(axes, cell, key);
        let method: &'static AdapterSpec = methods::adapter(value("method").unwrap_or(&self.method))?;
        let settings: Vec<String> = axes
            .iter()
            .zip(cell)
            .filter(|(axis, _)| !["method", "views", "seed", "prompt"].contains(&axis.key.as_str()))
            .map(|(axis, &i)| format!("{}={}", axis.key, axis.values[i]))
            .collect();
        let number = |key: &str| {
            value(key).map(|text| text.parse::<u64>().with_context(|| format!("--set {key}={text}"))).transpose()
        };
        // All cells share one set of views, so that features are computed once.
        let (policy, views) = self.setup.views_for(
            method,
            dataset.family,
            &dataset.name,
            method.needs.default_views.max(self.most_views(axes)),
        )?;
        Ok(RunAsk {
            data: data.to_owned(),
            method,
            options: options_of(&super::settings::table(&settings)?, method.name, 1)?,
            views: number("views")?.map_or(views, |n| n as usize),
            policy,
            seed: number("seed")?.unwrap_or(0),
            order_seed: self.setup.order_seed,
            limit: self.setup.limit,
            shard: None,
            max_errors: self.setup.max_errors,
            resume: self.resume,
            dir,
        })
    }

    fn most_views(&self, axes: &[GridAxis]) -> usize {
        let named = axes.iter().filter(|axis| axis.key == "method").flat_map(|axis| &axis.values);
        named.filter_map(|name| methods::adapter(name).ok()).map(|spec| spec.needs.default_views).max().unwrap_or(1)
    }
}

/// What an axis says in a cell.
fn value_of<'a>(axes: &'a [GridAxis], cell: &[usize], key: &str) -> Option<&'a str> {
    axes.iter().zip(cell).find(|(axis, _)| axis.key == key).map(|(axis, &i)| axis.values[i].as_str())
}

/// The prompts of the grid; `None` for the one that the options name.
fn prompts_of(axes: &[GridAxis]) -> Vec<Option<&str>> {
    let axis = axes.iter().find(|axis| axis.key == "prompt");
    axis.map_or_else(|| vec![None], |axis| axis.values.iter().map(|value| Some(value.as_str())).collect())
}

fn describe(axes: &[GridAxis], cell: &[usize]) -> String {
    axes.iter().zip(cell).map(|(axis, &i)| format!("{}={}", axis.key, axis.values[i])).collect::<Vec<_>>().join(" ")
}

fn table(axes: &[GridAxis], done: &[Done], dataset: &str) -> Table {
    let header =
        axes.iter().map(|axis| axis.key.clone()).chain(["top-1", "ECE", "encode s", "adapt s"].map(String::from));
    let mut table = Table::new(format!("Sweep on {dataset}"), header);
    for run in done {
        let mut row: Vec<Cell> = axes.iter().zip(&run.cell).map(|(axis, &i)| Cell::text(&axis.values[i])).collect();
        row.extend([
            Cell::percent(run.top1),
            Cell::percent(run.ece),
            Cell::number(run.encode, 2),
            Cell::number(run.adapt, 2),
        ]);
        table.push(row);
    }
    table.mark_best([axes.len()]);
    table.notes.push("top-1 and ECE in per cent; every cell answers the same views".into());
    table
}

fn write(folder: &Path, axes: &[GridAxis], done: &[Done], dataset: &str, table: &Table) -> Result<Section> {
    let named: Vec<(String, Vec<String>)> = axes.iter().map(|axis| (axis.key.clone(), axis.values.clone())).collect();
    let values: Vec<(Vec<usize>, f64)> = done.iter().map(|run| (run.cell.clone(), run.top1)).collect();
    let figures = sweep_figures(&named, &values, dataset);
    for (number, figure) in figures.iter().enumerate() {
        flatclip::files::write_atomic(&folder.join(format!("figure-{}.svg", number + 1)), figure.to_svg().as_bytes())?;
    }
    flatclip::files::write_atomic(&folder.join("table.csv"), table.to_csv().as_bytes())?;
    flatclip::files::write_atomic(&folder.join("table.md"), table.to_markdown().as_bytes())?;
    Ok(Section { title: dataset.to_owned(), tables: vec![table.clone()], figures, ..Section::default() })
}

/// The first cell of every data set: what the whole sweep shares.
fn first_runs(out: &Path) -> Result<Vec<Run>> {
    let found = flatclip::report::find_runs(&[out.to_path_buf()])?;
    let first = found.iter().filter(|path| path.file_name().is_some_and(|name| name == "0000"));
    Ok(first.map(|path| Run::read(path)).collect::<flatclip::Result<_>>()?)
}
