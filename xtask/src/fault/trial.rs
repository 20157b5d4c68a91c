//! The inside of a test: cases, each announced before it runs, so that the supervisor can name the one that crashed or
//! hangs.

use super::Test;
use anyhow::{Result, anyhow};
use nix::sys::statvfs::statvfs;
use serde_json::{Map, Value, json};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use tempfile::TempDir;

/// What a test works with, and what it has found so far.
pub(crate) struct Trial {
    scale: f64,
    /// The binary under attack.
    pub binary: PathBuf,
    /// An empty folder that is gone afterwards.
    pub folder: PathBuf,
    tried: u64,
    passed: u64,
    /// Why nothing can be tried here; empty where something can.
    skipped: String,
    notes: Map<String, Value>,
}

impl Trial {
    /// So many of `full` cases, at least one.
    pub(crate) fn count(&self, full: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(1)
    }

    /// The beginning of a list of different cases: all of them from a fifth of the full scale on, two at least.
    pub(crate) fn some<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[..self.count(5 * all.len()).max(2).min(all.len())]
    }

    /// Runs one case. A panic is a failure like an error.
    pub(crate) fn case(&mut self, name: &str, run: impl FnOnce() -> Result<()>) {
        say(&json!({ "case": name }));
        self.tried += 1;
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(anyhow!("panicked: {}", text.unwrap_or_default()))
        });
        match outcome {
            Ok(()) => self.passed += 1,
            Err(error) => say(&json!({ "failed": format!("{name}: {error:#}") })),
        }
    }

    /// Adds to a count that stands beside pass and fail.
    pub(crate) fn add(&mut self, note: &str, count: u64) {
        let before = self.notes.get(note).and_then(Value::as_u64).unwrap_or(0);
        self.notes.insert(note.to_owned(), (before + count).into());
    }

    /// Keeps the largest value of a measure.
    pub(crate) fn most(&mut self, note: &str, value: u64) {
        let before = self.notes.get(note).and_then(Value::as_u64).unwrap_or(0);
        self.notes.insert(note.to_owned(), before.max(value).into());
    }

    /// Says that the test cannot be run here: it has shown nothing, and its row says so.
    pub(crate) fn skip(&mut self, reason: &str) {
        reason.clone_into(&mut self.skipped);
    }

    /// Says something once, such as why a part was skipped.
    pub(crate) fn note(&mut self, note: &str, text: impl Into<String>) {
        self.notes.insert(note.to_owned(), text.into().into());
    }
}

/// Runs a test in this process, telling the supervisor about it on stdout.
pub(super) fn work(test: &Test, scale: f64, binary: PathBuf) -> Result<()> {
    // A panic is told as the case's failure; its own message would only repeat it.
    std::panic::set_hook(Box::new(|_| {}));
    let folder = scratch()?;
    let (folder_path, skipped) = (folder.path().to_path_buf(), String::new());
    let mut trial = Trial { scale, binary, folder: folder_path, tried: 0, passed: 0, skipped, notes: Map::new() };
    (test.run)(&mut trial)?;
    let children = super::program::peak_of_children();
    let peak = flatclip::resident_memory().1.max(children);
    let Trial { tried, passed, skipped, notes, .. } = trial;
    say(&json!({
        "done": { "tried": tried, "passed": passed, "skipped": skipped, "notes": notes, "peak": peak },
    }));
    Ok(())
}

/// An empty folder; in memory where the system has room there, because on a disk a small file takes a hundred times longer
/// to be written than to be read. `TMPDIR` wins.
fn scratch() -> Result<TempDir> {
    const MEMORY: &str = "/dev/shm";
    // More than any test writes; a container often has 64 MB.
    const ROOM: u64 = 4 << 30;
    let room = || statvfs(MEMORY).map_or(0, |found| found.blocks_available() * found.fragment_size());
    if std::env::var_os("TMPDIR").is_none() && room() >= ROOM {
        return Ok(tempfile::tempdir_in(MEMORY)?);
    }
    Ok(tempfile::tempdir()?)
}

fn say(message: &Value) {
    let mut out = std::io::stdout().lock();
    // The supervisor went away: nobody is left to tell.
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}
