//! The subset of zip that torch writes: a central directory, stored or deflated entries, zip64 for large files.

use super::bytes::{Bytes, Packing, Source, bad};
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// A released model has some 400 entries of some 100 bytes.
const MAX_DIRECTORY: u64 = 64 << 20;
/// Weights hardly compress. A larger compression ratio is refused as a zip bomb, except for entries up to [`RATIO_FREE`].
const MAX_RATIO: u64 = 100;
const RATIO_FREE: u64 = 1 << 20;

struct Entry {
    crc: u32,
    stored: u64,
    len: u64,
    header: u64,
    deflated: bool,
}

pub(crate) struct Archive {
    source: Arc<Source>,
    entries: BTreeMap<String, Entry>,
}

/// The little-endian number of `size` bytes; `None` beyond the end.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |n, &b| (n << 8) | u64::from(b)))
}

impl Archive {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let source = Source::open(path)?;
        let (offset, len) = directory_range(&source)?;
        if len > MAX_DIRECTORY {
            return Err(bad(path, format!("its zip directory claims {len} bytes; at most {MAX_DIRECTORY} are read")));
        }
        let bytes = source.read(offset, len)?;
        let mut entries = BTreeMap::new();
        let mut at = 0;
        while at < bytes.len() {
            let (name, entry, next) =
                central(&bytes[at..]).map_err(|reason| bad(path, format!("zip directory, byte {at}: {reason}")))?;
            entries.insert(name, entry);
            at += next;
        }
        Ok(Self { source, entries })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The bytes of an entry, not read yet.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Bytes>> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let wrong = |reason: String| bad(&self.source.path, format!("zip entry `{name}`: {reason}"));
        if entry.deflated && entry.len > RATIO_FREE && entry.len / MAX_RATIO > entry.stored {
            let Entry { stored, len, .. } = entry;
            let reason = format!("{stored} bytes would unpack to {len}; weights do not compress like that (zip bomb)");
            return Err(wrong(reason));
        }
        if !entry.deflated && entry.stored != entry.len {
            return Err(wrong(format!("stored, but of two lengths, {} and {}", entry.stored, entry.len)));
        }
        let header = self.source.read(entry.header, 30)?;
        if !header.starts_with(&LOCAL) {
            return Err(wrong(format!("no header at byte {}; the file is damaged", entry.header)));
        }
        let names = number(&header, 26, 2).unwrap_or(0) + number(&header, 28, 2).unwrap_or(0);
        let offset = entry.header + 30 + names;
        if offset.checked_add(entry.stored).is_none_or(|end| end > self.source.len) {
            let (stored, all) = (entry.stored, self.source.len);
            return Err(wrong(format!("truncated: {stored} bytes at offset {offset}, the file has {all}")));
        }
        let packing = if entry.deflated { Packing::Deflated(entry.crc) } else { Packing::Checked(entry.crc) };
        Ok(Some(Bytes { source: self.source.clone(), offset, stored: entry.stored, len: entry.len, packing }))
    }
}

/// The position of the central directory.
fn directory_range(source: &Source) -> Result<(u64, u64)> {
    let path = &source.path;
    // The end record has 22 bytes and a comment of at most 65535.
    let tail_len = source.len.min(22 + 65_535 + 20);
    let tail = source.read(source.len - tail_len, tail_len)?;
    let end = tail.windows(4).rposition(|w| w == END).filter(|at| tail.len() - at >= 22);
    let end =
        end.ok_or_else(|| bad(path, "truncated or damaged: a zip archive ends with a directory, this file does not"))?;
    let [len, offset] = [12, 16].map(|at| number(&tail[end..], at, 4).unwrap_or(0));
    let locator = end.checked_sub(20).map(|at| &tail[at..end]).filter(|l| l.starts_with(&LOCATOR_64));
    let Some(locator) = locator else { return Ok((offset, len)) };
    let large = source.read(number(locator, 8, 8).unwrap_or(u64::MAX), 56)?;
    if !large.starts_with(&END_64) {
        return Err(bad(path, "damaged: the zip64 directory is not where the archive says"));
    }
    let [len, offset] = [40, 48].map(|at| number(&large, at, 8).unwrap_or(u64::MAX));
    Ok((offset, len))
}

/// One entry of the central directory, and how many bytes it took.
fn central(bytes: &[u8]) -> Result<(String, Entry, usize), String> {
    let field =
        |at, size| number(bytes, at, size).filter(|_| bytes.starts_with(&CENTRAL)).ok_or("damaged or truncated entry");
    let (flags, method, name_len, extra_len) = (field(8, 2)?, field(10, 2)?, field(28, 2)?, field(30, 2)?);
    let (comment_len, crc, header) = (field(32, 2)?, field(16, 4)?, field(42, 4)?);
    let (stored, len) = (field(20, 4)?, field(24, 4)?);
    let (name_end, extra_end) = (46 + name_len as usize, 46 + name_len as usize + extra_len as usize);
    let (Some(name), Some(extra)) = (bytes.get(46..name_end), bytes.get(name_end..extra_end)) else {
        return Err("truncated entry".into());
    };
    let name = String::from_utf8(name.to_vec()).map_err(|_| "an entry's name is not UTF-8")?;
    if flags & 1 != 0 {
        return Err(format!("entry `{name}` is encrypted"));
    }
    if method != 0 && method != 8 {
        return Err(format!("entry `{name}` is packed by method {method}; stored and deflate are known"));
    }
    let mut entry = Entry { crc: crc as u32, stored, len, header, deflated: method == 8 };
    widen(&mut entry, extra);
    Ok((name, entry, extra_end + comment_len as usize))
}

/// Reads 64-bit sizes from the zip64 extra field, in the order that the format prescribes.
fn widen(entry: &mut Entry, extra: &[u8]) {
    let mut at = 0;
    while let (Some(id), Some(size)) = (number(extra, at, 2), number(extra, at + 2, 2)) {
        if id == 1 {
            let mut field = at + 4;
            for value in [&mut entry.len, &mut entry.stored, &mut entry.header] {
                if *value == u64::from(u32::MAX) {
                    *value = number(extra, field, 8).unwrap_or(u64::MAX);
                    field += 8;
                }
            }
            return;
        }
        at += 4 + size as usize;
    }
}
