//! Finding the image that a list names, in copies whose folders differ from the ones the list was made for.

use super::dataset::{Note, Sample, Source};
use super::scan;
use flatclip::Result;
use flatclip::error::quoted;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Resolves listed paths: directly below each image folder, then (once) by file name anywhere below the data set.
pub(super) struct Locator {
    image_folders: Vec<PathBuf>,
    root: PathBuf,
    /// Paths relative to `root`, by lower-case file name; built when the first direct look-up fails.
    by_name: Option<BTreeMap<String, Vec<String>>>,
    /// How many were found only by name.
    pub found_by_name: usize,
}

impl Locator {
    pub(super) fn new(root: &Path, image_folders: Vec<PathBuf>) -> Self {
        Self { image_folders, root: root.to_path_buf(), by_name: None, found_by_name: 0 }
    }

    /// The file for a listed path (`/` separated). `None` if it is nowhere, or if several files fit equally well.
    pub(super) fn find(&mut self, listed: &str) -> Result<Option<PathBuf>> {
        let direct = self.image_folders.iter().map(|folder| folder.join(listed)).position(|path| path.is_file());
        if let Some(position) = direct {
            let path = self.image_folders[position].join(listed);
            // Most lists live in one folder: ask it first from now on.
            self.image_folders.swap(0, position);
            return Ok(Some(path));
        }
        if self.by_name.is_none() {
            self.by_name = Some(index(&self.root)?);
        }
        let name = file_name(listed).to_ascii_lowercase();
        let candidates = self.by_name.as_ref().and_then(|map| map.get(&name));
        let found = candidates.and_then(|paths| best(listed, paths)).map(|relative| self.root.join(relative));
        self.found_by_name += usize::from(found.is_some());
        Ok(found)
    }

    /// Where a listed image that is nowhere should be.
    pub(super) fn expected(&self, listed: &str) -> PathBuf {
        self.image_folders.first().unwrap_or(&self.root).join(listed)
    }
}

fn index(root: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (relative, _) in scan::images(root)? {
        map.entry(file_name(&relative).to_ascii_lowercase()).or_default().push(relative);
    }
    Ok(map)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The candidate that agrees with most folders of the listed path, counted from the file; between equals, the one
/// whose folders share a word with the listed folder (`cars_test/00001.jpg` is `car_data/test/<class>/00001.jpg`).
fn best<'a>(listed: &str, candidates: &'a [String]) -> Option<&'a String> {
    let rank = |candidate: &String| {
        let common = |(a, b): &(&str, &str)| a.eq_ignore_ascii_case(b);
        let tail = listed.rsplit('/').zip(candidate.rsplit('/')).take_while(common).count();
        (tail, usize::from(shares_word(listed, candidate)))
    };
    let top = candidates.iter().map(rank).max()?;
    let mut winners = candidates.iter().filter(|candidate| rank(candidate) == top);
    let winner = winners.next()?;
    winners.next().is_none().then_some(winner)
}

fn shares_word(listed: &str, candidate: &str) -> bool {
    let words = |path: &str| -> Vec<String> {
        let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
        folders.to_ascii_lowercase().split(['/', '_', '-', ' ']).map(str::to_owned).collect()
    };
    let listed = words(listed);
    words(candidate).iter().any(|word| ["train", "test", "val"].contains(&word.as_str()) && listed.contains(word))
}

/// How many missing files a message lists.
const NAMED: usize = 3;

/// The samples that a list names. An image that is not there stays in: it is a failure when it is read, counted like a damaged
/// one, so that no number is silently that of another data set.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::tree;

    #[test]
    fn direct_paths_win_and_names_are_a_fallback() {
        let dir = tree(&["images/a/1.jpg", "elsewhere/deep/2.JPG"]);
        let mut locator = Locator::new(dir.path(), vec![dir.path().to_path_buf(), dir.path().join("images")]);
        assert_eq!(locator.find("a/1.jpg").unwrap().unwrap(), dir.path().join("images/a/1.jpg"));
        assert_eq!(locator.found_by_name, 0);
        assert_eq!(locator.find("a/2.jpg").unwrap().unwrap(), dir.path().join("elsewhere/deep/2.JPG"));
        assert_eq!(locator.found_by_name, 1);
        assert_eq!(locator.find("a/3.jpg").unwrap(), None);
    }

    #[test]
    fn the_by_class_mirror_of_cars_keeps_train_and_test_apart() {
        let dir = tree(&["car_data/train/Audi TTS/00001.jpg", "car_data/test/AM General/00001.jpg"]);
        let mut locator = Locator::new(dir.path(), vec![dir.path().to_path_buf()]);
        let found = locator.find("cars_test/00001.jpg").unwrap().unwrap();
        assert!(found.ends_with("test/AM General/00001.jpg"), "{}", found.display());
    }

    #[test]
    fn two_equally_good_files_are_no_answer() {
        let dir = tree(&["x/1.jpg", "y/1.jpg"]);
        let mut locator = Locator::new(dir.path(), vec![dir.path().to_path_buf()]);
        assert_eq!(locator.find("z/1.jpg").unwrap(), None);
    }
}
