//! CoOp's `split_zhou_*.json`: an object with `train`, `val`, `test`, each a list of `[path, label, class name]`.

use super::dataset::{Dataset, Note, Sample, Split};
use super::locate::{Listed, Locator};
use super::{names, scan};
use flatclip::error::quoted;
use flatclip::files::read_text;
use flatclip::{Error, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct SplitFile {
    train: Vec<Row>,
    #[serde(default)]
    val: Vec<Row>,
    test: Vec<Row>,
}

/// `[relative path, label, class name]`.
#[derive(Deserialize)]
struct Row(String, usize, String);

/// The parsed split file: class names over all splits, and the rows of one split.
pub(super) struct ZhouSplit {
    /// As written, by label.
    pub raw_names: Vec<String>,
    rows: Vec<Row>,
}

/// Reads a split file; labels must be 0-based, contiguous, and have one name each.
pub(super) fn read(path: &Path, split: Split) -> Result<ZhouSplit> {
    let text = read_text(path)?;
    let wrong = |reason: String| Error::Data { path: path.to_path_buf(), reason };
    let parsed: SplitFile = serde_json::from_str(&text).map_err(|e| {
        wrong(format!("expected an object with train, val and test, each a list of [path, label, class name]: {e}"))
    })?;
    let all = [&parsed.train, &parsed.val, &parsed.test];
    let total: usize = all.iter().map(|rows| rows.len()).sum();
    let mut raw_names: Vec<Option<&str>> = Vec::new();
    for Row(image, label, name) in all.into_iter().flatten() {
        if *label >= total {
            return Err(wrong(format!("`{}` has label {label}, more than there are rows ({total})", quoted(image))));
        }
        if *label >= raw_names.len() {
            raw_names.resize(label + 1, None);
        }
        match raw_names[*label] {
            Some(known) if known != name => {
                let (known, name) = (quoted(known), quoted(name));
                return Err(wrong(format!("label {label} is called `{known}` and `{name}`; the file is damaged")));
            }
            _ => raw_names[*label] = Some(name),
        }
    }
    let named = raw_names.into_iter().enumerate();
    let named =
        named.map(|(label, name)| name.map(str::to_owned).ok_or_else(|| wrong(format!("no row has label {label}"))));
    let raw_names = named.collect::<Result<Vec<_>>>()?;
    let rows = match split {
        Split::Train => parsed.train,
        Split::Val => parsed.val,
        Split::Test => parsed.test,
    };
    Ok(ZhouSplit { raw_names, rows })
}

impl ZhouSplit {
    /// The samples, and a warning if some of their images do not exist.
    pub(super) fn locate(&self, locator: &mut Locator, notes: &mut Vec<Note>) -> Result<Vec<Sample>> {
        let mut listed_samples = Listed::default();
        for Row(listed, label, _) in &self.rows {
            // Lists regenerated on Windows carry backslashes.
            let id = listed.replace('\\', "/");
            let found = locator.find(&id)?;
            let is_there = found.is_some();
            let path = found.unwrap_or_else(|| locator.expected(&id));
            listed_samples.push(id, *label, path, is_there);
        }
        let samples = listed_samples.finish(notes);
        if locator.found_by_name > 0 {
            let text =
                format!("{} images found by file name: the folders differ from the list's", locator.found_by_name);
            notes.push(Note::info(text));
        }
        Ok(samples)
    }
}

/// `zhou:DIR`: any folder with one `split_zhou_*.json` (or `split*.json`) and its images somewhere below.
pub(crate) fn open_zhou(dir: &Path, split: Split) -> Result<Dataset> {
    let (root, json) = split_file(dir)?;
    let parsed = read(&json, split)?;
    let mut notes = vec![Note::info(format!("split file {}", json.display()))];
    let mut image_folders = vec![root.clone()];
    image_folders.extend(scan::folders(&root)?.into_iter().map(|entry| entry.path));
    let samples = parsed.locate(&mut Locator::new(&root, image_folders), &mut notes)?;
    let classes: Vec<String> = parsed.raw_names.iter().map(|name| names::readable(name)).collect();
    Ok(Dataset::of_files("zhou", &root, split, classes, samples, notes))
}

fn split_file(dir: &Path) -> Result<(PathBuf, PathBuf)> {
    if dir.is_file() {
        return Ok((dir.parent().unwrap_or(Path::new(".")).to_path_buf(), dir.to_path_buf()));
    }
    let is_split = |name: &str| name.starts_with("split") && name.ends_with(".json");
    let found: Vec<_> = scan::list(dir)?.into_iter().filter(|entry| is_split(&entry.name)).collect();
    if let [entry] = &found[..] {
        return Ok((dir.to_path_buf(), entry.path.clone()));
    }
    let count = found.len();
    let reason = format!("expected one split_zhou_*.json, found {count}; name the file itself: zhou:DIR/FILE.json");
    Err(Error::Data { path: dir.to_path_buf(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::{put, tree};

    fn with_json(json: &str) -> tempfile::TempDir {
        let dir = tree(&["images/a_b/1.jpg", "images/c/2.jpg"]);
        put(dir.path(), "split_zhou_Toy.json", json);
        dir
    }

    #[test]
    fn backslash_paths_and_unread_splits_still_give_all_classes() {
        let dir = with_json(r#"{"train": [["c/9.jpg", 1, "c"]], "val": [], "test": [["a_b\\1.jpg", 0, "a_b"]]}"#);
        let data = open_zhou(dir.path(), Split::Test).unwrap();
        assert_eq!(data.classes, ["a b", "c"]);
        assert_eq!(data.samples[0].id, "a_b/1.jpg");
        assert!(data.samples[0].path().ends_with("images/a_b/1.jpg"));
        assert!(!data.notes.iter().any(|note| note.warning));
    }

    #[test]
    fn missing_images_are_counted_and_named() {
        let dir = with_json(r#"{"train": [], "test": [["a_b/1.jpg", 0, "x"], ["a_b/7.jpg", 0, "x"]]}"#);
        let data = open_zhou(dir.path(), Split::Test).unwrap();
        assert_eq!(data.samples.len(), 2, "the absent one is a sample that fails");
        assert!(data.samples[1].image(&Default::default()).is_err());
        let warning = data.notes.iter().find(|note| note.warning).unwrap();
        assert!(warning.text.contains("1 of 2") && warning.text.contains("a_b/7.jpg"), "{}", warning.text);
    }

    #[test]
    fn damaged_label_lists_are_refused() {
        for (json, word) in [
            (r#"{"train": [], "test": [["1.jpg", 0, "x"], ["2.jpg", 0, "y"]]}"#, "called"),
            (r#"{"train": [], "test": [["1.jpg", 1, "x"], ["2.jpg", 1, "x"]]}"#, "no row has label 0"),
            (r#"{"train": [], "test": [["1.jpg", 99999999999, "x"]]}"#, "more than there are rows"),
            (r#"{"train": []}"#, "expected an object"),
            (r#"[1, 2"#, "expected an object"),
        ] {
            let message = open_zhou(with_json(json).path(), Split::Test).err().map(|e| e.to_string());
            assert!(message.as_ref().is_some_and(|m| m.contains(word)), "{json}: {message:?}");
        }
    }
}
