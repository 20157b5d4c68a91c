//! The two kinds of processes that take turns: `flatclip bench --turns` and `peers.py`. Both stay loaded and warm, run once
//! per line of stdin and answer with one line of JSON.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One run of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) seconds: f64,
    /// Arithmetic of the work, where it is known.
    pub(super) gflop: Option<f64>,
    pub(super) peak_rss_mb: Option<f64>,
}

/// A process that answers line by line.
pub(super) struct Turns {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    what: String,
}

/// Settings that help torch most: no fresh pages for every large block, and huge ones.
const TUNED: [(&str, &str); 1] = [(
    "GLIBC_TUNABLES",
    "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:glibc.malloc.hugetlb=1",
)];

impl Turns {
    /// One case of `flatclip bench`, ready to run.
    pub(super) fn ours(binary: &Path, folder: &Path, arguments: &[&str], skip: usize) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(["bench", "--turns", "--quiet"]).args(arguments).current_dir(folder);
        let mut turns = Self::start(command, format!("flatclip bench {}", arguments.join(" ")))?;
        for _ in 0..skip {
            writeln!(turns.ask, "next")?;
        }
        Ok(turns)
    }

    /// The peers' process.
    pub(super) fn peers(python: &Path, folder: &Path, tuned: bool, preload: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(python);
        command.arg("peers.py").current_dir(folder);
        if tuned {
            command.envs(TUNED);
        }
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
        }
        Self::start(command, "the peers".to_owned())
    }

    fn start(mut command: Command, what: String) -> Result<Self> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.with_context(|| format!("starting {what}"))?;
        let ask = process.stdin.take().context("the pipe was asked for")?;
        let answers = BufReader::new(process.stdout.take().context("the pipe was asked for")?);
        Ok(Self { process, ask, answers, what })
    }

    /// Sends a line and reads the answer.
    pub(super) fn ask(&mut self, line: &str) -> Result<Value> {
        let ended = || format!("{} ended at `{line}`", self.what);
        writeln!(self.ask, "{line}").with_context(ended)?;
        let mut answer = String::new();
        ensure!(self.answers.read_line(&mut answer)? > 0, "{} ended at `{line}`", self.what);
        serde_json::from_str(&answer).with_context(|| format!("{} answered {answer:?}", self.what))
    }

    /// One run, or why there is none.
    pub(super) fn run(&mut self, line: &str) -> Result<Result<Turn, String>> {
        let answer = self.ask(line)?;
        let number = |key: &str| answer[key].as_f64();
        Ok(match number("seconds") {
            Some(seconds) => Ok(Turn { seconds, gflop: number("gflop"), peak_rss_mb: number("peak_rss_mb") }),
            None => Err(answer["error"].as_str().unwrap_or("no seconds in the answer").to_owned()),
        })
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
