//! Features kept between runs: a second method, or a sweep, costs no encoding.
//!
//! Image features of all views are kept as f32, unit rows and raw norms, so that a run gives the same bytes with and
//! without the cache. What the files are keyed by is in [`FeatureKey`]; each entry also carries a digest of the image, so a
//! changed image is encoded again, and beside it the file's stamp (place, size, times, inode), so that the digest of an
//! unchanged file is not computed again.

mod export;
mod features;
mod import;
mod import_file;
mod imported;
mod segment;

pub use export::export;
pub(crate) use features::FeatureCache;
pub use features::FeatureKey;
use flatclip::classify::TextCache;
pub use import::{FeatureRows, ImportRequest, import};
pub use import_file::FeatureParts;
pub use imported::Imported;
use imported::Manifest;

use flatclip::{Error, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One kept set of features.
#[derive(Clone, Debug, Serialize)]
pub struct CacheEntry {
    /// The folder's name: the key's hash.
    pub id: String,
    /// What it was made from.
    pub key: FeatureKey,
    /// The name of imported features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
    /// Bytes on disk.
    pub bytes: u64,
    /// Samples inside.
    pub samples: usize,
}

/// What is kept below a cache folder, by name of the data set.
pub fn list(root: &Path) -> Result<Vec<CacheEntry>> {
    let mut entries = Vec::new();
    for folder in sub_folders(&root.join("features"))? {
        let Some(key) = FeatureKey::read(&folder)? else { continue };
        let (bytes, samples) = segment::totals(&folder)?;
        let id = id_of(&folder);
        let import = Manifest::read(&folder)?.map(|manifest| manifest.name);
        entries.push(CacheEntry { id, key, import, bytes, samples });
    }
    entries.sort_by(|a, b| (&a.key.dataset, &a.id).cmp(&(&b.key.dataset, &b.id)));
    Ok(entries)
}

/// The entry whose id begins like this.
fn entry(root: &Path, id: &str) -> Result<CacheEntry> {
    let mut matching: Vec<CacheEntry> = list(root)?.into_iter().filter(|entry| entry.id.starts_with(id)).collect();
    match (matching.len(), matching.pop()) {
        (1, Some(entry)) => Ok(entry),
        (count, _) => {
            let reason = format!("`{id}` names {count} entries, expected one");
            Err(Error::config("cache", reason).with_hint(flatclip::error::Hint::List("cache entries")))
        }
    }
}

/// Removes one entry by (the beginning of) its id; the number of bytes that were freed.
pub fn remove(root: &Path, id: &str) -> Result<u64> {
    let entry = entry(root, id)?;
    let folder = root.join("features").join(&entry.id);
    std::fs::remove_dir_all(&folder).map_err(Error::io(&folder))?;
    Ok(entry.bytes)
}

/// Removes everything; the number of bytes that were freed.
pub fn remove_all(root: &Path) -> Result<u64> {
    let mut freed = 0;
    for entry in list(root)? {
        freed += remove(root, &entry.id)?;
    }
    freed += TextCache::new(root).clear()?;
    Ok(freed)
}

fn sub_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder))?;
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn id_of(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The content of a file; `None` if it does not exist (yet).
fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path)(e)),
    }
}
