//! `flatclip report`: tables and a page of finished runs, landscapes and analyses; `flatclip report merge`: shards to one run.

use crate::output::{Exit, Output};
use anyhow::{Result, ensure};
use clap::ValueEnum as _;
use flatclip_lab::eval::metrics::Temperature;
use flatclip_lab::report::landscape::LandscapeRecord;
use flatclip_lab::report::{
    AnalysisRecord, ConfusionMatrix, Page, RowOrder, Run, Section, TOLERANCE, Table, TemperatureChoice, against_paper,
    benchmark_table, ece_bars, find_runs, metrics_table, paired_table, reliability, score_quantiles, temperature_table,
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
    /// Only these tables: methods, runs, paper, paired, confusion, findings; several separated by commas
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAME")]
    table: Vec<Kind>,
    /// Write each table to a file of its own in this folder, in the given format
    #[arg(long, value_name = "DIR")]
    tables: Option<PathBuf>,
    /// Write one self-contained page with tables, figures and provenance
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Order of rows: the paper's (others behind, as given), or as given (runs of a folder by name)
    #[arg(long, default_value = "paper", value_parser = ["paper", "given"], value_name = "ORDER")]
    order: String,
    /// Compare runs on the same samples (McNemar, paired bootstrap), each with the first row of its data set
    #[arg(long)]
    paired: bool,
    /// The row that --paired compares with: a run directory, `prompt + method`, a method or a prompt; implies --paired
    #[arg(long, value_name = "ROW")]
    reference: Option<String>,
    /// Show calibration at this temperature, too; the runs must have kept their probabilities
    #[arg(long, value_name = "T", conflicts_with = "fit_temperature")]
    temperature: Option<f64>,
    /// The same with the temperature fitted on held-out runs that differ in nothing but the split (repeatable)
    #[arg(long, value_name = "RUN")]
    fit_temperature: Vec<PathBuf>,
    /// Which classes each run takes for which: the N most frequent pairs; with --html the matrix too
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    confusion: Option<usize>,
}

/// What a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Methods,
    Runs,
    Paper,
    Paired,
    Temperature,
    Confusion,
    Findings,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Merge the shards of a run; the result is byte-identical to a single-process run
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
        let summary = flatclip_lab::eval::merge(parts, target)?;
        out.say(
            &json!({ "schema_version": 1, "out": target, "summary": summary }),
            format_args!(
                "{} samples, top-1 {:.2} %, in {}",
                summary.samples,
                100.0 * summary.metrics.top1,
                target.display()
            ),
        )?;
        return Ok(if summary.failed == 0 { Exit::Done } else { Exit::Counted });
    }
    ensure!(!args.runs.is_empty(), "which runs? give run directories or a folder that holds some");
    let (others, folders) = findings(&args.runs)?;
    let (mut runs, unfinished) = if folders.is_empty() { (Vec::new(), 0) } else { read(&folders, out)? };
    args.order().sort(&mut runs);
    ensure!(!runs.is_empty() || !others.is_empty(), "no finished run, landscape or analysis among the given ones");
    let mut tables = if runs.is_empty() { Vec::new() } else { tables(&args, &runs)? };
    let of_runs = tables.clone();
    tables.extend(others.iter().flat_map(|section| section.tables.clone()).map(|table| (Kind::Findings, table)));
    tables.retain(|(kind, _)| args.table.is_empty() || args.table.contains(kind));
    ensure!(
        !tables.is_empty(),
        "--table: these runs have no such table (--against paper and --paired make two of them)"
    );
    if let Some(folder) = &args.tables {
        write_tables(folder, &tables, &args.format)?;
        out.note(format_args!("{}: {} tables", folder.display(), tables.len()));
    }
    let tables: Vec<Table> = tables.into_iter().map(|(_, table)| table).collect();
    if out.is_json() {
        out.json(&json!({ "schema_version": 1, "runs": runs, "tables": tables }))?;
    } else if args.tables.is_none() {
        for table in &tables {
            out.line(if args.format == "text" { out.fitted(table) } else { written(table, &args.format).0 })?;
        }
    }
    if let Some(path) = &args.html {
        let mut page = page(&runs, of_runs, others);
        if args.confusion.is_some() {
            let before = page.sections.len().saturating_sub(1);
            page.sections.insert(before, confusion_section(&runs)?);
        }
        flatclip::files::write_atomic(path, page.to_html().as_bytes())?;
        out.note(format_args!("page: {}", path.display()));
    }
    let failed = runs.iter().any(|run| run.summary.failed > 0);
    Ok(if unfinished == 0 && !failed { Exit::Done } else { Exit::Counted })
}

impl Args {
    fn order(&self) -> RowOrder {
        if self.order == "given" { RowOrder::Given } else { RowOrder::Paper }
    }
}

fn read(paths: &[PathBuf], out: &Output) -> Result<(Vec<Run>, usize)> {
    let (mut runs, mut unfinished) = (Vec::new(), 0);
    for path in find_runs(paths)? {
        match Run::read(&path) {
            Ok(run) => runs.push(run),
            Err(error) => {
                unfinished += 1;
                let hint = error.hint().map_or(String::new(), |hint| format!("; {}", crate::hints::as_flags(hint)));
                out.warn(format_args!("{error}{hint}"));
            }
        }
    }
    Ok((runs, unfinished))
}

