//! `predictions.jsonl`: appended during a run, synced at intervals, readable after a crash at any byte.

use super::record::Record;
use crate::run_dir::SUMMARY;
use flatclip::{Error, Result, files};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records are synced to the disk at least this often.
const SYNC_EVERY: Duration = Duration::from_secs(2);

/// The records of a file and how many of its bytes they are. A last line without its end is skipped: the process died
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
        let record = parse(&line).map_err(|e| {
            let reason =
                format!("line {} is not a record: {e}; the file was changed by hand or by the disk", records.len() + 1);
            Error::Run { path: path.to_path_buf(), reason }
        })?;
        records.push(record);
        valid += read as u64;
    }
}

/// The text between a record and its checksum, which is its last key.
const CHECKSUM: &str = ",\"crc32\":\"";

/// A record as a line with a checksum of everything before it.
fn line(record: &Record) -> serde_json::Result<String> {
    let mut text = serde_json::to_string(record)?;
    text.pop(); // the closing brace
    let sum = crc32fast::hash(text.as_bytes());
    Ok(format!("{text}{CHECKSUM}{sum:08x}\"}}\n"))
}

/// The record of a line. Lines of earlier versions have no checksum.
fn parse(line: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|e| e.to_string())?.trim_end();
    let whole = match text.rsplit_once(CHECKSUM) {
        Some((record, rest)) => {
            if rest != format!("{:08x}\"}}", crc32fast::hash(record.as_bytes())) {
                return Err("it does not fit its checksum".into());
            }
            format!("{record}}}")
        }
        None => text.to_owned(),
    };
    serde_json::from_str(&whole).map(Record::renewed).map_err(|e| e.to_string())
}

#[derive(Debug)]
pub(crate) struct PredictionLog {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl PredictionLog {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file, synced: Instant::now() })
    }

    /// The log of an earlier run cut behind its last whole record, and the records.
    pub(crate) fn resume(path: &Path) -> Result<(Self, Vec<Record>)> {
        let (records, valid) = read_log(path)?;
        let mut file = OpenOptions::new().write(true).open(path).map_err(Error::io(path))?;
        file.set_len(valid).map_err(Error::io(path))?;
        file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
        Ok((Self { path: path.to_path_buf(), file, synced: Instant::now() }, records))
    }

    fn lines(&self, records: &[Record]) -> Result<String> {
        records.iter().map(line).collect::<serde_json::Result<_>>().map_err(|e| Error::io(&self.path)(e.into()))
    }

    /// Appends records, one line each.
    pub(crate) fn append(&mut self, records: &[Record]) -> Result<()> {
        self.file.write_all(self.lines(records)?.as_bytes()).map_err(Error::io(&self.path))?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Puts other records in the place of all: the file has the earlier ones or the new ones. A summary beside it is of
    /// the earlier ones, so it goes first.
    pub(crate) fn replace(&mut self, records: &[Record]) -> Result<()> {
        let summary = self.path.with_file_name(SUMMARY);
        match std::fs::remove_file(&summary) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(&summary)(e)),
            _ => {}
        }
        files::write_atomic(&self.path, self.lines(records)?.as_bytes())?;
        self.file = OpenOptions::new().append(true).open(&self.path).map_err(Error::io(&self.path))?;
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
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
        let (dir, whole) = written();
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

    /// A log of all records.
    fn written() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        PredictionLog::create(&path).unwrap().append(&records()).unwrap();
        (dir, path)
    }

    #[test]
    fn a_flipped_bit_in_a_record_is_found() {
        let (_dir, path) = written();
        let bytes = std::fs::read(&path).unwrap();
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        for place in 0..end {
            for bit in 0..8 {
                let mut copy = bytes.clone();
                copy[place] ^= 1 << bit;
                std::fs::write(&path, &copy).unwrap();
                assert!(read_log(&path).is_err(), "byte {place} bit {bit}");
            }
        }
    }

    #[test]
    fn a_damaged_line_is_named_not_skipped() {
        let (_dir, path) = written();
        let text = std::fs::read_to_string(&path).unwrap().replacen("\"label\":2", "\"label\":?", 1);
        std::fs::write(&path, text).unwrap();
        assert!(read_log(&path).unwrap_err().to_string().contains("line 3"));
        std::fs::write(&path, serde_json::to_string(&records()[0]).unwrap() + "\n").unwrap();
        assert_eq!(read_log(&path).unwrap().0, records()[..1], "a line without a checksum, of an earlier version");
        assert!(PredictionLog::create(&path).is_err(), "an existing log is never overwritten");
    }
}
