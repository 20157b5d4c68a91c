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

/// Little-endian numbers at fixed offsets of a record; `None` beyond its end.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn n<const N: usize>(&self, at: usize) -> Option<u64> {
        let bytes: [u8; N] = self.0.get(at..at.checked_add(N)?)?.try_into().ok()?;
        Some(bytes.iter().rev().fold(0, |n, &b| (n << 8) | u64::from(b)))
    }
    fn u16(&self, at: usize) -> Option<u64> {
        self.n::<2>(at)
    }
    fn u32(&self, at: usize) -> Option<u64> {
        self.n::<4>(at)
    }
    fn u64(&self, at: usize) -> Option<u64> {
        self.n::<8>(at)
    }
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
        let record = Record(&header);
        if !header.starts_with(&LOCAL) {
            return Err(wrong(format!("no header at byte {}; the file is damaged", entry.header)));
        }
        let offset = entry.header + 30 + record.u16(26).unwrap_or(0) + record.u16(28).unwrap_or(0);
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
    let record = Record(&tail[end..]);
    let (len, offset) = (record.u32(12).unwrap_or(0), record.u32(16).unwrap_or(0));
    let locator = end.checked_sub(20).map(|at| &tail[at..end]).filter(|l| l.starts_with(&LOCATOR_64));
    let Some(locator) = locator else { return Ok((offset, len)) };
    let large = source.read(Record(locator).u64(8).unwrap_or(u64::MAX), 56)?;
    if !large.starts_with(&END_64) {
        return Err(bad(path, "damaged: the zip64 directory is not where the archive says"));
    }
    let record = Record(&large);
    Ok((record.u64(48).unwrap_or(u64::MAX), record.u64(40).unwrap_or(u64::MAX)))
}

/// One entry of the central directory, and how many bytes it took.
fn central(bytes: &[u8]) -> Result<(String, Entry, usize), String> {
    let record = Record(bytes);
    let short = || -> Option<[u64; 5]> {
        Some([record.u16(8)?, record.u16(10)?, record.u16(28)?, record.u16(30)?, record.u16(32)?])
    };
    let long = || -> Option<[u64; 4]> { Some([record.u32(16)?, record.u32(20)?, record.u32(24)?, record.u32(42)?]) };
    let (true, Some([flags, method, name_len, extra_len, comment_len]), Some([crc, stored, len, header])) =
        (bytes.starts_with(&CENTRAL), short(), long())
    else {
        return Err("damaged or truncated entry".into());
    };
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
    let record = Record(extra);
    let mut at = 0;
    while let (Some(id), Some(size)) = (record.u16(at), record.u16(at + 2)) {
        if id == 1 {
            let mut field = at + 4;
            for value in [&mut entry.len, &mut entry.stored, &mut entry.header] {
                if *value == u64::from(u32::MAX) {
                    *value = record.u64(field).unwrap_or(u64::MAX);
                    field += 8;
                }
            }
            return;
        }
        at += 4 + size as usize;
    }
}
