//! What people and machines see: tables or JSON on stdout, notes and progress on stderr.

use crate::hints::as_flags;
use crate::progress::{Stage, interrupt_code, stop_at_signals};
use anyhow::Result;
use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Row, Table, TableStyle};
use flatclip::{Error, Progress};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// Finished, with failures that were counted and listed.
    Counted = 1,
    /// None of the images could be read.
    Unread = 3,
}

impl Exit {
    /// `Done`, unless something failed.
    pub(crate) fn unless(failed: bool) -> Self {
        if failed { Self::Counted } else { Self::Done }
    }

    /// The code of an error: 128 + n after signal n, 4 for a full disk, 3 for an image that cannot be read, else 2.
    pub(crate) fn of_error(error: &anyhow::Error) -> ExitCode {
        let code = known(error).map_or("", Error::code);
        if let Some(signal) = interrupt_code().filter(|_| code == "interrupted") {
            return ExitCode::from(signal);
        }
        let kind = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(known) => system_kind(known),
            None => cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
        });
        ExitCode::from(match (kind, code) {
            (Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge), _) => 4,
            (_, "image.unreadable") => 3,
            _ => 2,
        })
    }
}

fn known(error: &anyhow::Error) -> Option<&Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// The kind of the system's error inside one of ours.
fn system_kind(error: &Error) -> Option<ErrorKind> {
    match error {
        Error::Hinted { error, .. } => system_kind(error),
        Error::Io { reason, .. } => Some(reason.kind()),
        _ => None,
    }
}

