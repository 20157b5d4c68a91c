//! Text banks on disk: what adapters computed from the prompt and the class list.

use crate::digest::Digest;
use crate::methods::TextStore;
use crate::{Error, Result, files};
use flatclip_tensor::Matrix;
use std::path::{Path, PathBuf};

/// Matrices by key, one checksummed file each.
#[derive(Clone, Debug)]
pub struct TextCache {
    folder: PathBuf,
}

impl TextCache {
    /// Below a cache folder.
    pub fn new(root: &Path) -> Self {
        Self { folder: root.join("text") }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{}.bank", Digest::default().bytes(key).key()))
    }

    /// The files and their sizes.
    fn files(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.map(|entry| (entry.path(), entry.metadata().map(|meta| meta.len()).unwrap_or_default()))
    }

    /// Removes all; the number of bytes that were freed.
    pub fn clear(&self) -> Result<u64> {
        let mut freed = 0;
        for (path, size) in self.files() {
            std::fs::remove_file(&path).map_err(Error::io(&path))?;
            freed += size;
        }
        Ok(freed)
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.files().map(|(_, size)| size).sum()
    }
}

impl TextStore for TextCache {
    fn load(&self, key: &str) -> Option<Matrix> {
        decode(&std::fs::read(self.path(key)).ok()?)
    }

    fn save(&self, key: &str, rows: &Matrix) {
        // A cache that cannot be written costs time, not the run.
        let written = std::fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder));
        if let Err(error) = written.and_then(|()| files::write_atomic(&self.path(key), &encode(rows))) {
            tracing::warn!("the text bank cannot be cached: {error}");
        }
    }
}

fn encode(rows: &Matrix) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12 + 4 * rows.data().len());
    bytes.extend_from_slice(&(rows.rows() as u32).to_le_bytes());
    bytes.extend_from_slice(&(rows.cols() as u32).to_le_bytes());
    for value in rows.data() {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Matrix> {
    let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    if crc32fast::hash(body).to_le_bytes() != crc {
        return None;
    }
    let word = |b: &[u8]| Some(u32::from_le_bytes(b.try_into().ok()?) as usize);
    let (rows, cols) = (word(body.get(..4)?)?, word(body.get(4..8)?)?);
    let numbers = body.get(8..)?;
    if rows.checked_mul(cols)?.checked_mul(4)? != numbers.len() {
        return None;
    }
    let values = numbers.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Some(Matrix::from_vec(rows, cols, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_come_back_to_the_bit_and_damage_counts_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cache = TextCache::new(dir.path());
        let bank = Matrix::from_vec(2, 2, vec![0.1, -0.0, f32::MAX, 1e-40]);
        assert!(cache.load("k").is_none());
        cache.save("k", &bank);
        assert_eq!(cache.load("k"), Some(bank));
        let path = cache.path("k");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[9] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        assert!(cache.load("k").is_none());
        assert!(cache.clear().unwrap() > 0 && cache.bytes() == 0);
    }
}
