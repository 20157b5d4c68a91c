//! Rows of answers, each written as it comes: a table, CSV or JSON lines, to the terminal or to a file that can be continued.

use super::Args;
use super::continued::{Continued, continued};
use crate::output::{Output, harmless};
use anyhow::{Result, bail};
use flatclip::{Answer, Classifier, Model};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Csv,
    Jsonl,
}

/// Where rows go.
pub(super) struct Rows<'a> {
    layout: Layout,
    to: Box<dyn Write + 'a>,
    /// The file, and the content (SHA-256) of the images it has rows of.
    file: Option<(PathBuf, HashMap<String, String>)>,
    /// Content of the image that is answered next; empty where it cannot be read, or nothing is continued.
    content: String,
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
    Document {
        method: &'static str,
        model: String,
    },
}

impl<'a> Rows<'a> {
    pub(super) fn open(
        args: &Args,
        classifier: &Classifier,
        model: &Model,
        files: &[PathBuf],
        out: &Output,
    ) -> Result<Self> {
        let format = format(args, out)?;
        let longest = |names: &mut dyn Iterator<Item = usize>| names.max().unwrap_or(0);
        let layout = match format {
            Some(Format::Csv) => Layout::Csv,
            Some(Format::Jsonl) => Layout::Jsonl,
            None if out.is_json() => {
                Layout::Document { method: classifier.method(), model: args.model.name().to_owned() }
            }
            _ if files.len() == 1 => Layout::Single,
            _ => Layout::Table {
                image: longest(&mut files.iter().map(|f| f.display().to_string().chars().count())).clamp(7, 60),
                class: longest(&mut classifier.classes().iter().map(|c| c.chars().count())).clamp(5, 30),
            },
        };
        let mut rows = Self {
            layout,
            to: Box::new(std::io::stdout()),
            file: None,
            content: String::new(),
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
                super::check_continues(classifier, path)?;
                out.note(format_args!("{}: {} answered already, skipped", path.display(), images(done.len())));
                fresh = false;
            }
            if replaced > 0 {
                out.note(format_args!("{}: {} changed since, answered again", path.display(), images(replaced)));
            }
            rows.to = Box::new(BufWriter::new(file));
            rows.file = Some((path.clone(), done));
        }
        rows.head(fresh)?;
        Ok(rows)
    }

    /// Whether the file has a row of this image as it is now: rows of replaced ones were removed when it was opened.
    pub(super) fn has(&self, image: &Path) -> bool {
        self.file.as_ref().is_some_and(|(_, done)| done.contains_key(&*image.to_string_lossy()))
    }

    /// Whether rows go to a file that can be continued, and so have the content of their images.
    pub(super) fn are_continued(&self) -> bool {
        self.file.is_some()
    }

    /// The next row is of an image with this content.
    pub(super) fn begin(&mut self, content: String) {
        self.content = content;
    }

    /// Rows that an earlier run wrote.
    pub(super) fn kept(&self) -> usize {
        self.file.as_ref().map_or(0, |(_, done)| done.len())
    }

    /// Whether a failure is a row of its own.
    pub(super) fn shows_failures(&self) -> bool {
        matches!(self.layout, Layout::Csv | Layout::Jsonl) && self.file.is_none()
    }

    pub(super) fn where_kept(&self) -> String {
        self.file.as_ref().map_or(String::new(), |(path, _)| format!("; their rows are in {}", path.display()))
    }

    fn head(&mut self, fresh: bool) -> Result<()> {
        match &self.layout {
            Layout::Csv if fresh => {
                let top: Vec<String> =
                    (2..=self.top).flat_map(|n| [format!("class{n}"), format!("probability{n}")]).collect();
                let rest = if top.is_empty() { String::new() } else { format!(",{}", top.join(",")) };
                let content = if self.file.is_some() { ",sha256" } else { "" };
                writeln!(self.to, "image,prediction,probability,code,error{rest}{content}")?;
            }
            Layout::Table { image, class } => {
                writeln!(self.to, " {:image$}   {:class$}   probability   then", "image", "class")?;
                writeln!(self.to, "{}", "─".repeat(image + class + 28))?;
            }
            Layout::Document { method, model } => {
                let (method, model) = (json!(method), json!(model));
                write!(self.to, "{{\"schema_version\": 1, \"method\": {method}, \"model\": {model}, \"results\": [")?;
            }
            _ => {}
        }
        Ok(())
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
                let rest: String =
                    ranked.iter().skip(1).map(|(_, class, p)| format!(",{},{p}", quoted(class))).collect();
                let content = self.last_field();
                writeln!(self.to, "{},{},{p},,{rest}{content}", quoted(&name), quoted(class))?;
            }
            Layout::Jsonl => {
                let row = self.with_content(object(&name, answer, ranked.len()));
                writeln!(self.to, "{row}")?;
            }
            Layout::Document { .. } => {
                let comma = if self.written > 0 { "," } else { "" };
                write!(self.to, "{comma}\n{}", object(&name, answer, ranked.len()))?;
            }
        }
        self.written += 1;
        Ok(self.to.flush()?)
    }

    pub(super) fn failure(&mut self, file: &Path, error: &flatclip::Error) -> Result<()> {
        let name = file.to_string_lossy();
        match self.layout {
            Layout::Csv => {
                let rest = ",".repeat(2 * (self.top - 1)) + &self.last_field();
                writeln!(self.to, "{},,,{},{}{rest}", quoted(&name), error.code(), quoted(&error.to_string()))?;
            }
            Layout::Jsonl => {
                let row =
                    json!({ "schema_version": 1, "image": name, "error": error.to_string(), "code": error.code() });
                let row = self.with_content(row);
                writeln!(self.to, "{row}")?;
            }
            Layout::Document { .. } => {
                self.failures.push(json!({ "image": name, "error": error.to_string(), "code": error.code() }));
            }
            _ => return Ok(()),
        }
        Ok(self.to.flush()?)
    }

    /// The column of the content, in a file that can be continued.
    fn last_field(&self) -> String {
        if self.file.is_some() { format!(",{}", self.content) } else { String::new() }
    }

    fn with_content(&self, mut row: Value) -> Value {
        if self.file.is_some() {
            row["sha256"] = self.content.as_str().into();
        }
        row
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        if let Layout::Document { .. } = self.layout {
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

/// `1 image`, `2 images`.
fn images(count: usize) -> String {
    format!("{count} image{}", if count == 1 { "" } else { "s" })
}

/// A name that cannot steer a terminal.
fn printable(name: &str) -> String {
    harmless(name).replace('\n', "\\n").replace('\t', "\\t")
}

/// A CSV field.
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
            if out.is_json() {
                bail!("--json prints one document: give it without --out, or --out with --format jsonl");
            }
            Ok(asked.or(found))
        }
    }
}
