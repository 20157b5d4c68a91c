//! The command as a user runs it, in a folder that is its home and working directory: nothing of this machine is found, nothing
//! is left on it.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flatclip");

pub(crate) fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["FLATCLIP", "HF_", "XDG_", "RANK", "SLURM_"].iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command.args(arguments).current_dir(home).env("HOME", home).env("FLATCLIP_OFFLINE", "true");
    command
}

pub(crate) fn run(home: &Path, arguments: &[&str]) -> Output {
    command(home, arguments).output().unwrap()
}

/// What it says on stderr.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command prints that must succeed.
pub(crate) fn works(home: &Path, arguments: &[&str]) -> String {
    let output = run(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The same as JSON.
pub(crate) fn json(home: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&works(home, &[arguments, &["--json"]].concat())).unwrap()
}

/// What a command says that must end with exit code 2.
pub(crate) fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = run(home, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    said(&output)
}
