//! `flatclip report`: tables and a page of finished runs, landscapes and analyses; `flatclip report merge`: shards to one run.

use crate::prelude::*;
use flatclip_lab::eval::metrics::Temperature;
use flatclip_lab::report::{
    ConfusionMatrix, Page, RowOrder, Run, TOLERANCE, Table, TableKind, TemperatureChoice, against_paper,
    benchmark_table, find_runs, findings, metrics_table, paired_table, temperature_table,
};

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
    #[arg(long, value_delimiter = ',', value_parser = TableKind::ALL.map(TableKind::name), value_name = "NAME")]
    table: Vec<String>,
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
        let (samples, top1) = (summary.samples, 100.0 * summary.metrics.top1);
        out.say(
            &json!({ "schema_version": 1, "out": target, "summary": summary }),
            format_args!("{samples} samples, top-1 {top1:.2} %, in {}", target.display()),
        )?;
        return Ok(Exit::unless(summary.failed > 0));
    }
    ensure!(!args.runs.is_empty(), "which runs? give run directories or a folder that holds some");
    let (others, folders) = findings(&args.runs)?;
    let (mut runs, unfinished) = if folders.is_empty() { (Vec::new(), 0) } else { read(&folders, out)? };
    let order = if args.order == "given" { RowOrder::Given } else { RowOrder::Paper };
    order.sort(&mut runs);
    ensure!(!runs.is_empty() || !others.is_empty(), "no finished run, landscape or analysis among the given ones");
    let mut tables = if runs.is_empty() { Vec::new() } else { tables(&args, &runs, order)? };
    let of_runs = tables.clone();
    tables.extend(others.iter().flat_map(|section| section.tables.clone()).map(|table| (TableKind::Findings, table)));
    tables.retain(|(kind, _)| args.table.is_empty() || args.table.iter().any(|name| name == kind.name()));
    ensure!(
        !tables.is_empty(),
        "--table: these runs have no such table (--against paper and --paired make two of them)"
    );
    if let Some(folder) = &args.tables {
        write_tables(folder, &tables, &args.format)?;
        out.note(format_args!("{}: {} tables", folder.display(), tables.len()));
    }
    let tables: Vec<Table> = tables.into_iter().map(|(_, table)| table).collect();
    if out.is_json {
        out.json(&json!({ "schema_version": 1, "runs": runs, "tables": tables }))?;
    } else if args.tables.is_none() {
        for table in &tables {
            out.line(if args.format == "text" { out.fitted(table) } else { written(table, &args.format).0 })?;
        }
    }
    if let Some(path) = &args.html {
        let page = Page::of_report(&runs, of_runs, others, args.confusion.is_some())?;
        write_atomic(path, page.to_html().as_bytes())?;
        out.note(format_args!("page: {}", path.display()));
    }
    Ok(Exit::unless(unfinished > 0 || runs.iter().any(|run| run.summary.failed > 0)))
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

fn tables(args: &Args, runs: &[Run], order: RowOrder) -> Result<Vec<(TableKind, Table)>> {
    let ordered = |mut table: Table| {
        table.notes.push(order.note().into());
        table
    };
    let mut tables = vec![(TableKind::Methods, ordered(benchmark_table(runs, "Methods by data sets")))];
    if args.against.is_some() {
        tables.push((TableKind::Paper, against_paper(runs, args.tolerance)));
    }
    if args.paired || args.reference.is_some() {
        tables.push((TableKind::Paired, paired_table(runs, args.reference.as_deref())?));
    }
    if let Some(value) = args.temperature {
        let choice = TemperatureChoice::Given(Temperature::new(value)?);
        tables.push((TableKind::Temperature, temperature_table(runs, &choice)?));
    }
    if !args.fit_temperature.is_empty() {
        let held_out =
            find_runs(&args.fit_temperature)?.iter().map(|path| Run::read(path)).collect::<Result<_, _>>()?;
        tables.push((TableKind::Temperature, temperature_table(runs, &TemperatureChoice::Fitted(held_out))?));
    }
    tables.push((TableKind::Runs, ordered(metrics_table(runs))));
    if let Some(most) = args.confusion {
        tables.extend(ConfusionMatrix::of_all(runs)?.iter().map(|matrix| (TableKind::Confusion, matrix.table(most))));
    }
    Ok(tables)
}

fn written(table: &Table, format: &str) -> (String, &'static str) {
    match format {
        "markdown" => (table.to_markdown(), "md"),
        "latex" => (table.to_latex(), "tex"),
        "csv" => (table.to_csv(), "csv"),
        _ => (table.to_text(), "txt"),
    }
}

/// `methods.tex`, `runs.tex`; several of a kind are numbered.
fn write_tables(folder: &Path, tables: &[(TableKind, Table)], format: &str) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(flatclip::Error::io(folder))?;
    for (number, (kind, table)) in tables.iter().enumerate() {
        let same = tables[..number].iter().filter(|(other, _)| other == kind).count();
        let count = if same > 0 { format!("-{}", same + 1) } else { String::new() };
        let (text, ending) = written(table, format);
        let path = folder.join(format!("{}{count}.{ending}", kind.name()));
        write_atomic(&path, text.as_bytes())?;
    }
    Ok(())
}
