//! Size, digest and revision of files at their first download: `flatclip.lock` in the model's folder.

use super::client::{Expected, Failure};
use crate::files::{read_text, write_atomic};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const NAME: &str = "flatclip.lock";

#[derive(Default, Deserialize, Serialize)]
struct Content {
    /// The commit of the repository.
    revision: Option<String>,
    files: BTreeMap<String, LockedFile>,
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

pub(super) struct Lock {
    path: PathBuf,
    content: Content,
}

impl Lock {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        if !path.is_file() {
            return Ok(Self { path, content: Content::default() });
        }
        let content = serde_json::from_str(&read_text(&path)?).map_err(|e| Error::Weights {
            path: path.clone(),
            reason: format!("is damaged ({e}); remove it to accept whatever the hub states next"),
        })?;
        Ok(Self { path, content })
    }

    pub(super) fn revision(&self) -> Option<&str> {
        self.content.revision.as_deref()
    }

    pub(super) fn file(&self, name: &str) -> Option<&LockedFile> {
        self.content.files.get(name)
    }

    /// Records what the hub reports, or compares it with the record. True if a partial download may be of this version.
    pub(super) fn agree(&mut self, name: &str, url: &str, expected: &Expected) -> Result<bool, Failure> {
        let stated = &expected.file;
        let Some(known) = self.content.files.get(name) else {
            if self.content.revision.is_none() {
                self.content.revision = expected.revision.clone();
            }
            return self.note(name, stated.clone());
        };
        let both = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some();
        let digest = both(&known.sha256, &stated.sha256).then(|| known.sha256 == stated.sha256);
        let size = known.size.is_some() && stated.size.is_some() && known.size != stated.size;
        if (digest == Some(false) || size) && known.complete {
            return Err(self.changed(name, url, known, stated));
        }
        if digest == Some(false) || size {
            return self.note(name, stated.clone());
        }
        let same_version = both(&known.etag, &stated.etag) && known.etag == stated.etag;
        Ok(digest == Some(true) || same_version)
    }

    fn note(&mut self, name: &str, stated: LockedFile) -> Result<bool, Failure> {
        self.content.files.insert(name.to_owned(), stated);
        self.save()?;
        Ok(false)
    }

    /// Records the digest of a complete file, or compares it with the record.
    pub(super) fn complete(&mut self, name: &str, url: &str, sha256: &str) -> Result<(), Failure> {
        let known = self.content.files.entry(name.to_owned()).or_default();
        match &known.sha256 {
            Some(wanted) if wanted == sha256 && known.complete => Ok(()),
            Some(wanted) if wanted != sha256 => {
                let found = LockedFile { sha256: Some(sha256.to_owned()), ..known.clone() };
                let known = known.clone();
                Err(self.changed(name, url, &known, &found))
            }
            _ => {
                known.sha256 = Some(sha256.to_owned());
                known.complete = true;
                self.save()
            }
        }
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
        let wrong = |e: serde_json::Error| Error::Weights { path: self.path.clone(), reason: e.to_string() };
        let text = serde_json::to_string_pretty(&self.content).map_err(wrong)?;
        Ok(write_atomic(&self.path, text.as_bytes())?)
    }
}
