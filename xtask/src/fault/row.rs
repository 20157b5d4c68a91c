//! What one test found: a JSON line, and a row of the page.

use super::Test;
use anyhow::Result;
use clap::ValueEnum as _;
use serde_json::{Map, Value, json};
use std::process::Command;

/// Failed cases that are named in a row.
const NAMED: usize = 10;

/// The result of one test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub test: String,
    pub suite: String,
    pub what: String,
    pub rule: String,
    pub tried: u64,
    pub passed: u64,
    /// Why it could not be run; empty where it ran.
    pub skipped: String,
    /// The first cases that failed, each with its reason.
    pub failures: Vec<String>,
    pub seconds: f64,
    /// Peak resident memory of the test's processes, in megabytes.
    pub peak_mb: u64,
    pub scale: f64,
    /// Counts beside pass and fail, such as how many were refused.
    pub notes: Map<String, Value>,
    pub date: String,
    pub commit: String,
    pub machine: String,
}

impl Row {
    /// Before anything was tried.
    pub(crate) fn new(test: &Test, scale: f64) -> Self {
        Self {
            test: test.name.to_owned(),
            suite: test.suite.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
            what: test.what.to_owned(),
            rule: test.rule.to_owned(),
            tried: 0,
            passed: 0,
            skipped: String::new(),
            failures: Vec::new(),
            seconds: 0.0,
            peak_mb: 0,
            scale,
            notes: Map::new(),
            date: output_of("date", &["-u", "+%Y-%m-%d"]),
            commit: commit(),
            machine: machine(),
        }
    }

    /// A test that tried nothing has shown nothing.
    pub(crate) fn is_good(&self) -> bool {
        self.tried > 0 && self.passed == self.tried && self.failures.is_empty()
    }

    /// Nothing was tried, and the row says why: neither good nor failed.
    pub(crate) fn is_skipped(&self) -> bool {
        !self.skipped.is_empty() && self.tried == 0 && self.failures.is_empty()
    }

    pub(crate) fn fail(&mut self, reason: String) {
        if self.failures.len() < NAMED {
            self.failures.push(reason);
        }
    }

    pub(crate) fn line(&self) -> String {
        let mut line = json!({
            "test": self.test, "suite": self.suite, "what": self.what, "rule": self.rule, "tried": self.tried,
            "passed": self.passed, "failures": self.failures, "seconds": (self.seconds * 100.0).round() / 100.0,
            "peak_mb": self.peak_mb, "scale": self.scale, "notes": self.notes, "date": self.date, "commit": self.commit,
            "machine": self.machine,
        });
        if !self.skipped.is_empty() {
            line["skipped"] = self.skipped.as_str().into();
        }
        line.to_string()
    }

    pub(crate) fn parse(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| value[key].as_u64().unwrap_or_default();
        let failures = value["failures"].as_array().into_iter().flatten();
        Ok(Self {
            test: text("test"),
            suite: text("suite"),
            what: text("what"),
            rule: text("rule"),
            tried: number("tried"),
            passed: number("passed"),
            skipped: text("skipped"),
            failures: failures.filter_map(Value::as_str).map(str::to_owned).collect(),
            seconds: value["seconds"].as_f64().unwrap_or_default(),
            peak_mb: number("peak_mb"),
            scale: value["scale"].as_f64().unwrap_or(1.0),
            notes: value["notes"].as_object().cloned().unwrap_or_default(),
            date: text("date"),
            commit: text("commit"),
            machine: text("machine"),
        })
    }

    /// For people, while it runs.
    pub(crate) fn sentence(&self) -> String {
        if self.is_skipped() {
            return format!("skipped  {}: {}", self.test, self.skipped);
        }
        let verdict = if self.is_good() { "ok" } else { "FAILED" };
        let mut text = format!(
            "{verdict}  {}: {} of {} in {:.1} s, peak {} MB",
            self.test, self.passed, self.tried, self.seconds, self.peak_mb
        );
        for failure in &self.failures {
            text += &format!("\n    {failure}");
        }
        text
    }

    /// The notes as words.
    pub(crate) fn noted(&self) -> String {
        let word = |(key, value): (&String, &Value)| match value {
            Value::String(text) => format!("{key} {text}"),
            other => format!("{key} {other}"),
        };
        self.notes.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

fn commit() -> String {
    let short = output_of("git", &["rev-parse", "--short=10", "HEAD"]);
    let changed = !output_of("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if changed { format!("{short} with changes") } else { short }
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let gb = kb.and_then(|kb| kb.parse::<f64>().ok()).map_or(0.0, |kb| kb / 1024.0 / 1024.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores, {gb:.0} GB", name.trim_start_matches([' ', '\t', ':']).trim())
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_neither_good_nor_failed_and_its_line_says_so() {
        let mut row = Row::parse(r#"{"test":"F10","skipped":"no Python with Ray here"}"#).unwrap();
        assert!(row.is_skipped() && !row.is_good());
        assert!(row.sentence().starts_with("skipped  F10: no Python"), "{}", row.sentence());
        assert_eq!(Row::parse(&row.line()).unwrap(), row);
        row.fail("the test's process ended".into());
        assert!(!row.is_skipped(), "a test that crashed after it was skipped has failed");
    }

    #[test]
    fn a_line_reads_back_and_nothing_tried_is_not_good() {
        let test = Test {
            name: "X1",
            suite: super::super::Suite::Planted,
            what: "a | b",
            rule: "none",
            patience: 1,
            run: |_| Ok(()),
        };
        let mut row = Row::new(&test, 0.5);
        assert!(!row.is_good());
        (row.tried, row.passed, row.seconds) = (3, 3, 1.25);
        row.notes.insert("refused".into(), 2.into());
        assert!(row.is_good());
        assert_eq!(Row::parse(&row.line()).unwrap(), row);
        row.fail("case 2".into());
        assert!(!row.is_good());
    }
}
