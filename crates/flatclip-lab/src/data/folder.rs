//! `folder:DIR`: one sub-folder per class (ImageFolder). Labels are the folders in byte order; `classes.txt` inside
//! (one `folder<TAB>name` or one name per line) gives readable names, `templates.txt` gives templates.

use super::dataset::{Dataset, Note, Split};
use super::{names, scan};
use flatclip::error::quoted;
use flatclip::files::read_text;
use flatclip::text::imagenet::{CLASS_NAMES, label_of};
use flatclip::text::read_class_names;
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The zero-shot template when nothing else is known.
pub(super) const PLAIN_TEMPLATE: &str = "a photo of a {}.";

/// Reads `DIR/<class>/**/*.jpg`. With sub-folders named `train`, `val` or `test` the split's folder is taken.
pub(crate) fn open_folder(dir: &Path, split: Split) -> Result<Dataset> {
    let mut notes = Vec::new();
    let root = split_folder(dir, split, &mut notes)?;
    let folders = scan::folders(&root)?;
    if folders.is_empty() {
        let loose = scan::list(&root)?.iter().filter(|entry| scan::is_image(&entry.name)).count();
        let reason = format!(
            "expected one sub-folder per class, found no folder and {loose} loose images; \
             sort them into class folders or give a list with csv:FILE"
        );
        return Err(Error::Data { path: root, reason });
    }
    let mut samples = Vec::new();
    for (label, folder) in folders.iter().enumerate() {
        let images = folder.samples(label)?;
        if images.is_empty() {
            notes.push(Note::warning(format!("class folder {} has no image", folder.path.display())));
        }
        samples.extend(images);
    }
    let folder_names: Vec<&str> = folders.iter().map(|folder| folder.name.as_str()).collect();
    let mut classes = class_names(dir, &folder_names)?;
    if let Some(names) = imagenet_names(&folder_names).filter(|_| !dir.join("classes.txt").is_file()) {
        notes.push(Note::info("class folders are wnids: ImageNet's names stand for them (classes.txt would win)"));
        classes = names;
    }
    let own = dir.join("templates.txt");
    let templates = if own.is_file() { names::read_templates(&own)? } else { vec![PLAIN_TEMPLATE.to_owned()] };
    Ok(Dataset { templates, ..Dataset::of_files("folder", dir, split, classes, samples, notes) })
}

/// The last component, also of `.` and of paths that end in `/`.
pub(super) fn base_name(dir: &Path) -> String {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    absolute.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn split_folder(dir: &Path, split: Split, notes: &mut Vec<Note>) -> Result<std::path::PathBuf> {
    let wanted = dir.join(split.name());
    if wanted.is_dir() {
        notes.push(Note::info(format!("split folder {}", wanted.display())));
        return Ok(wanted);
    }
    let has_other = ["train", "val", "test"].iter().any(|name| dir.join(name).is_dir());
    if has_other && scan::folders(dir)?.iter().all(|f| ["train", "val", "test"].contains(&f.name.as_str())) {
        let reason =
            format!("has split folders, but none named `{}`; choose another split or point to one", split.name());
        return Err(Error::Data { path: dir.to_path_buf(), reason });
    }
    Ok(dir.to_path_buf())
}

fn class_names(dir: &Path, folders: &[&str]) -> Result<Vec<String>> {
    let path = dir.join("classes.txt");
    if !path.is_file() {
        return Ok(folders.iter().map(|name| names::readable(name)).collect());
    }
    let text = read_text(&path)?;
    if text.contains('\t') {
        return by_folder(&text, folders).map_err(|reason| Error::Data { path, reason });
    }
    let names = read_class_names(&path)?;
    if names.len() != folders.len() {
        let reason =
            format!("expected one name for each of the {} class folders, found {}", folders.len(), names.len());
        return Err(Error::Data { path, reason });
    }
    Ok(names)
}

/// ImageNet's names, where every folder is one of its wnids.
fn imagenet_names(folders: &[&str]) -> Option<Vec<String>> {
    let name = |wnid: &&str| Some(CLASS_NAMES[label_of(wnid)?].to_owned());
    folders.iter().map(name).collect()
}

/// Names for folders from lines `folder<TAB>name`, in any order.
fn by_folder(text: &str, folders: &[&str]) -> Result<Vec<String>, String> {
    let mut names = BTreeMap::new();
    for (folder, name) in text.lines().filter_map(|line| line.trim().split_once('\t')) {
        if names.insert(folder, name.trim()).is_some() {
            return Err(format!("two lines for folder `{}`", quoted(folder)));
        }
    }
    let find = |folder: &&str| {
        let name = names.get(folder).filter(|name| !name.is_empty());
        name.map(|&name| name.to_owned()).ok_or_else(|| format!("no name for folder `{}`", quoted(folder)))
    };
    folders.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::{labelled, tree};

    #[test]
    fn labels_follow_sorted_folders_and_names_are_readable() {
        let dir = tree(&["b_c/2.jpg", "b_c/1.png", "a/x.jpg", "a/notes.txt", "README.txt", ".hidden/x.jpg"]);
        let data = open_folder(dir.path(), Split::Test).unwrap();
        assert_eq!(data.classes, ["a", "b c"]);
        assert_eq!(labelled(&data), [("a/x.jpg", 0), ("b_c/1.png", 1), ("b_c/2.jpg", 1)]);
    }

    #[test]
    fn split_folders_are_entered_and_a_missing_one_is_named() {
        let dir = tree(&["train/a/1.jpg", "test/a/2.jpg", "test/b/3.jpg"]);
        assert_eq!(open_folder(dir.path(), Split::Test).unwrap().samples.len(), 2);
        let message = open_folder(dir.path(), Split::Val).unwrap_err().to_string();
        assert!(message.contains("none named `val`"), "{message}");
    }

    #[test]
    fn names_and_templates_come_from_files_beside_the_folders() {
        let dir = tree(&["x/1.jpg", "y/2.jpg"]);
        std::fs::write(dir.path().join("classes.txt"), "y\tYellow one\nx\tX one\n").unwrap();
        std::fs::write(dir.path().join("templates.txt"), "a sketch of a {}.\n").unwrap();
        let data = open_folder(dir.path(), Split::Test).unwrap();
        assert_eq!(
            (data.classes, data.templates),
            (vec!["X one".into(), "Yellow one".into()], vec!["a sketch of a {}.".into()])
        );
        std::fs::write(dir.path().join("classes.txt"), "only one\n").unwrap();
        assert!(open_folder(dir.path(), Split::Test).unwrap_err().to_string().contains("found 1"));
    }

    #[test]
    fn marks_windows_line_ends_and_two_equal_names_are_noticed() {
        let dir = tree(&["x/1.jpg", "y/2.jpg"]);
        std::fs::write(dir.path().join("classes.txt"), "\u{feff}x\tX one\r\ny\tX one\r\n").unwrap();
        let data = open_folder(dir.path(), Split::Test).unwrap();
        assert_eq!(data.classes, ["X one", "X one"]);
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("[0, 1]")), "{:?}", data.notes);
        std::fs::write(dir.path().join("classes.txt"), "x\tX one\nx\tX two\ny\tY\n").unwrap();
        assert!(open_folder(dir.path(), Split::Test).unwrap_err().to_string().contains("two lines"));
    }

    #[test]
    fn loose_images_are_explained() {
        let dir = tree(&["1.jpg", "2.jpg"]);
        let message = open_folder(dir.path(), Split::Test).unwrap_err().to_string();
        assert!(message.contains("2 loose images"), "{message}");
    }
}
