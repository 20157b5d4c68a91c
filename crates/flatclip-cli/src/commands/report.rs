//! `flatclip report`: tables and a page of finished runs, landscapes and analyses; `flatclip report merge`: shards to one run.

use crate::output::{Exit, Output};
use anyhow::{Result, ensure};
use flatclip::eval::metrics::Temperature;
use flatclip::report::landscape::LandscapeRecord;
use flatclip::report::{
    AnalysisRecord, ConfusionMatrix, Page, Run, Section, TOLERANCE, Table, TemperatureChoice, against_paper,
    benchmark_table, find_runs, metrics_table, paired_table, reliability, score_quantiles, temperature_table,
    top1_bars,
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Options of `flatclip report`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Run directories, or folders that hold some; folders of `flatclip landscape` and `flatclip analyze`
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Put published numbers beside ours: `paper`
    #[arg(long, value_parser = ["paper"], value_name = "paper")]
    against: Option<String>,
    /// How many points ours may differ before it is flagged
    #[arg(long, default_value_t = TOLERANCE, value_name = "POINTS")]
    tolerance: f64,
    /// How to print tables: text, markdown, latex or csv
    #[arg(long, default_value = "text", value_parser = ["text", "markdown", "latex", "csv"])]
    format: String,
    /// Write one self-contained page with tables, figures and provenance
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Compare runs on the same samples (McNemar, paired bootstrap), each with the first of its data set
    #[arg(long)]
    paired: bool,
    /// Show calibration at this temperature, too; the runs must have kept their probabilities
    #[arg(long, value_name = "T", conflicts_with = "fit_temperature")]
    temperature: Option<f64>,
    /// The same with the temperature fitted on held-out runs of the same model, prompt and method (repeatable)
    #[arg(long, value_name = "RUN")]
    fit_temperature: Vec<PathBuf>,
    /// Which classes each run takes for which: the N most frequent pairs; with --html the matrix too
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    confusion: Option<usize>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Put the shards of a run together: the same bytes that one run would have written
    Merge {
        /// The shards' run directories
        #[arg(required = true, value_name = "RUN")]
        parts: Vec<PathBuf>,
        /// The new run directory
        #[arg(long, value_name = "RUN")]
        out: PathBuf,
    },
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    if let Some(Verb::Merge { parts, out: target }) = &args.verb {
        let summary = flatclip::eval::merge(parts, target)?;
        if out.is_json() {
            out.json(&json!({ "schema_version": 1, "out": target, "summary": summary }))?;
        } else {
            out.line(format_args!(
                "{} samples, top-1 {:.2} %, in {}",
                summary.samples,
                100.0 * summary.metrics.top1,
                target.display()
            ))?;
        }
        return Ok(if summary.failed == 0 { Exit::Done } else { Exit::Counted });
    }
    ensure!(!args.runs.is_empty(), "which runs? give run directories or a folder that holds some");
    let (others, folders) = findings(&args.runs)?;
    let (runs, unfinished) = if folders.is_empty() { (Vec::new(), 0) } else { read(&folders, out)? };
    ensure!(!runs.is_empty() || !others.is_empty(), "no finished run, landscape or analysis among the given ones");
    let mut tables = if runs.is_empty() { Vec::new() } else { tables(&args, &runs)? };
    let of_runs = tables.clone();
    tables.extend(others.iter().flat_map(|section| section.tables.clone()));
    if out.is_json() {
        out.json(&json!({ "schema_version": 1, "runs": runs, "tables": tables }))?;
    } else {
        for table in &tables {
            out.line(match args.format.as_str() {
                "markdown" => table.to_markdown(),
                "latex" => table.to_latex(),
                "csv" => table.to_csv(),
                _ => table.to_text(),
            })?;
        }
    }
    if let Some(path) = &args.html {
        let mut page = page(&runs, of_runs, others);
        if args.confusion.is_some() {
            page.sections.insert(1, confusion_section(&runs)?);
        }
        flatclip::files::write_atomic(path, page.to_html().as_bytes())?;
        out.note(format_args!("page: {}", path.display()));
    }
    let failed = runs.iter().any(|run| run.summary.failed > 0);
    Ok(if unfinished == 0 && !failed { Exit::Done } else { Exit::Counted })
}

