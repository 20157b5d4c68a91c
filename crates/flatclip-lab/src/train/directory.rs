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
//! | `checkpoint.previous.safetensors` | the one before it, until the run is finished |
//! | `prompt.safetensors`, `summary.json` | the result; `summary.json` is written last |
//! | `timing.jsonl` | wall-clock times, the one file that differs from run to run |
//!
//! A lock keeps a second process out. After a kill, the logs are cut back to the last checkpoint.

use super::checkpoint::LogLengths;
use super::events;
use super::settings::Settings;
use super::trainer::StepRecord;
use crate::run_dir::{RunDir, SUMMARY};
use flatclip::digest::Digest;
use flatclip::error::Hint;
use flatclip::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) const CHECKPOINT: &str = "checkpoint.safetensors";
/// A checkpoint that is being written; removed like every temporary file when the run is resumed.
pub(crate) const NEXT: &str = ".tmp-checkpoint";
/// Used when the newer one is damaged.
pub(crate) const PREVIOUS: &str = "checkpoint.previous.safetensors";
pub(crate) const RUN: &str = "run.json";
pub(crate) const SEARCH: &str = "search.json";
pub(crate) const PROMPT: &str = "prompt.safetensors";
const METRICS: &str = "metrics.jsonl";
const EVENTS: &str = "events.out.tfevents.0.flatclip";

/// What starting again would lose.
const STATE: [&str; 5] = [CHECKPOINT, PREVIOUS, SEARCH, PROMPT, SUMMARY];

/// The directory of a tuning run.
impl RunDir {
    /// Takes a directory for a tuning run: a new one, or with `resume` one that has the same configuration. The flag says
    /// whether the run is resumed.
    pub(crate) fn take_tuning(path: &Path, settings: &Settings, resume: bool) -> Result<(Self, bool)> {
        let config = match Self::open(path) {
            Ok(there) if resume => settings.to_table_beside(&there.config_table()?)?,
            _ => settings.to_table()?,
        };
        Self::take(path, &config, resume, &STATE)
    }

    /// Writes the settings that the numbers of a run depend on; a resumed run must have the same.
    pub(crate) fn settle_provenance(&self, provenance: &serde_json::Value, goes_on: bool) -> Result<()> {
        if goes_on && self.file(RUN).is_file() {
            let stored: serde_json::Value = self.read_json(RUN)?;
            if let Some(difference) = changed_key(&stored, provenance) {
                return Err(self.fault(format!("cannot go on: {difference}")).with_hint(Hint::Elsewhere));
            }
        }
        self.write_json(RUN, provenance)
    }

    /// Names the run by its provenance; empty without one.
    pub(crate) fn run_digest(&self) -> String {
        std::fs::read(self.file(RUN)).map(|bytes| Digest::default().bytes(bytes).hex()).unwrap_or_default()
    }

    /// The step logs, truncated to the step of a checkpoint.
    pub(crate) fn logs(&self, lengths: LogLengths) -> Result<Logs> {
        let mut events = Log::open(self.file(EVENTS), lengths.events)?;
        if lengths.events == 0 {
            events.append(&events::header())?;
        }
        Ok(Logs { metrics: Log::open(self.file(METRICS), lengths.metrics)?, events })
    }

    pub(crate) fn time(&self, stage: &str, start: Instant) -> Result<()> {
        let line = serde_json::json!({ "stage": stage, "seconds": start.elapsed().as_secs_f64() });
        let path = self.file("timing.jsonl");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io(&path))?;
        writeln!(file, "{line}").map_err(Error::io(&path))
    }
}

/// The first key with another value than before. Keys that an earlier version did not write are not compared.
fn changed_key(stored: &serde_json::Value, asked: &serde_json::Value) -> Option<String> {
    let (stored, asked) = (stored.as_object()?, asked.as_object()?);
    let (key, before, now) = asked.iter().find_map(|(key, now)| {
        let before = stored.get(key).filter(|before| *before != now)?;
        Some((key, before, now))
    })?;
    let name = match key.as_str() {
        "model_hash" => "the weights (model_hash)",
        "images" => "the training images (images)",
        other => other,
    };
    match (before.to_string(), now.to_string()) {
        (before, now) if before.len() + now.len() < 200 => Some(format!("{name}: was {before}, now {now}")),
        _ => Some(format!("{name}: another list than before")),
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
    fn logs_are_cut_back_and_a_shortened_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDir::claim(folder.path()).unwrap();
        let record = |step| StepRecord { step, ..StepRecord::default() };
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