/// The main table first.
fn tables(args: &Args, runs: &[Run]) -> Result<Vec<(Kind, Table)>> {
    let order = args.order().note();
    let ordered = |mut table: Table| {
        table.notes.push(order.into());
        table
    };
    let mut tables = vec![(Kind::Methods, ordered(benchmark_table(runs, "Methods by data sets")))];
    if args.against.is_some() {
        tables.push((Kind::Paper, against_paper(runs, args.tolerance)));
    }
    if args.paired || args.reference.is_some() {
        tables.push((Kind::Paired, paired_table(runs, args.reference.as_deref())?));
    }
    if let Some(value) = args.temperature {
        let choice = TemperatureChoice::Given(Temperature::new(value)?);
        tables.push((Kind::Temperature, temperature_table(runs, &choice)?));
    }
    if !args.fit_temperature.is_empty() {
        let held_out =
            find_runs(&args.fit_temperature)?.iter().map(|path| Run::read(path)).collect::<Result<_, _>>()?;
        tables.push((Kind::Temperature, temperature_table(runs, &TemperatureChoice::Fitted(held_out))?));
    }
    tables.push((Kind::Runs, ordered(metrics_table(runs))));
    if let Some(most) = args.confusion {
        tables.extend(ConfusionMatrix::of_all(runs)?.iter().map(|matrix| (Kind::Confusion, matrix.table(most))));
    }
    Ok(tables)
}

/// A table in a format, and the ending of its file.
fn written(table: &Table, format: &str) -> (String, &'static str) {
    match format {
        "markdown" => (table.to_markdown(), "md"),
        "latex" => (table.to_latex(), "tex"),
        "csv" => (table.to_csv(), "csv"),
        _ => (table.to_text(), "txt"),
    }
}

/// `methods.tex`, `runs.tex`; several of a kind are numbered.
fn write_tables(folder: &Path, tables: &[(Kind, Table)], format: &str) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(flatclip::Error::io(folder))?;
    for (number, (kind, table)) in tables.iter().enumerate() {
        let same = tables[..number].iter().filter(|(other, _)| other == kind).count();
        let count = if same > 0 { format!("-{}", same + 1) } else { String::new() };
        let (text, ending) = written(table, format);
        let path = folder.join(format!(
            "{}{count}.{ending}",
            kind.to_possible_value().as_ref().map_or("", |value| value.get_name())
        ));
        flatclip::files::write_atomic(&path, text.as_bytes())?;
    }
    Ok(())
}

fn confusion_section(runs: &[Run]) -> Result<Section> {
    let figures = ConfusionMatrix::of_all(runs)?.iter().map(ConfusionMatrix::figure).collect();
    let text = "A row is a true class, a column an answer; a perfect run has only its diagonal.".into();
    Ok(Section { title: "Confusions".into(), text, figures, folded: true, ..Section::default() })
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
fn page(runs: &[Run], tables: Vec<(Kind, Table)>, findings: Vec<Section>) -> Page {
    if runs.is_empty() {
        return Page { title: "flatclip report".into(), sections: findings, ..Page::default() };
    }
    // A single run has no details to fold away.
    let many = runs.len() > 1;
    let main = |kind: Kind| matches!(kind, Kind::Methods | Kind::Paper) || (kind == Kind::Runs && !many);
    let (main, details): (Vec<_>, Vec<_>) = tables.into_iter().partition(|(kind, _)| main(*kind));
    let only = |tables: Vec<(Kind, Table)>| tables.into_iter().map(|(_, table)| table).collect::<Vec<Table>>();
    let mut sections = vec![Section { title: "Results".into(), tables: only(main), ..Section::default() }];
    if many {
        sections[0].figures.push(top1_bars(runs));
    }
    sections.push(Section {
        title: "Calibration".into(),
        text: "How far confidence is from accuracy.".into(),
        figures: if many { vec![ece_bars(runs)] } else { reliability(runs) },
        ..Section::default()
    });
    let scores = score_quantiles(runs);
    if !scores.is_empty() {
        sections.push(Section {
            title: "Accuracy by score".into(),
            text: "Does a lower score of the selected views mean a more reliable answer?".into(),
            figures: scores,
            ..Section::default()
        });
    }
    if many {
        let text = "Accuracy against confidence, all seeds of a row together; a calibrated row lies on the diagonal.";
        sections.push(Section {
            title: "Reliability diagrams".into(),
            text: text.into(),
            figures: reliability(runs),
            folded: true,
            ..Section::default()
        });
    }
    if !details.is_empty() {
        let title = format!("Every run ({})", runs.len());
        sections.push(Section { title, tables: only(details), folded: true, ..Section::default() });
    }
    let failures: Vec<String> = runs
        .iter()
        .flat_map(|run| run.summary.failures.iter().map(|(id, why)| format!("{}: {id}: {why}", run.provenance.dataset)))
        .collect();
    if !failures.is_empty() {
        let mut table = Table::new("Samples that could not be answered", ["sample"]);
        failures.into_iter().for_each(|line| table.push(vec![flatclip_lab::report::Cell::text(line)]));
        sections.push(Section { title: "Bad samples".into(), tables: vec![table], ..Section::default() });
    }
    sections.extend(findings);
    sections.push(Page::provenance(runs));
    Page { title: "flatclip report".into(), sections, ..Page::default() }
}
