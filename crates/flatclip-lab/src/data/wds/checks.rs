//! Whether a shard is whole: its end, and the counts in the files next to it.

use super::BLOCK;
use flatclip::error::quoted;
use flatclip::files::read_text;
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// An archive ends with two blocks of zeros, and only zeros follow. Otherwise it is cut off, or a member's header is wiped out
/// and what it and the members behind it held would be skipped silently.
pub(super) fn check_end(file: &mut File, end: u64, length: u64) -> std::result::Result<(), String> {
    if length.saturating_sub(end) < 2 * BLOCK {
        return Err(format!(
            "the end-of-archive blocks are missing: the last member ends at byte {end} of {length}; download the shard again"
        ));
    }
    file.seek(SeekFrom::Start(end)).map_err(|e| e.to_string())?;
    let (mut at, mut buffer) = (end, vec![0; 1 << 16]);
    loop {
        let count = file.read(&mut buffer).map_err(|e| e.to_string())?;
        if let Some(place) = buffer[..count].iter().position(|&byte| byte != 0) {
            return Err(format!(
                "the archive ends at byte {end}, but there is data at byte {}: a header is damaged, or archives were \
                 joined; download the shard again, or join members instead of archives",
                at + place as u64
            ));
        }
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
    }
}

/// `sizes.json` in the folder of the shards (webdataset's own list: file name to samples), if it is there.
pub(super) fn check_count(file: &Path, found: usize) -> Result<()> {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let path = file.with_file_name("sizes.json");
    if !path.is_file() {
        return Ok(());
    }
    let wrong = |reason: String| Error::Data { path: path.clone(), reason };
    let sizes: BTreeMap<String, usize> = serde_json::from_str(&read_text(&path)?)
        .map_err(|e| wrong(format!("expected an object of shard names and sample counts: {e}")))?;
    match sizes.get(name) {
        Some(&expected) if expected != found => {
            Err(wrong(format!("says {expected} samples for {name}, the shard has {found}; download it again")))
        }
        _ => Ok(()),
    }
}

/// `nshards.txt` in the folder of the shards (clip_benchmark's own count), if it is there and a whole folder is read.
pub(super) fn check_shards(folder: &Path, found: usize) -> Result<()> {
    let path = folder.join("nshards.txt");
    if !path.is_file() {
        return Ok(());
    }
    let wrong = |reason: String| Error::Data { path: path.clone(), reason };
    let text = read_text(&path)?;
    let expected: usize =
        text.trim().parse().map_err(|_| wrong(format!("expected a number, found {:?}", quoted(&text))))?;
    if expected != found {
        return Err(wrong(format!("says {expected} shards, the folder has {found}; download the missing ones")));
    }
    Ok(())
}
