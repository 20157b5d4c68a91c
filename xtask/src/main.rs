//! Whatever needs more than cargo. `cargo xtask test` is what must pass before a change lands.

mod bench_peers;
mod browser;
mod check;
mod pages;
mod real;

use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const USAGE: &str = "usage: cargo xtask TASK

  bench-peers [--quick] [--venv FOLDER] [--only TEXT] [--repeats N] [--threads N] [--views N] [--preload FILE] [--write]
          flatclip and torch, open_clip, OpenVINO, PIL on the same work, turn by turn, on an idle machine. The peers live in
          the virtual environment FOLDER (made when it is not there; by default in the cache of this user). --quick: three
          turns of 16 views; --only: groups with TEXT in their names; --write: the table becomes docs/benchmarks.md
  pages [--browser FILE]
          makes every kind of HTML page and opens it in a headless browser; fails on any console message
  real    FOLDER TOWER_DIR [--views N] [--limit N] [--cache DIR] [--precision f32|bf16]
          a real image tower on real photos, against reference features and labels; a table of adapters; bf16 is compared with f32
  test    format, lints as errors, all tests, documentation: what must pass before a change lands
          (and the pages, where there is a browser)";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("bench-peers") => bench_peers::run(&arguments[1..]),
        Some("pages") => pages::run(&arguments[1..]),
        Some("real") => real::run(&arguments[1..]),
        Some("test") => check::run(),
        Some(other) => bail!("unknown task `{other}`\n\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}

/// The workspace.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")
}

/// Builds the binary and says where cargo put it.
fn build(root: &Path) -> Result<PathBuf> {
    let built =
        Command::new(env!("CARGO")).args(["build", "--release", "-p", "flatclip-cli"]).current_dir(root).status()?;
    ensure!(built.success(), "flatclip does not build");
    Ok(target_dir(root)?.join("release/flatclip"))
}

/// Where cargo puts binaries: asked of cargo, since it can be configured.
fn target_dir(root: &Path) -> Result<PathBuf> {
    let output =
        Command::new(env!("CARGO")).args(["metadata", "--format-version=1", "--no-deps"]).current_dir(root).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    metadata["target_directory"].as_str().map(PathBuf::from).context("cargo metadata names no target directory")
}
