//! The samples that a list names. An image that is not there stays in: it is a failure when it is read, counted
//! like a damaged one, so that no number is silently that of another data set.

use super::dataset::{Note, Sample, Source};
use flatclip::error::quoted;
use std::path::PathBuf;

/// How many missing files a message lists.
const NAMED: usize = 3;

/// Samples in the making.
#[derive(Default)]
pub(super) struct Listed {
    samples: Vec<Sample>,
    missing: Vec<String>,
}

impl Listed {
    /// Adds a sample whose image is at `path`, or should be.
    pub(super) fn push(&mut self, id: String, label: usize, path: PathBuf, is_there: bool) {
        if !is_there {
            self.missing.push(id.clone());
        }
        self.samples.push(Sample { id, label, source: Source::File(path) });
    }

    /// The samples, and one warning for all images that the disk does not have. Where it has none at all, the list
    /// belongs to another folder: then there are no samples.
    pub(super) fn finish(self, notes: &mut Vec<Note>) -> Vec<Sample> {
        let (missing, listed) = (self.missing, self.samples.len());
        if missing.is_empty() {
            return self.samples;
        }
        let some = missing.iter().take(NAMED).map(|path| quoted(path)).collect::<Vec<_>>().join(", ");
        let dots = if missing.len() > NAMED { ", .." } else { "" };
        notes.push(Note::warning(format!(
            "{} of {listed} listed images are missing: {some}{dots}; each counts as a bad sample",
            missing.len()
        )));
        if missing.len() == listed { Vec::new() } else { self.samples }
    }
}
