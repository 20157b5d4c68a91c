//! The directory of a run: what was asked for (`config.toml`), and whatever a tuning run, an evaluation or a landscape keeps
//! beside it. It belongs to one process at a time, and is resumed only with the configuration that it was begun with.

use flatclip::digest::{Digest, file_sha256};
use flatclip::error::Hint;
use flatclip::{Error, Result, files};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

pub(crate) const CONFIG: &str = "config.toml";
/// Metrics or results; written last, so that it is there only when the run is already complete.
pub(crate) const SUMMARY: &str = "summary.json";

/// SHA-256 of the files of a finished run, as `sha256sum -c` reads them.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// Locked by the process that works here.
const LOCK: &str = ".lock";

/// A run directory: taken to write into, or opened to read.
#[derive(Debug)]
pub struct RunDir {
    /// Where.
    pub path: PathBuf,
    /// Held as long as this process writes into the directory.
    _lock: Option<File>,
}

impl RunDir {
    /// Takes a directory for a run with this configuration: a new one, or with `resume` one that was begun with the same.
    /// `state` names the files that starting again would lose: where one is there, a directory is not taken anew. The
    /// flag is true for a run that is resumed.
    pub fn take(path: &Path, config: &toml::Table, resume: bool, state: &[&str]) -> Result<(Self, bool)> {
        let dir = Self::claim(path)?;
        if dir.file(CONFIG).is_file() && resume {
            dir.compare(config)?;
            return Ok((dir, true));
        }
        if state.iter().any(|name| dir.file(name).is_file()) {
            return Err(dir.fault("holds a run already").with_hint(Hint::ResumeOrElsewhere));
        }
        dir.write_config(config)?;
        Ok((dir, false))
    }

    /// A run to read.
    pub fn open(path: &Path) -> Result<Self> {
        if path.join(CONFIG).is_file() {
            return Ok(Self { path: path.to_path_buf(), _lock: None });
        }
        let reason = format!("is not a run directory: it has no {CONFIG}");
        Err(Error::Run { path: path.to_path_buf(), reason })
    }

    /// A directory without a configuration of its own, made if it is not there, for one process at a time. What a killed
    /// process left half written is removed, where one has worked before: of another folder nothing is known.
    pub(crate) fn claim(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(Error::io(path))?;
        let is_known = [LOCK, CONFIG].iter().any(|name| path.join(name).is_file());
        let dir = Self { path: path.to_path_buf(), _lock: lock(path)? };
        if is_known {
            dir.remove_temporary_files()?;
        }
        Ok(dir)
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.file(SUMMARY).is_file()
    }

    pub(crate) fn fault(&self, reason: impl Into<String>) -> Error {
        Error::Run { path: self.path.clone(), reason: reason.into() }
    }

    /// The configuration as it was written.
    pub fn config_table(&self) -> Result<toml::Table> {
        let path = self.file(CONFIG);
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        text.parse().map_err(|e: toml::de::Error| Error::Run { path, reason: e.message().to_owned() })
    }

    pub(crate) fn write_config(&self, config: &toml::Table) -> Result<()> {
        let text = toml::to_string(config).map_err(|e| self.fault(format!("{CONFIG}: {e}")))?;
        files::write_atomic(&self.file(CONFIG), text.as_bytes())
    }

    pub(crate) fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        files::write_atomic(&self.file(name), self.json(name, value)?.as_bytes())
    }

    fn json<T: Serialize>(&self, name: &str, value: &T) -> Result<String> {
        let text = serde_json::to_string_pretty(value).map_err(|e| self.fault(format!("{name}: {e}")))?;
        Ok(text + "\n")
    }

    /// Ends a run: the digests of its files, then the summary, which marks it as complete.
    pub(crate) fn finish_with<T: Serialize>(&self, names: &[&str], summary: &T) -> Result<()> {
        let text = self.json(SUMMARY, summary)?;
        let mut sums = String::new();
        for name in names {
            sums += &format!("{}  {name}\n", file_sha256(&self.file(name))?);
        }
        sums += &format!("{}  {SUMMARY}\n", Digest::default().bytes(&text).hex());
        files::write_atomic(&self.file(SUMS), sums.as_bytes())?;
        files::write_atomic(&self.file(SUMMARY), text.as_bytes())
    }

    /// Checks the files of a finished run against their digests. Runs of earlier versions have none; the flag says whether
    /// there were any.
    pub(crate) fn verify(&self) -> Result<bool> {
        let path = self.file(SUMS);
        if !path.is_file() {
            return Ok(false);
        }
        let changed = |name: &str, what: &str| {
            let reason = format!("{what} since the run was finished; restore it, or run again");
            Error::Run { path: self.file(name), reason }
        };
        let text = files::read_text(&path)?;
        let mut names = Vec::new();
        for line in text.lines() {
            let Some((sum, name)) = line.split_once("  ").filter(|(sum, name)| sum.len() == 64 && is_plain(name))
            else {
                return Err(changed(SUMS, "was changed"));
            };
            if !self.file(name).is_file() {
                return Err(changed(name, "was removed"));
            }
            if file_sha256(&self.file(name))? != sum {
                return Err(changed(name, "was changed"));
            }
            names.push(name);
        }
        if names.contains(&SUMMARY) && text.ends_with('\n') { Ok(true) } else { Err(changed(SUMS, "was shortened")) }
    }

    pub(crate) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let path = self.file(name);
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        serde_json::from_slice(&bytes).map_err(|e| Error::Run { path, reason: e.to_string() })
    }

    fn compare(&self, config: &toml::Table) -> Result<()> {
        match first_difference(&self.config_table()?, config, "") {
            None => Ok(()),
            Some(difference) => Err(self.fault(format!("cannot resume with another configuration: {difference}"))),
        }
    }

    fn remove_temporary_files(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.path).map_err(Error::io(&self.path))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(".tmp") {
                std::fs::remove_file(entry.path()).map_err(Error::io(entry.path()))?;
            }
        }
        Ok(())
    }
}

