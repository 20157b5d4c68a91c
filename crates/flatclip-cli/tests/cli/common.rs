//! The command as a user runs it, in a folder that is its home and working directory: nothing of this machine is found, nothing
//! is left on it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flatclip");

/// What it says on stderr.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of this repository.
pub(crate) fn in_repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// A JSON file.
pub(crate) fn read_json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Files and folders in a folder, by name.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// A home of its own. Commands are lines of words; `~` stands for a space inside of a word.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// With `count` synthetic images in `photos`, one folder for each class.
    pub(crate) fn with_photos(count: usize) -> Self {
        let home = Self::new();
        home.works(&format!("pocket export photos --domain photo --count {count}"));
        home
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A program that finds nothing of this machine.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["FLATCLIP", "HF_", "XDG_", "RANK", "SLURM_"].iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        command.current_dir(self.folder()).env("HOME", self.folder()).env("FLATCLIP_OFFLINE", "true");
        command
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = self.program(BINARY);
        command.args(line.split_whitespace().map(|word| word.replace('~', " ")));
        command
    }

    /// The same command where no file can grow beyond so many blocks of 1 kB, which stands in for a full disk.
    pub(crate) fn with_small_files(command: &Command, blocks: u32) -> Command {
        let mut limited = Command::new("bash");
        limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
        limited.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        limited.current_dir(command.get_current_dir().unwrap());
        limited
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// What a command prints that must succeed.
    pub(crate) fn works(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same as JSON.
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.works(&format!("{line} --json"))).unwrap()
    }

    /// What a command says that must end with exit code 2.
    pub(crate) fn refused(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        said(&output)
    }

    /// Such a command, whose message must contain these words.
    pub(crate) fn refused_with(&self, line: &str, words: &str) {
        let said = self.refused(line);
        assert!(said.contains(words), "{line}: expected {words:?} in {said}");
    }
}
