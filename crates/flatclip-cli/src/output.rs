//! What people and machines see: tables or JSON on stdout, notes and progress on stderr.

use crate::hints::as_flags;
use crate::log_lines::LogLines;
use crate::progress::interrupt_code;
use anyhow::Result;
use comfy_table::{LineStyle, TableStyle};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All done.
    Done,
    /// Finished, with failures that were counted and listed.
    Counted,
    /// None of the images could be read.
    Unread,
}

impl Exit {
    pub(crate) fn code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Counted => ExitCode::from(1),
            Self::Unread => ExitCode::from(3),
        }
    }

    /// The code of an error: 128 + n after signal n, 4 for a full disk, 3 for an image that cannot be read, else 2.
    pub(crate) fn of_error(error: &anyhow::Error) -> ExitCode {
        let known = error.chain().find_map(|cause| cause.downcast_ref::<flatclip::Error>());
        let code = known.map_or("", flatclip::Error::code);
        if let Some(signal) = interrupt_code().filter(|_| code == "interrupted") {
            return ExitCode::from(signal);
        }
        let system = error.chain().find_map(|cause| match cause.downcast_ref::<flatclip::Error>() {
            Some(flatclip::Error::Io { reason, .. }) => Some(reason.kind()),
            Some(_) => None,
            None => cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
        });
        let kind = system.or_else(|| known.and_then(hinted_kind));
        use std::io::ErrorKind as Kind;
        match (kind, code) {
            (Some(Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge), _) => ExitCode::from(4),
            (_, "image.unreadable") => ExitCode::from(3),
            _ => ExitCode::from(2),
        }
    }
}

/// The kind of a system error inside a hinted one.
fn hinted_kind(error: &flatclip::Error) -> Option<std::io::ErrorKind> {
    match error {
        flatclip::Error::Hinted { error, .. } => hinted_kind(error),
        flatclip::Error::Io { reason, .. } => Some(reason.kind()),
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

/// Sets the subscriber of a service; spans also become traces where that was built in.
fn with_traces<S>(log: S) -> bool
where
    S: tracing::Subscriber + for<'s> tracing_subscriber::registry::LookupSpan<'s> + Send + Sync,
{
    #[cfg(feature = "otel")]
    let log = tracing_subscriber::layer::SubscriberExt::with(log, crate::traces::layer());
    tracing_subscriber::util::SubscriberInitExt::try_init(log).is_ok()
}

/// Where a command writes.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
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
        Self { json, quiet }
    }

    /// Whether the caller asked for JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
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
        if self.json { self.json(value) } else { self.line(text) }
    }

    /// Prints a table.
    pub(crate) fn rows<R: Into<comfy_table::Row>>(
        &self,
        header: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<()> {
        let mut table = self.table(header);
        table.add_rows(rows);
        self.line(table)
    }

    /// An empty table: no rules but the one below the header.
    pub(crate) fn table(&self, header: &[&str]) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        let rule = LineStyle::none().fill('─').junction('─');
        table.load_style(TableStyle::new().header_separator(rule)).set_header(header.iter().copied());
        // On a terminal, cells are wrapped where the table would be wider; the first column holds names, which people copy.
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        if let Some(width) = stated_width() {
            table.set_width(width);
        }
        if let Some(first) = table.column_mut(0) {
            first.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
        }
        table
    }

    /// A table of results as text; on a terminal it fits its width.
    pub(crate) fn fitted(&self, table: &flatclip_lab::report::Table) -> String {
        let terminal = stated_width().or_else(|| comfy_table::Table::new().width());
        table.to_text_within(terminal.map_or(usize::MAX, usize::from))
    }

    /// Something worth knowing that is not a result, on stderr.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{}", harmless(text));
        }
    }

    /// Something that may spoil the result, on stderr; quiet or not.
    pub(crate) fn warn(&self, text: impl std::fmt::Display) {
        let _ = writeln!(std::io::stderr().lock(), "warning: {}", harmless(text));
    }

    /// The whole chain of an error in one line, on stderr; as JSON when asked for.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let known = error.chain().find_map(|cause| cause.downcast_ref::<flatclip::Error>());
        let code = known.map_or("usage", flatclip::Error::code);
        let hint = match known.and_then(flatclip::Error::hint) {
            _ if code == "interrupted" => Some(again()),
            hint => hint.map(as_flags),
        };
        self.fault(&format!("{error:#}"), code, hint.as_deref());
    }

    /// A message, its code and what would help.
    pub(crate) fn fault(&self, error: &str, code: &str, hint: Option<&str>) {
        let mut stderr = std::io::stderr().lock();
        let _ = match (self.json, hint) {
            (true, _) => {
                let document = serde_json::json!({ "schema_version": 1, "error": error, "code": code, "hint": hint });
                writeln!(stderr, "{document}")
            }
            (_, Some(hint)) => writeln!(stderr, "error: {}; {hint}", harmless(error)),
            _ => writeln!(stderr, "error: {}", harmless(error)),
        };
    }

    /// Progress over `total` steps on stderr: a bar on a terminal, else a line per minute; nothing with --quiet.
    pub(crate) fn progress(&self, total: u64, what: &str) -> ProgressBar {
        let terminal = std::io::stderr().is_terminal();
        let (target, template) = match (self.quiet, terminal) {
            (true, _) => (ProgressDrawTarget::hidden(), ""),
            (_, true) => (ProgressDrawTarget::stderr(), "{prefix} {bar:30} {pos}/{len} {msg}{left}"),
            _ => {
                let lines = ProgressDrawTarget::term_like_with_hz(Box::new(LogLines::new()), 1);
                (lines, "{prefix} {pos}/{len} {msg}{left}")
            }
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.with_key("left", time_left());
        ProgressBar::with_draw_target(Some(total), target).with_style(style).with_prefix(what.to_owned())
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

/// Writes the time that is left at the mean pace since the first step that was seen: work comes in batches, which mislead an
/// estimate from the last moments, and a resumed run does not start at zero.
fn time_left() -> impl Fn(&ProgressState, &mut dyn std::fmt::Write) + Clone {
    let first = Arc::new(OnceLock::new());
    move |state, to| {
        let (done, elapsed) = (state.pos(), state.elapsed());
        let total = state.len().unwrap_or(0);
        if done == 0 {
            return;
        }
        let (from, start) = *first.get_or_init(|| (done, elapsed));
        if let Some(left) =
            remaining(done.saturating_sub(from), total.saturating_sub(done), elapsed.saturating_sub(start))
        {
            let _ = write!(to, " {:#} left", HumanDuration(left));
        }
    }
}

/// The time of `left` steps when `done` took `elapsed`; none before the first step.
fn remaining(done: u64, left: u64, elapsed: Duration) -> Option<Duration> {
    Duration::try_from_secs_f64(elapsed.as_secs_f64() / done as f64 * left as f64).ok()
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

    #[test]
    fn time_left_follows_the_mean_pace() {
        assert_eq!(remaining(32, 64, Duration::from_secs(60)), Some(Duration::from_secs(120)));
        assert_eq!(remaining(5, 0, Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(remaining(0, 64, Duration::from_secs(60)), None);
        assert_eq!(remaining(0, 64, Duration::ZERO), None);
    }
}
