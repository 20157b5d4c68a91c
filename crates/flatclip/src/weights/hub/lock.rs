//! Size, digest and revision of files at their first download: `flatclip.lock` in the model's folder.

use super::bad;
use super::client::{Expected, Failure};
use crate::Result;
use crate::files::{read_text, write_atomic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const NAME: &str = "flatclip.lock";

#[derive(Default, Deserialize, Serialize)]
pub(super) struct Lock {
    #[serde(skip)]
    path: PathBuf,
    /// The commit of the repository.
    pub(super) revision: Option<String>,
    pub(super) files: BTreeMap<String, LockedFile>,
}

/// The record of one file.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct LockedFile {
    pub(super) size: Option<u64>,
    /// Reported by the hub, or computed from the first download.
    pub(super) sha256: Option<String>,
    /// The server's ETag, if it reports no digest.
    pub(super) etag: Option<String>,
    /// Whether the download was completed.
    pub(super) complete: bool,
}

impl Lock {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        if !path.is_file() {
            return Ok(Self { path, ..Self::default() });
        }
        let known: Self = serde_json::from_str(&read_text(&path)?)
            .map_err(|e| bad(&path, format!("is damaged ({e}); remove it to accept whatever the hub states next")))?;
        Ok(Self { path, ..known })
    }

    /// Records what the hub reports, or compares it with the record. True if a partial download may be of this version.
    pub(super) fn agree(&mut self, name: &str, url: &str, expected: &Expected) -> Result<bool, Failure> {
        let stated = &expected.file;
        let Some(known) = self.files.get(name) else {
            if self.revision.is_none() {
                self.revision = expected.revision.clone();
            }
            return self.note(name, stated.clone());
        };
        fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            a.is_some() && b.is_some() && a != b
        }
        let same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        match differ(&known.sha256, &stated.sha256) || differ(&known.size, &stated.size) {
            true if known.complete => Err(self.changed(name, url, known, stated)),
            true => self.note(name, stated.clone()),
            false => Ok(same(&known.sha256, &stated.sha256) || same(&known.etag, &stated.etag)),
        }
    }

    fn note(&mut self, name: &str, stated: LockedFile) -> Result<bool, Failure> {
        self.files.insert(name.to_owned(), stated);
        self.save()?;
        Ok(false)
    }

    /// Records the digest of a complete file, or compares it with the record.
    pub(super) fn complete(&mut self, name: &str, url: &str, sha256: &str) -> Result<(), Failure> {
        let known = self.files.get(name).cloned().unwrap_or_default();
        if known.complete && known.sha256.as_deref() == Some(sha256) {
            return Ok(());
        }
        let found = LockedFile { sha256: Some(sha256.to_owned()), complete: true, ..known.clone() };
        if known.sha256.is_some() && known.sha256 != found.sha256 {
            return Err(self.changed(name, url, &known, &found));
        }
        self.files.insert(name.to_owned(), found);
        self.save()
    }

    fn changed(&self, name: &str, url: &str, known: &LockedFile, stated: &LockedFile) -> Failure {
        let show = |file: &LockedFile| {
            let size = file.size.map_or("an unknown number of".to_owned(), |size| size.to_string());
            format!("{size} bytes, SHA-256 {}", file.sha256.as_deref().unwrap_or("not stated"))
        };
        let reason = format!(
            "{name} has changed on the hub: it was {}, now it is {}; remove {} if you trust the new one",
            show(known),
            show(stated),
            self.path.display()
        );
        Failure::fetch(url, reason)
    }

    fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(|e| bad(&self.path, e.to_string()))?;
        Ok(write_atomic(&self.path, text.as_bytes())?)
    }
}
