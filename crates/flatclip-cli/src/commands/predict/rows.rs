//! Rows of answers, each written as it comes: a table, CSV or JSON lines, to the terminal or to a file that can be continued.

use super::Args;
use super::continued::{Continued, continued};
use crate::output::{Output, harmless};
use crate::prelude::*;
use flatclip::methods::Kind;
use flatclip::{Answer, Classifier, Model};
use std::collections::HashMap;
use std::io::{BufWriter, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Csv,
    Jsonl,
}

pub(super) struct Rows {
    layout: Layout,
    to: Box<dyn Write>,
    /// The file, where rows go to one that can be continued.
    pub(super) file: Option<PathBuf>,
    /// The images that the file has rows of, as they are now, and their content (SHA-256).
    pub(super) done: HashMap<String, String>,
    /// Content of the image that is answered next; empty where it cannot be read, or nothing is continued.
    pub(super) content: String,
    top: usize,
    written: usize,
    failures: Vec<Value>,
}

enum Layout {
    /// One image: its classes, one below the other.
    Single,
    /// Many: one line each, columns of this width.
    Table {
        image: usize,
        class: usize,
    },
    Csv,
    Jsonl,
    /// One JSON document, written piece by piece.
    Document,
}

impl Rows {
    pub(super) fn open(
        args: &Args,
        classifier: &Classifier,
        model: &Model,
        files: &[PathBuf],
        out: &Output,
    ) -> Result<Self> {
        let wide = |names: &mut dyn Iterator<Item = String>| names.map(|name| name.chars().count()).max().unwrap_or(0);
        let layout = match format(args, out)? {
            Some(Format::Csv) => Layout::Csv,
            Some(Format::Jsonl) => Layout::Jsonl,
            None if out.is_json => Layout::Document,
            _ if files.len() == 1 => Layout::Single,
            _ => Layout::Table {
                image: wide(&mut files.iter().map(|file| file.display().to_string())).clamp(7, 60),
                class: wide(&mut classifier.classes().iter().cloned()).clamp(5, 30),
            },
        };
        let mut rows = Self {
            layout,
            to: Box::new(std::io::stdout()),
            file: args.out.clone(),
            done: HashMap::new(),
            content: "sha256".to_owned(),
            top: args.top.clamp(1, classifier.classes().len().max(1)),
            written: 0,
            failures: Vec::new(),
        };
        let mut fresh = true;
        if let Some(path) = &args.out {
            let settings = super::settings(args, classifier, model)?;
            let Continued { file, done, had, replaced } =
                continued(path, &settings, matches!(rows.layout, Layout::Csv), files)?;
            if had > 0 {
                // A stream cannot be continued without what it has learned.
                ensure!(
                    classifier.kind() != Kind::Online,
                    "{}: {} learns from its stream, so a file cannot be continued; give another --out",
                    path.display(),
                    classifier.method()
                );
                out.note(format_args!("{}: {} answered already, skipped", path.display(), images(done.len())));
                fresh = false;
            }
            if replaced > 0 {
                out.note(format_args!("{}: {} changed since, answered again", path.display(), images(replaced)));
            }
            (rows.to, rows.done) = (Box::new(BufWriter::new(file)), done);
        }
        match rows.layout {
            Layout::Csv if fresh => {
                let top = (2..=rows.top).flat_map(|n| [format!("class{n}"), format!("probability{n}")]);
                rows.csv(["image", "prediction", "probability", "code", "error"], top)?;
            }
            Layout::Table { image, class } => {
                writeln!(rows.to, " {:image$}   {:class$}   probability   then", "image", "class")?;
                writeln!(rows.to, "{}", "─".repeat(image + class + 28))?;
            }
            Layout::Document => {
                let (method, model) = (json!(classifier.method()), json!(args.model.name()));
                write!(rows.to, "{{\"schema_version\": 1, \"method\": {method}, \"model\": {model}, \"results\": [")?;
            }
            _ => {}
        }
        Ok(rows)
    }

    /// Whether a failure is a row of its own.
    pub(super) fn shows_failures(&self) -> bool {
        matches!(self.layout, Layout::Csv | Layout::Jsonl) && self.file.is_none()
    }