/// The command that resumes interrupted work: the same line, with `--resume` where the command has it.
fn again() -> String {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let resumes = words.iter().any(|word| ["eval", "sweep", "tune"].contains(&word.as_str()));
    if resumes && !words.iter().any(|word| word == "--resume") {
        words.push("--resume".to_owned());
    }
    format!("resume with: flatclip {}", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// A word as a POSIX shell takes it.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn with_traces<S>(log: S) -> bool
where
    S: tracing::Subscriber + for<'s> tracing_subscriber::registry::LookupSpan<'s> + Send + Sync,
{
    #[cfg(feature = "otel")]
    let log = tracing_subscriber::layer::SubscriberExt::with(log, crate::traces::layer());
    tracing_subscriber::util::SubscriberInitExt::try_init(log).is_ok()
}

/// Where a command writes, and what watches its work.
pub(crate) struct Output {
    pub(crate) is_json: bool,
    quiet: bool,
    stage: Mutex<Option<Stage>>,
}

impl Output {
    /// The log of a service is its output: more detailed, with times.
    pub(crate) fn new(json: bool, quiet: bool, verbose: u8, service: bool) -> Self {
        let level = match (quiet, verbose + u8::from(service)) {
            (true, _) | (_, 0) => "warn",
            (_, 1) => "info",
            _ => "debug",
        };
        let log = tracing_subscriber::fmt().with_env_filter(format!("flatclip={level},flatclip_serve={level}"));
        let log = log.with_writer(std::io::stderr).with_target(false).with_ansi(std::io::stderr().is_terminal());
        // A subscriber can only be set once; tests that run several commands in one process keep the first.
        let _ = match (service, json) {
            (true, true) => with_traces(log.json().flatten_event(true).finish()),
            (true, false) => with_traces(log.finish()),
            (false, _) => log.without_time().try_init().is_ok(),
        };
        Self { is_json: json, quiet, stage: Mutex::default() }
    }

    /// The same for work that an interrupt stops only when it has saved what is done.
    pub(crate) fn interruptible(&self) -> Result<&Self> {
        stop_at_signals()?;
        Ok(self)
    }

    /// A result as JSON, one document on stdout; with the version of its layout.
    pub(crate) fn json<T: Serialize>(&self, value: &T) -> Result<()> {
        let mut document = serde_json::to_value(value)?;
        if let Some(entries) = document.as_object_mut().filter(|entries| !entries.contains_key("schema_version")) {
            entries.insert("schema_version".to_owned(), 1.into());
        }
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut stdout, &document).map_err(std::io::Error::from)?;
        writeln!(stdout)?;
        Ok(())
    }

    /// A result as text, one line (or more) on stdout.
    pub(crate) fn line(&self, text: impl std::fmt::Display) -> Result<()> {
        writeln!(std::io::stdout().lock(), "{}", harmless(text))?;
        Ok(())
    }

    /// A result as JSON where that was asked for, else as text.
    pub(crate) fn say<T: Serialize>(&self, value: &T, text: impl std::fmt::Display) -> Result<()> {
        if self.is_json { self.json(value) } else { self.line(text) }
    }

    /// A table without rules but the one below the header.
    pub(crate) fn rows<R: Into<Row>>(&self, header: &[&str], rows: impl IntoIterator<Item = R>) -> Result<()> {
        let mut table = Table::new();
        let rule = LineStyle::none().fill('─').junction('─');
        table.load_style(TableStyle::new().header_separator(rule)).set_header(header.iter().copied());
        // On a terminal, cells are wrapped where the table would be wider; the first column holds names, which people copy.
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = stated_width() {
            table.set_width(width);
        }
        if let Some(first) = table.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
        self.line(table.add_rows(rows))
    }

    /// A table of results as text; on a terminal it fits its width.
    pub(crate) fn fitted(&self, table: &flatclip_lab::report::Table) -> String {
        let terminal = stated_width().or_else(|| Table::new().width());
        table.to_text_within(terminal.map_or(usize::MAX, usize::from))
    }

    /// Something worth knowing that is not a result, on stderr.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            self.aside(harmless(text));
        }
    }

    /// Something that may spoil the result, on stderr; quiet or not.
    pub(crate) fn warn(&self, text: impl std::fmt::Display) {
        self.aside(format_args!("warning: {}", harmless(text)));
    }

    /// The whole chain of an error in one line, on stderr; as JSON when asked for.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let known = known(error);
        let code = known.map_or("usage", Error::code);
        let hint = match known.and_then(Error::hint) {
            _ if code == "interrupted" => Some(again()),
            hint => hint.map(as_flags),
        };
        self.fault(&format!("{error:#}"), code, hint.as_deref());
    }

    pub(crate) fn fault(&self, error: &str, code: &str, hint: Option<&str>) {
        match (self.is_json, hint) {
            (true, _) => {
                self.aside(serde_json::json!({ "schema_version": 1, "error": error, "code": code, "hint": hint }));
            }
            (_, Some(hint)) => self.aside(format_args!("error: {}; {hint}", harmless(error))),
            _ => self.aside(format_args!("error: {}", harmless(error))),
        }
    }

    /// A line on stderr that does not tear the bar.
    fn aside(&self, text: impl std::fmt::Display) {
        let write = || _ = writeln!(std::io::stderr().lock(), "{text}");
        match &*self.stage() {
            Some(stage) => stage.bar.suspend(write),
            None => write(),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Option<Stage>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Output {
    fn start(&self, stage: &str, total: Option<u64>) {
        self.finish();
        *self.stage() = Some(Stage::new(stage, total.unwrap_or(0), self.quiet, Instant::now()));
    }

    fn advance(&self, done: u64, status: &str) {
        let line = self.stage().as_mut().and_then(|stage| stage.advance(done, status, Instant::now()));
        if let Some(line) = line {
            self.note(line);
        }
    }

    fn note(&self, text: &str) {
        self.note(text);
    }

    fn warn(&self, text: &str) {
        self.warn(text);
    }

    fn finish(&self) {
        if let Some(stage) = self.stage().take() {
            stage.bar.finish_and_clear();
        }
    }

    fn cancelled(&self) -> bool {
        interrupt_code().is_some()
    }
}

/// Columns that the caller states, for output that goes to no terminal: `COLUMNS=80 flatclip models | less`.
fn stated_width() -> Option<u16> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|&columns| columns >= 20)
}

/// Text for people that cannot steer a terminal, whatever a file has put into it: lines and tabs stay, other control
/// characters become escapes.
pub(crate) fn harmless(text: impl std::fmt::Display) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let text = text.to_string();
    if !text.contains(steers) {
        return text;
    }
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_break_is_quoted() {
        assert_eq!(quoted("runs/a-b"), "runs/a-b");
        assert_eq!(quoted("a photo of a {}."), "'a photo of a {}.'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
