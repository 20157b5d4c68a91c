//! A cache on disk for hashes of weight files: hashing reads every value, which takes longer than classifying an image.
//!
//! A hash is stored by the checkpoint's path with size, modification time and inode of its files; a file that was changed or
//! replaced is hashed again.

use super::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::files::write_atomic;
use std::path::{Path, PathBuf};

impl Checkpoint {
    /// Uses the hash stored below `folder` if the files are unchanged.
    pub(crate) fn recall_hash(&self, folder: &Path) {
        let Some(stamp) = stamp(self.path()) else { return };
        let Ok(text) = std::fs::read_to_string(place(folder, self.path())) else { return };
        if let Some((hash, kept)) = text.split_once('\n')
            && kept == stamp
            && hash.len() == 64
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            let _ = self.hash.set(hash.to_owned());
        }
    }

    /// Stores the hash. A folder that cannot be written is not an error: the hash is then computed again next time.
    pub(crate) fn remember_hash(&self, folder: &Path) {
        let (Some(stamp), Ok(hash)) = (stamp(self.path()), self.hash()) else { return };
        let place = place(folder, self.path());
        let text = format!("{hash}\n{stamp}");
        if std::fs::read_to_string(&place).is_ok_and(|kept| kept == text) {
            return;
        }
        let made = place.parent().is_some_and(|parent| std::fs::create_dir_all(parent).is_ok());
        if !made || write_atomic(&place, text.as_bytes()).is_err() {
            tracing::debug!("the hash of {} is not kept", self.path().display());
        }
    }
}

/// The cache file of a checkpoint.
fn place(folder: &Path, checkpoint: &Path) -> PathBuf {
    folder.join("hashes").join(Digest::default().bytes(checkpoint.as_os_str().as_encoded_bytes()).key())
}

/// Size, modification time and inode of the checkpoint's file or of all files in its folder. `None` for an embedded model.
fn stamp(path: &Path) -> Option<String> {
    let mut files = match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|file| file.is_file()).collect(),
        Err(_) => vec![path.to_path_buf()],
    };
    files.sort();
    let mut stamp = std::fs::canonicalize(path).ok()?.display().to_string();
    for file in files {
        let about = std::fs::metadata(&file).ok()?;
        let changed = about.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos();
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&about);
        #[cfg(not(unix))]
        let inode = 0;
        let (name, size) = (file.file_name()?.to_string_lossy(), about.len());
        stamp.push_str(&format!("\n{name} {size} {changed} {inode}"));
    }
    Some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{random_of, save_canonical};

    #[test]
    fn a_hash_is_kept_and_a_changed_file_is_hashed_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        let config = Checkpoint::embedded("pocket").unwrap().unwrap().config().clone();
        save_canonical(&random_of(&config, 1), &file).unwrap();
        let first = Checkpoint::open(&file).unwrap();
        first.recall_hash(folder.path());
        let hash = first.hash().unwrap();
        first.remember_hash(folder.path());
        // A stored hash is used without reading the values: store a wrong one and check that it is returned.
        let place = place(folder.path(), &file);
        let planted = "0".repeat(64);
        let text = std::fs::read_to_string(&place).unwrap().replace(&hash, &planted);
        std::fs::write(&place, text).unwrap();
        let recalled = || {
            let checkpoint = Checkpoint::open(&file).unwrap();
            checkpoint.recall_hash(folder.path());
            checkpoint.hash().unwrap()
        };
        assert_eq!(recalled(), planted);
        save_canonical(&random_of(&config, 2), &file).unwrap();
        let changed = recalled();
        assert!(changed != planted && changed != hash);
    }
}
