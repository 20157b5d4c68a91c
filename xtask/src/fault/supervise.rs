//! The outside of a test: starts it in a process of its own, watches it, and turns whatever happens into a row.

use super::{Row, Test};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Address space of a test's own process: a runaway allocation ends in an abort that names its case, not in a machine
/// that swaps.
const LIMIT_KB: u64 = 8 << 20;

pub(super) fn run(test: &Test, scale: f64, binary: &Path) -> Result<Row> {
    let start = Instant::now();
    let mut child = start_worker(test, scale, binary)?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut row = Row::new(test, scale);
    let (mut case, mut done, mut hung) = ("the start".to_owned(), false, false);
    loop {
        let line = match messages.recv_timeout(Duration::from_secs(test.patience)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                row.fail(format!("{case}: no answer within {} s", test.patience));
                hung = true;
                child.kill()?;
                break;
            }
        };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(name) = message["case"].as_str() {
            case = name.to_owned();
            row.tried += 1;
        } else if let Some(reason) = message["failed"].as_str() {
            row.fail(reason.to_owned());
        } else if let Some(result) = message["done"].as_object() {
            let number = |key: &str| result.get(key).and_then(Value::as_u64).unwrap_or_default();
            (row.tried, row.passed) = (number("tried"), number("passed"));
            row.peak_mb = number("peak").div_ceil(1 << 20);
            row.skipped = result.get("skipped").and_then(Value::as_str).unwrap_or_default().to_owned();
            row.notes = result.get("notes").and_then(Value::as_object).cloned().unwrap_or_default();
            done = true;
        }
    }
    let status = child.wait()?;
    if !hung && (!done || !status.success()) {
        row.fail(format!("{case}: the test's process ended with {status}"));
    }
    row.seconds = start.elapsed().as_secs_f64();
    Ok(row)
}

/// This program. `cargo xtask test` has its tests built while it runs, which puts a new file in its place: Linux still reaches
/// the one that runs.
fn own_program() -> Result<PathBuf> {
    let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    if running.exists() { Ok(running) } else { Ok(std::env::current_exe()?) }
}

fn start_worker(test: &Test, scale: f64, binary: &Path) -> Result<Child> {
    // A browser reserves far more addresses than it uses, so tests of the server, which may start one, have no limit.
    let limit = if test.suite == super::Suite::Server { "unlimited".to_owned() } else { LIMIT_KB.to_string() };
    let limited = format!("ulimit -v {limit}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).arg(own_program()?);
    command.args(["fault", "--worker", test.name, "--scale", &scale.to_string()]);
    if !binary.as_os_str().is_empty() {
        command.arg("--binary").arg(binary);
    }
    // A home of its own: whatever the caller's caches hold stays out of the figures.
    command.env_remove("HF_TOKEN").env_remove("HF_HOME").env_remove("HF_ENDPOINT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start the test's process")
}
