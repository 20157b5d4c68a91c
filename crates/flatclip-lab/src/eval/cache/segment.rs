//! The file format of kept features. A segment is a sequence of entries, appended by one process only; a torn tail (the
//! process died) is skipped when reading. All numbers are little-endian:
//!
//! ```text
//! magic u32 | id length u32 | stamp length u32 | views u32 | width u32 | id | stamp | norms [views] | features [views, width] | crc32 u32
//! ```
//!
//! The checksum covers everything before it.

use flatclip::ViewFeatures;
use flatclip::{Error, Result, files as on_disk};
use flatclip_tensor::Matrix;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

const MAGIC: u32 = 0x3146_4346; // "FCF1"
const HEADER: usize = 20;
/// Longer ids and stamps are not ours.
const MAX_TEXT: u32 = 1 << 16;
const ENDING: &str = "seg";

#[derive(Clone, Debug)]
pub(super) struct Location {
    pub stamp: String,
    pub offset: u64,
    pub size: usize,
}

struct Header {
    id: usize,
    stamp: usize,
    views: usize,
    width: usize,
}

impl Header {
    fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let (id, stamp) = (word(4), word(8));
        let right = word(0) == MAGIC && id <= MAX_TEXT && stamp <= MAX_TEXT;
        right.then(|| Self {
            id: id as usize,
            stamp: stamp as usize,
            views: word(12) as usize,
            width: word(16) as usize,
        })
    }

    /// Bytes of the whole entry; `None` if they cannot be counted.
    fn entry_size(&self) -> Option<usize> {
        let numbers = self.views.checked_mul(self.width.checked_add(1)?)?.checked_mul(4)?;
        numbers.checked_add(HEADER + self.id + self.stamp + 4)
    }
}

pub(super) fn encode(id: &str, stamp: &str, features: &ViewFeatures) -> Vec<u8> {
    let (views, width) = (features.unit.rows(), features.unit.cols());
    let mut bytes = Vec::with_capacity(HEADER + id.len() + stamp.len() + 4 * views * (width + 1) + 4);
    for word in [MAGIC, id.len() as u32, stamp.len() as u32, views as u32, width as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(id.as_bytes());
    bytes.extend_from_slice(stamp.as_bytes());
    for value in features.norms.iter().chain(features.unit.data()) {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The features of an entry; `None` if it is damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<ViewFeatures> {
    let header = Header::parse(bytes.first_chunk::<HEADER>()?)?;
    if header.entry_size()? != bytes.len() {
        return None;
    }
    let (body, crc) = bytes.split_at(bytes.len() - 4);
    if crc32fast::hash(body).to_le_bytes() != crc {
        return None;
    }
    let numbers = &body[HEADER + header.id + header.stamp..];
    let mut values = numbers.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let norms: Vec<f32> = values.by_ref().take(header.views).collect();
    Some(ViewFeatures { norms, unit: Matrix::from_vec(header.views, header.width, values.collect()) })
}

/// The segments of a folder, sorted by name.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder))?;
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING);
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_segment).collect();
    files.sort();
    Ok(files)
}

/// A new, empty segment with a name of its own.
pub(super) fn create(folder: &Path) -> Result<File> {
    let ending = format!(".{ENDING}");
    let mut builder = tempfile::Builder::new();
    let aside = on_disk::shared(builder.prefix("views-").suffix(&ending)).tempfile_in(folder);
    let (file, _) = aside.map_err(Error::io(folder))?.keep().map_err(|e| Error::io(folder)(e.error))?;
    Ok(file)
}

/// Calls `visit` with the id and place of each whole entry.
pub(super) fn scan(path: &Path, mut visit: impl FnMut(String, Location)) -> Result<()> {
    let file = File::open(path).map_err(Error::io(path))?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    let mut reader = BufReader::with_capacity(4096, file);
    let mut offset = 0u64;
    while offset + HEADER as u64 <= length {
        let mut bytes = [0u8; HEADER];
        reader.read_exact(&mut bytes).map_err(Error::io(path))?;
        let Some(header) = Header::parse(&bytes) else { return Ok(()) };
        let Some(size) = header.entry_size().filter(|&size| offset + size as u64 <= length) else { return Ok(()) };
        let mut texts = vec![0u8; header.id + header.stamp];
        reader.read_exact(&mut texts).map_err(Error::io(path))?;
        let (id, stamp) = texts.split_at(header.id);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        visit(text(id), Location { stamp: text(stamp), offset, size });
        offset += size as u64;
        reader.seek(SeekFrom::Start(offset)).map_err(Error::io(path))?;
    }
    Ok(())
}

/// Bytes and entries of all segments of a folder.
pub(super) fn totals(folder: &Path) -> Result<(u64, usize)> {
    let (mut bytes, mut entries) = (0, 0);
    for file in files(folder)? {
        bytes += std::fs::metadata(&file).map_err(Error::io(&file))?.len();
        scan(&file, |_, _| entries += 1)?;
    }
    Ok((bytes, entries))
}
