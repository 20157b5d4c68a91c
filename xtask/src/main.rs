//! Whatever needs more than cargo. `cargo xtask test` is what must pass before a change lands.

mod audit;
mod check;
mod gradients;
mod layers;
mod public_items;
mod python;
mod real;
mod tools;
mod torch;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Tools of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check licences, sources and banned crates of all dependencies against deny.toml, without network
    Audit(audit::Arguments),
    /// Time flatclip and torch, open_clip, OpenVINO, ONNX Runtime, PIL on the same work, turn by turn, on an idle machine
    BenchPeers(tools::Words),
    /// Compare cheaper gradients of a context with the exact one, and what they cost
    Gradients(gradients::Arguments),
    /// Check that the library's modules use each other in one direction only, and the table of it in ARCHITECTURE.md
    Layers(layers::Arguments),
    /// Make every kind of HTML page and open it in a headless browser; fails on any console message
    Pages,
    /// Count the public items of each library, by module
    PublicItems(public_items::Arguments),
    /// Build the Python package into a virtual environment of its own, run its tests, types and examples
    Python(python::Arguments),
    /// Run a real image tower on real photos, against reference features and labels; prints a table of adapters
    Real(real::Arguments),
    /// The server: its page in a browser, clients from PyPI, throughput, soak
    #[command(subcommand)]
    Serving(tools::Serving),
    /// Layers, format, lints as errors, all tests, documentation, pages, Python: what must pass before a change lands
    Test,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Audit(arguments) => audit::run(&arguments),
        Task::BenchPeers(arguments) => tools::bench_peers(arguments),
        Task::Gradients(arguments) => gradients::run(&arguments),
        Task::Layers(arguments) => layers::run(&arguments),
        Task::Pages => root().and_then(build).and_then(|binary| tools::pages(&binary)),
        Task::PublicItems(arguments) => public_items::run(&arguments),
        Task::Python(arguments) => python::run(arguments),
        Task::Real(arguments) => real::run(&arguments),
        Task::Serving(what) => tools::serving(what),
        Task::Test => check::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Not by returning it from `main`: that would print a backtrace where RUST_BACKTRACE is set.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The workspace.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")
}

/// A program without what `cargo run` put into the environment for this one: build scripts that look at it (ring's does)
/// would run again, and everything above them be compiled anew.
fn outside(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let set_by_cargo = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if set_by_cargo.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command
}

/// Cargo.
fn cargo() -> Command {
    outside(env!("CARGO"))
}

/// Builds the binary and says where cargo put it.
fn build(root: &Path) -> Result<PathBuf> {
    // With the features of the whole workspace, as the tests have built it: otherwise everything is compiled again.
    let arguments = ["build", "--release", "--workspace", "--bin", "flatclip"];
    let built = cargo().args(arguments).current_dir(root).status()?;
    ensure!(built.success(), "flatclip does not build");
    Ok(target_dir(root)?.join("release/flatclip"))
}

/// Where cargo puts binaries: taken from cargo, since it can be configured.
fn target_dir(root: &Path) -> Result<PathBuf> {
    let output = cargo().args(["metadata", "--format-version=1", "--no-deps"]).current_dir(root).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    metadata["target_directory"].as_str().map(PathBuf::from).context("cargo metadata names no target directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    fn error_of(words: &[&str]) -> clap::Error {
        let words = std::iter::once("cargo xtask").chain(words.iter().copied());
        Arguments::try_parse_from(words).err().expect("not a task")
    }

    #[test]
    fn every_task_has_help() {
        Arguments::command().debug_assert();
        for task in Arguments::command().get_subcommands() {
            let error = error_of(&[task.get_name(), "--help"]);
            assert_eq!(error.kind(), ErrorKind::DisplayHelp);
            assert!(error.to_string().contains(&format!("Usage: cargo xtask {}", task.get_name())), "{error}");
        }
    }

    #[test]
    fn an_unknown_task_gets_a_suggestion() {
        let error = error_of(&["tets"]);
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("'test'"), "{error}");
    }
}
