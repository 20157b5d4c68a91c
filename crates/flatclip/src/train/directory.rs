//! The directory of a tuning run.
//!
//! | file | content |
//! |---|---|
//! | `config.toml` | the resolved settings |
//! | `run.json` | provenance: versions, hashes, the shots |
//! | `features.safetensors` | the feature bank |
//! | `search.json` | the table of a search, when there was one |
//! | `metrics.jsonl`, `events.out.tfevents.*` | one record per step, for people and for TensorBoard |
//! | `checkpoint.safetensors` | the whole state after the last saved step |
//! | `prompt.safetensors`, `summary.json` | the result; `summary.json` is written last |
//! | `timing.jsonl` | wall-clock times, the one file that differs from run to run |
//!
//! A lock keeps a second process out. After a kill, the logs are cut back to the last checkpoint.

use super::checkpoint::LogLengths;
use super::events;
use super::trainer::StepRecord;
use crate::{Error, Result, files};
use serde::Serialize;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const CHECKPOINT: &str = "checkpoint.safetensors";
pub(crate) const SEARCH: &str = "search.json";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const PROMPT: &str = "prompt.safetensors";
const METRICS: &str = "metrics.jsonl";
const EVENTS: &str = "events.out.tfevents.0.flatclip";

/// A run directory that belongs to this process.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held as long as the directory is used.
    _lock: File,
}

impl RunDirectory {
    /// Takes a directory for a run with this configuration: a new one, or with `resume` one that has the same.
    pub fn take(path: &Path, config: &str, resume: bool) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(Error::io(path))?;
        let directory = Self { path: path.to_path_buf(), _lock: lock(path)? };
        let stored = directory.file(CONFIG);
        if stored.is_file() && resume {
            directory.compare(&std::fs::read_to_string(&stored).map_err(Error::io(&stored))?, config)?;
            directory.sweep()?;
            return Ok(directory);
        }
        if directory.has_state() {
            return Err(directory.fault("holds a run already; pass --resume to go on with it, or another --out"));
        }
        files::write_atomic(&stored, config.as_bytes())?;
        Ok(directory)
    }

    /// Whether there is anything that starting again would lose.
    fn has_state(&self) -> bool {
        [CHECKPOINT, SEARCH, PROMPT, SUMMARY].iter().any(|name| self.file(name).is_file())
    }

    fn compare(&self, stored: &str, asked: &str) -> Result<()> {
        if stored == asked {
            return Ok(());
        }
        let (mut old, mut new) = (stored.lines(), asked.lines());
        let difference = loop {
            match (old.next(), new.next()) {
                (Some(a), Some(b)) if a == b => {}
                (a, b) => break format!("was `{}`, now `{}`", a.unwrap_or("(end)"), b.unwrap_or("(end)")),
            }
        };
        Err(self.fault(&format!("cannot go on with other settings than {CONFIG}: {difference}")))
    }

    /// Removes what a killed process left half written.
    fn sweep(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.path).map_err(Error::io(&self.path))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(".tmp") {
                std::fs::remove_file(entry.path()).map_err(Error::io(entry.path()))?;
            }
        }
        Ok(())
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether the run is complete.
    pub fn is_complete(&self) -> bool {
        self.file(SUMMARY).is_file()
    }

    pub(crate) fn fault(&self, reason: &str) -> Error {
        Error::Run { path: self.path.clone(), reason: reason.into() }
    }

    /// Writes a document.
    pub(crate) fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        let path = self.file(name);
        let mut text = serde_json::to_string_pretty(value).map_err(|e| self.fault(&format!("{name}: {e}")))?;
        text.push('\n');
        files::write_atomic(&path, text.as_bytes())
    }

    /// The step logs, cut back to what a checkpoint knows of.
    pub(crate) fn logs(&self, lengths: LogLengths) -> Result<Logs> {
        let mut events = Log::open(self.file(EVENTS), lengths.events)?;
        if lengths.events == 0 {
            events.append(&events::header())?;
        }
        Ok(Logs { metrics: Log::open(self.file(METRICS), lengths.metrics)?, events })
    }

    /// Adds a line of wall-clock time.
    pub(crate) fn time(&self, what: &serde_json::Value) -> Result<()> {
        let path = self.file("timing.jsonl");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io(&path))?;
        writeln!(file, "{what}").map_err(Error::io(&path))
    }
}