fn read(paths: &[PathBuf], out: &Output) -> Result<(Vec<Run>, usize)> {
    let (mut runs, mut unfinished) = (Vec::new(), 0);
    for path in find_runs(paths)? {
        match Run::read(&path) {
            Ok(run) => runs.push(run),
            Err(error) => {
                unfinished += 1;
                out.warn(error);
            }
        }
    }
    Ok((runs, unfinished))
}

fn tables(args: &Args, runs: &[Run]) -> Result<Vec<Table>> {
    let mut tables = vec![metrics_table(runs)];
    if runs.len() > 1 {
        tables.push(benchmark_table(runs, "Methods by data sets"));
    }
    if args.against.is_some() {
        tables.push(against_paper(runs, args.tolerance));
    }
    if args.paired {
        tables.push(paired_table(runs)?);
    }
    if let Some(value) = args.temperature {
        tables.push(temperature_table(runs, &TemperatureChoice::Given(Temperature::new(value)?))?);
    }
    if !args.fit_temperature.is_empty() {
        let held_out =
            find_runs(&args.fit_temperature)?.iter().map(|path| Run::read(path)).collect::<Result<_, _>>()?;
        tables.push(temperature_table(runs, &TemperatureChoice::Fitted(held_out))?);
    }
    if let Some(most) = args.confusion {
        for run in runs {
            tables.push(ConfusionMatrix::of(run)?.table(most));
        }
    }
    Ok(tables)
}

fn confusion_section(runs: &[Run]) -> Result<Section> {
    let figures = runs.iter().map(|run| Ok(ConfusionMatrix::of(run)?.figure())).collect::<Result<_>>()?;
    let text = "A row is a true class, a column an answer; a perfect run has only its diagonal.".into();
    Ok(Section { title: "Confusions".into(), text, figures, ..Section::default() })
}

/// What the given folders of `flatclip landscape` and `flatclip analyze` hold, and the paths that are neither.
fn findings(paths: &[PathBuf]) -> Result<(Vec<Section>, Vec<PathBuf>)> {
    let (mut sections, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        let found = sections_of(path)?;
        if found.is_empty() {
            others.push(path.clone());
            for folder in folders_in(path) {
                sections.extend(sections_of(&folder)?);
            }
        }
        sections.extend(found);
    }
    Ok((sections, others))
}

fn sections_of(folder: &Path) -> Result<Vec<Section>> {
    let name = folder.file_name().map_or_else(String::new, |name| format!(" ({})", name.to_string_lossy()));
    let landscape = LandscapeRecord::read(folder)?.map(|record| record.section(&format!("Landscape{name}")));
    let analysis = AnalysisRecord::read(folder)?.map(|record| record.sections());
    Ok(landscape.into_iter().chain(analysis.into_iter().flatten()).collect())
}

/// Folders directly inside, by name; a path that cannot be listed is explained by whoever reads runs from it.
fn folders_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The page of a report: what runs answered, then landscapes and analyses, then provenance.
pub(crate) fn page(runs: &[Run], tables: Vec<Table>, findings: Vec<Section>) -> Page {
    if runs.is_empty() {
        return Page { title: "flatclip report".into(), sections: findings, ..Page::default() };
    }
    let mut sections = vec![Section { title: "Results".into(), tables, ..Section::default() }];
    if runs.len() > 1 {
        sections[0].figures.push(top1_bars(runs));
    }
    sections.push(Section {
        title: "Calibration".into(),
        text: "Accuracy against confidence; a calibrated run lies on the diagonal.".into(),
        figures: runs.iter().map(reliability).collect(),
        ..Section::default()
    });
    let scores: Vec<_> = runs.iter().filter_map(score_quantiles).collect();
    if !scores.is_empty() {
        sections.push(Section {
            title: "Accuracy by score".into(),
            text: "Does a lower score of the kept views mean a more reliable answer? Samples in five groups of equal size.".into(),
            figures: scores,
            ..Section::default()
        });
    }
    let failures: Vec<String> = runs
        .iter()
        .flat_map(|run| run.summary.failures.iter().map(|(id, why)| format!("{}: {id}: {why}", run.provenance.dataset)))
        .collect();
    if !failures.is_empty() {
        let mut table = Table::new("Samples that could not be answered", ["sample"]);
        failures.into_iter().for_each(|line| table.push(vec![flatclip::report::Cell::text(line)]));
        sections.push(Section { title: "Bad samples".into(), tables: vec![table], ..Section::default() });
    }
    sections.extend(findings);
    sections.push(Page::provenance(runs));
    Page { title: "flatclip report".into(), sections, ..Page::default() }
}
