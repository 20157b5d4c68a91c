//! `predictions.jsonl`: appended while a run goes on, synced now and then, readable after a crash at any byte.

use super::record::Record;
use crate::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records are synced to the disk at least this often.
const SYNC_EVERY: Duration = Duration::from_secs(2);

/// The records of a file and how many of its bytes they are. A last line without its end is left out: the process died
/// while writing it.
pub(crate) fn read_log(path: &Path) -> Result<(Vec<Record>, u64)> {
    let file = File::open(path).map_err(Error::io(path))?;
    let mut reader = BufReader::new(file);
    let (mut records, mut valid, mut line) = (Vec::new(), 0u64, Vec::new());
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(Error::io(path))?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Ok((records, valid));
        }
        let record = serde_json::from_slice(&line).map_err(|e| {
            let reason =
                format!("line {} is not a record: {e}; the file was changed by hand or by the disk", records.len() + 1);
            Error::Run { path: path.to_path_buf(), reason }
        })?;
        records.push(record);
        valid += read as u64;
    }
}

/// An open `predictions.jsonl`.
#[derive(Debug)]
pub struct PredictionLog {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl PredictionLog {
    /// A new, empty log.
    pub fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file, synced: Instant::now() })
    }

    /// The log of an earlier run cut behind its last whole record, and the records.
    pub fn resume(path: &Path) -> Result<(Self, Vec<Record>)> {
        let (records, valid) = read_log(path)?;
        let mut file = OpenOptions::new().write(true).open(path).map_err(Error::io(path))?;
        file.set_len(valid).map_err(Error::io(path))?;
        file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
        Ok((Self { path: path.to_path_buf(), file, synced: Instant::now() }, records))
    }

    /// Appends records, one line each.
    pub(crate) fn append(&mut self, records: &[Record]) -> Result<()> {
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record).map_err(|e| Error::io(&self.path)(e.into()))?;
            lines.push(b'\n');
        }
        self.file.write_all(&lines).map_err(Error::io(&self.path))?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(Error::io(&self.path))?;
        self.synced = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let failed = |index: usize| Record::failed(index, &format!("id {index}"), index, &Error::config("k", "no"));
        (0..5).map(failed).collect()
    }

    #[test]
    fn a_log_cut_at_any_byte_resumes_without_loss_or_repetition() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        PredictionLog::create(&whole).unwrap().append(&records()).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        for cut in 0..=bytes.len() {
            let path = dir.path().join("cut");
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (mut log, done) = PredictionLog::resume(&path).unwrap();
            assert_eq!(done[..], records()[..done.len()]);
            log.append(&records()[done.len()..]).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_line_is_named_not_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        PredictionLog::create(&path).unwrap().append(&records()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap().replacen("\"label\":2", "\"label\":?", 1);
        std::fs::write(&path, text).unwrap();
        assert!(read_log(&path).unwrap_err().to_string().contains("line 3"));
        assert!(PredictionLog::create(&path).is_err(), "an existing log is never overwritten");
    }
}