fn lock(path: &Path) -> Result<File> {
    let name = path.join(".lock");
    let file = OpenOptions::new().create(true).append(true).open(&name).map_err(Error::io(&name))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let reason = "another process works in this run directory; wait for it, or take another --out".to_owned();
            Err(Error::Run { path: path.to_path_buf(), reason })
        }
        Err(TryLockError::Error(reason)) => Err(Error::Io { path: name, reason }),
    }
}

/// The two step logs.
pub(crate) struct Logs {
    metrics: Log,
    events: Log,
}

impl Logs {
    pub(crate) fn append(&mut self, record: &StepRecord) -> Result<()> {
        let mut line = serde_json::to_vec(record).map_err(|e| Error::config("metrics", e.to_string()))?;
        line.push(b'\n');
        self.metrics.append(&line)?;
        self.events.append(&events::scalars(record.step as u64, &record.scalars()))
    }

    /// Everything on disk; how long the files are then.
    pub(crate) fn sync(&mut self) -> Result<LogLengths> {
        Ok(LogLengths { metrics: self.metrics.sync()?, events: self.events.sync()? })
    }
}

/// A file that grows.
struct Log {
    path: PathBuf,
    file: BufWriter<File>,
    length: u64,
}

impl Log {
    fn open(path: PathBuf, length: u64) -> Result<Self> {
        let mut file =
            OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(Error::io(&path))?;
        let found = file.metadata().map_err(Error::io(&path))?.len();
        if found < length {
            let reason = format!("is shorter ({found} bytes) than the checkpoint says ({length}); it was changed");
            return Err(Error::Run { path, reason });
        }
        file.set_len(length).map_err(Error::io(&path))?;
        file.seek(SeekFrom::End(0)).map_err(Error::io(&path))?;
        Ok(Self { path, file: BufWriter::new(file), length })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        self.file.write_all(bytes).map_err(Error::io(&self.path))
    }

    fn sync(&mut self) -> Result<u64> {
        self.file.flush().map_err(Error::io(&self.path))?;
        self.file.get_ref().sync_data().map_err(Error::io(&self.path))?;
        Ok(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_for_one_process_and_one_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let first = RunDirectory::take(&path, "seed = 1\n", false).unwrap();
        let second = RunDirectory::take(&path, "seed = 1\n", true).unwrap_err().to_string();
        assert!(second.contains("another process"), "{second}");
        std::fs::write(first.file(".tmpabc"), "half").unwrap();
        std::fs::write(first.file(CHECKPOINT), "state").unwrap();
        drop(first);
        assert!(RunDirectory::take(&path, "seed = 1\n", false).unwrap_err().to_string().contains("--resume"));
        let other = RunDirectory::take(&path, "seed = 2\n", true).unwrap_err().to_string();
        assert!(other.contains("was `seed = 1`, now `seed = 2`"), "{other}");
        let again = RunDirectory::take(&path, "seed = 1\n", true).unwrap();
        assert!(!again.file(".tmpabc").exists(), "what a kill left behind is swept");
        std::fs::remove_file(again.file(CHECKPOINT)).unwrap();
        drop(again);
        RunDirectory::take(&path, "seed = 3\n", false).expect("a run that never saved anything can start anew");
    }

    #[test]
    fn logs_are_cut_back_and_a_shortened_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::take(folder.path(), "", false).unwrap();
        let record = |step| StepRecord {
            step,
            epoch: 0,
            lr: 0.1,
            loss: 1.0,
            accuracy: 0.5,
            parameter_norm: 1.0,
            gradient_norm: 1.0,
            epsilon_norm: None,
            epsilon_ratio: None,
            perturbed_loss: None,
            sharpness: None,
        };
        let mut logs = directory.logs(LogLengths::default()).unwrap();
        logs.append(&record(1)).unwrap();
        let lengths = logs.sync().unwrap();
        logs.append(&record(2)).unwrap();
        logs.sync().unwrap();
        drop(logs);
        let mut logs = directory.logs(lengths).unwrap();
        logs.append(&record(2)).unwrap();
        logs.sync().unwrap();
        let text = std::fs::read_to_string(directory.file(METRICS)).unwrap();
        assert_eq!(text.lines().count(), 2);
        std::fs::write(directory.file(METRICS), "").unwrap();
        assert!(directory.logs(lengths).is_err());
    }
}