/// A name of a file in the directory itself.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\']) && name != ".."
}

/// The file `.lock`, locked. A file system without locks keeps nobody out, which is no reason to refuse the run.
fn lock(path: &Path) -> Result<Option<File>> {
    let name = path.join(LOCK);
    let file = OpenOptions::new().create(true).append(true).open(&name).map_err(Error::io(&name))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let reason = "another process works in this run directory; wait for it".to_owned();
            Err(Error::Run { path: path.to_path_buf(), reason }.with_hint(Hint::Elsewhere))
        }
        Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => Ok(None),
        Err(TryLockError::Error(reason)) => Err(Error::Io { path: name, reason }),
    }
}

/// The first key whose values differ, with both values.
pub(crate) fn first_difference(stored: &toml::Table, asked: &toml::Table, prefix: &str) -> Option<String> {
    let mut keys: Vec<&String> = stored.keys().chain(asked.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().find_map(|key| match (stored.get(key), asked.get(key)) {
        (Some(toml::Value::Table(a)), Some(toml::Value::Table(b))) => {
            first_difference(a, b, &format!("{prefix}{key}."))
        }
        (a, b) if a == b => None,
        (a, b) => {
            let show = |v: Option<&toml::Value>| v.map_or("nothing".to_owned(), toml::Value::to_string);
            Some(format!("{prefix}{key} was {}, now {}", show(a), show(b)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(seed: i64) -> toml::Table {
        toml::Table::from_iter([("seed".to_owned(), seed.into())])
    }

    #[test]
    fn a_directory_is_for_one_process_and_one_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let state = ["checkpoint"];
        let (first, goes_on) = RunDir::take(&path, &config(1), false, &state).unwrap();
        assert!(!goes_on);
        let second = RunDir::take(&path, &config(1), true, &state).unwrap_err().to_string();
        assert!(second.contains("another process"), "{second}");
        std::fs::write(first.file(".tmpabc"), "half").unwrap();
        std::fs::write(first.file("checkpoint"), "state").unwrap();
        drop(first);
        let held = RunDir::take(&path, &config(1), false, &state).unwrap_err();
        assert_eq!(held.hint(), Some(&Hint::ResumeOrElsewhere));
        let other = RunDir::take(&path, &config(2), true, &state).unwrap_err().to_string();
        assert!(other.contains("seed was 1, now 2"), "{other}");
        let (again, goes_on) = RunDir::take(&path, &config(1), true, &state).unwrap();
        assert!(goes_on && !again.file(".tmpabc").exists(), "what a kill left behind is removed");
        std::fs::remove_file(again.file("checkpoint")).unwrap();
        drop(again);
        RunDir::take(&path, &config(3), false, &state).expect("a run that never saved anything can start anew");
    }

    #[test]
    fn a_kill_before_the_first_file_leaves_nothing_and_foreign_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, foreign) = (folder.path().join("ours"), folder.path().join("foreign"));
        drop(RunDir::claim(&ours).unwrap());
        std::fs::create_dir(&foreign).unwrap();
        for path in [&ours, &foreign] {
            std::fs::write(path.join(".tmpabc"), "half a configuration").unwrap();
            RunDir::take(path, &config(1), true, &[]).unwrap();
        }
        assert!(!ours.join(".tmpabc").exists() && foreign.join(".tmpabc").exists());
    }
}