    pub(super) fn answer(&mut self, file: &Path, answer: &Answer) -> Result<()> {
        let name = file.to_string_lossy();
        let ranked = answer.ranked(self.top);
        let Some(&(_, class, p)) = ranked.first() else { bail!("{name}: an answer without classes") };
        match self.layout {
            Layout::Single => {
                let rows: Vec<(String, f32)> = ranked.iter().map(|(_, class, p)| (printable(class), *p)).collect();
                let width = rows.iter().map(|(class, _)| class.chars().count()).max().unwrap_or(0).max(5);
                writeln!(self.to, " {:width$}   probability ", "class")?;
                writeln!(self.to, "{}", "─".repeat(width + 16))?;
                for (class, p) in &rows {
                    writeln!(self.to, " {class:width$}   {p:.4} ")?;
                }
            }
            Layout::Table { image, class: width } => {
                let then = |(_, class, p): &(usize, &str, f32)| format!("{} {p:.3}", printable(class));
                let rest: Vec<String> = ranked.iter().skip(1).map(then).collect();
                let (name, class) = (printable(&name), printable(class));
                writeln!(self.to, " {name:image$}   {class:width$}   {p:<11.4}   {}", rest.join(", "))?;
            }
            Layout::Csv => {
                let rest = ranked.iter().skip(1).flat_map(|(_, class, p)| [(*class).to_owned(), p.to_string()]);
                self.csv([&*name, class, &p.to_string(), "", ""], rest)?;
            }
            Layout::Jsonl => self.json_line(object(&name, answer, ranked.len()))?,
            Layout::Document => {
                let comma = if self.written > 0 { "," } else { "" };
                write!(self.to, "{comma}\n{}", object(&name, answer, ranked.len()))?;
            }
        }
        self.written += 1;
        Ok(self.to.flush()?)
    }

    pub(super) fn failure(&mut self, file: &Path, error: &flatclip::Error) -> Result<()> {
        let (name, code, error) = (file.to_string_lossy(), error.code(), error.to_string());
        match self.layout {
            Layout::Csv => self.csv([&*name, "", "", code, &error], vec![String::new(); 2 * (self.top - 1)])?,
            Layout::Jsonl => {
                self.json_line(json!({ "schema_version": 1, "image": name, "error": error, "code": code }))?;
            }
            Layout::Document => self.failures.push(json!({ "image": name, "error": error, "code": code })),
            _ => return Ok(()),
        }
        Ok(self.to.flush()?)
    }

    /// A line of CSV, with the column of the content in a file that can be continued.
    fn csv(&mut self, fields: [&str; 5], rest: impl IntoIterator<Item = String>) -> std::io::Result<()> {
        let content = self.file.iter().map(|_| self.content.clone());
        let fields = fields.map(str::to_owned).into_iter().chain(rest).chain(content);
        writeln!(self.to, "{}", fields.map(|field| quoted(&field)).collect::<Vec<_>>().join(","))
    }

    fn json_line(&mut self, mut row: Value) -> std::io::Result<()> {
        if self.file.is_some() {
            row["sha256"] = self.content.as_str().into();
        }
        writeln!(self.to, "{row}")
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        if let Layout::Document = self.layout {
            writeln!(self.to, "\n], \"failures\": {}}}", Value::from(std::mem::take(&mut self.failures)))?;
        }
        Ok(self.to.flush()?)
    }
}

fn object(name: &str, answer: &Answer, top: usize) -> Value {
    let mut row = json!({ "schema_version": 1, "image": name });
    if let (Some(row), Value::Object(answer)) = (row.as_object_mut(), json!(answer.report(top))) {
        row.extend(answer);
    }
    row
}

fn images(count: usize) -> String {
    format!("{count} image{}", if count == 1 { "" } else { "s" })
}

/// A name that cannot steer a terminal.
fn printable(name: &str) -> String {
    harmless(name).replace('\n', "\\n").replace('\t', "\\t")
}

pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// The format of `--format` or of the file's ending; they must agree.
fn format(args: &Args, out: &Output) -> Result<Option<Format>> {
    let Some(path) = &args.out else { return Ok(args.format) };
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let of_ending = match ending.as_str() {
        "csv" => Some(Format::Csv),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        _ => None,
    };
    match (args.format, of_ending) {
        (Some(asked), Some(found)) if asked != found => {
            bail!("--out {}: the ending says another format than --format", path.display())
        }
        (None | Some(Format::Table), None) => {
            bail!("--out {}: expected a file that ends with .csv or .jsonl", path.display())
        }
        (asked, found) => {
            if out.is_json {
                bail!("--json prints one document: give it without --out, or --out with --format jsonl");
            }
            Ok(asked.or(found))
        }
    }
}
