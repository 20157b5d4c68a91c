//! The ImageNet family: class folders named by wnid, or by number for V2. A folder is mapped to its class by its name,
//! never by its position: one missing or extra folder would shift every label after it.

use super::dataset::{Dataset, Note, Sample, Split};
use super::known::{Kind, Known};
use super::place::Found;
use super::scan::{self, Entry};
use flatclip::text::imagenet::{CLASS_NAMES, WNIDS, label_of};
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) fn open(known: &'static Known, found: &Found, split: Split) -> Result<Dataset> {
    let mut notes = vec![Note::info(found.describe())];
    let images = image_folder(known, found, split, &mut notes)?;
    let indices = indices(known);
    let classes = class_names(found, &images, &indices, &mut notes)?;
    let samples = read_folders(known, &images, &indices, &mut notes)?;
    Ok(known.dataset(split, classes, samples, notes))
}

/// Which of the 1000 ImageNet classes each label is.
fn indices(known: &Known) -> Vec<usize> {
    match known.kind {
        Kind::Wnids(wnids) => wnids.iter().filter_map(|wnid| label_of(wnid)).collect(),
        _ => (0..WNIDS.len()).collect(),
    }
}

/// The same for ImageNet-A and -R, which have 200 of the classes. `None` for other data sets.
pub(crate) fn imagenet_labels(dataset: &str) -> Option<Vec<usize>> {
    let known = Known::find(dataset)?;
    matches!(known.kind, Kind::Wnids(wnids) if wnids.len() < WNIDS.len()).then(|| indices(known))
}

/// `n` and eight digits.
fn is_wnid(name: &str) -> bool {
    name.len() == 9 && name.starts_with('n') && name[1..].bytes().all(|byte| byte.is_ascii_digit())
}

fn is_number(name: &str) -> bool {
    name.len() <= 3 && name.parse::<u16>().is_ok()
}

fn is_class_folder(entry: &Entry) -> bool {
    entry.is_folder && (is_wnid(&entry.name) || is_number(&entry.name))
}

/// The folder that holds the class folders: the one found, its sibling for another split, or one level deeper.
fn image_folder(known: &Known, found: &Found, split: Split, notes: &mut Vec<Note>) -> Result<PathBuf> {
    let folder = match split {
        Split::Test => found.images.clone(),
        _ => found.images.with_file_name(split.name()),
    };
    if split != Split::Test && (known.name != "imagenet" || !folder.is_dir()) {
        let reason = format!("has no {} split; expected {}", split.name(), folder.display());
        return Err(Error::Data { path: found.folder.clone(), reason });
    }
    let entries = scan::list(&folder)?;
    if entries.iter().any(is_class_folder) {
        return Ok(folder);
    }
    let deeper = entries.iter().filter(|entry| entry.is_folder);
    let deeper = deeper.filter(|entry| scan::list_lenient(&entry.path).iter().any(is_class_folder));
    let deeper: Vec<&Entry> = deeper.collect();
    if let [only] = deeper[..] {
        notes.push(Note::info(format!("class folders are one level deeper, in {}", only.path.display())));
        return Ok(only.path.clone());
    }
    Err(Error::Data { path: folder, reason: explain_no_class_folder(&entries) })
}

fn explain_no_class_folder(entries: &[Entry]) -> String {
    let loose = entries.iter().filter(|entry| scan::is_image(&entry.name)).count();
    if loose > 0 {
        return format!(
            "{loose} images lie flat, without class folders: labels cannot be known. Sort them into wnid folders with the \
             usual valprep.sh. (ILSVRC2012_validation_ground_truth.txt counts classes in the devkit's own order, not in \
             wnid order.)"
        );
    }
    "expected class folders named by wnid (n01440764) or, for V2, by number; found none".to_owned()
}

fn read_folders(known: &Known, images: &Path, indices: &[usize], notes: &mut Vec<Note>) -> Result<Vec<Sample>> {
    let labels: BTreeMap<usize, usize> = indices.iter().enumerate().map(|(label, &index)| (index, label)).collect();
    let mut by_label: Vec<Option<Entry>> = vec![None; indices.len()];
    let (mut foreign, mut by_wnid, is_numbered) = (Vec::new(), 0, matches!(known.kind, Kind::Numbers));
    for entry in scan::folders(images)? {
        let index = match label_of(&entry.name) {
            None if is_numbered && is_number(&entry.name) => entry.name.parse().ok(),
            index => {
                by_wnid += usize::from(index.is_some());
                index
            }
        };
        match index.and_then(|index| labels.get(&index)) {
            Some(&label) => by_label[label] = Some(entry),
            None => foreign.push(entry.name),
        }
    }
    if is_numbered && by_wnid > 0 {
        notes.push(Note::info("folders are wnids, not numbers: mapped by wnid"));
    }
    note_folders(known, &by_label, &foreign, notes);
    let mut samples = Vec::new();
    for (label, entry) in by_label.iter().enumerate().filter_map(|(label, entry)| Some((label, entry.as_ref()?))) {
        samples.extend(entry.samples(label)?);
    }
    Ok(samples)
}

fn note_folders(known: &Known, by_label: &[Option<Entry>], foreign: &[String], notes: &mut Vec<Note>) {
    let absent = by_label.iter().filter(|entry| entry.is_none()).count();
    if absent > 0 {
        notes.push(Note::warning(format!(
            "{absent} of {} class folders are absent; labels stay right (folders are matched by name), the score covers the rest",
            by_label.len()
        )));
    }
    if let Some(first) = foreign.first() {
        notes.push(Note::warning(format!(
            "{} folders are not classes of {} and are skipped, e.g. {first}",
            foreign.len(),
            known.title
        )));
    }
}

/// CoOp's `classnames.txt` (`wnid name`) from the data set's folder or up to two above the images, else the embedded list.
fn class_names(found: &Found, images: &Path, indices: &[usize], notes: &mut Vec<Note>) -> Result<Vec<String>> {
    let folders = [Some(found.folder.as_path()), Some(images), images.parent(), images.parent().and_then(Path::parent)];
    let file = folders.into_iter().flatten().map(|folder| folder.join("classnames.txt")).find(|path| path.is_file());
    let Some(path) = file else {
        notes.push(Note::info("class names: the embedded list"));
        return Ok(indices.iter().map(|&index| CLASS_NAMES[index].to_owned()).collect());
    };
    let text = flatclip::files::read_text(&path)?;
    let lines = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let by_wnid: BTreeMap<&str, &str> = lines.map(|(wnid, name)| (wnid, name.trim())).collect();
    notes.push(Note::info(format!("class names: {}", path.display())));
    let name_of = |&index: &usize| {
        let reason = || format!("has no line for {}; expected `wnid name` for all 1000 classes", WNIDS[index]);
        let name = by_wnid.get(WNIDS[index]).ok_or_else(|| Error::Data { path: path.clone(), reason: reason() })?;
        Ok((*name).to_owned())
    };
    indices.iter().map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::place::candidates;
    use crate::data::tree::{put, tree};

    fn load(name: &str, dir: &tempfile::TempDir) -> Result<Dataset> {
        let known = Known::find(name).unwrap();
        open(known, &candidates(known, Some(dir.path()), None)[0], Split::Test)
    }

    fn warnings(data: &Dataset) -> String {
        data.notes.iter().filter(|note| note.warning).map(|note| note.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn labels_of_a_part_of_imagenet_are_those_of_the_whole() {
        let dir = tree(&["imagenet/images/val/n01443537/b.JPEG", "imagenet/images/val/n15075141/a.JPEG"]);
        let data = load("imagenet", &dir).unwrap();
        assert_eq!(data.classes.len(), 1000);
        assert_eq!(data.samples.iter().map(|s| s.label).collect::<Vec<_>>(), [1, 999]);
        assert_eq!(data.classes[999], "toilet paper");
        assert!(warnings(&data).contains("998 of 1000"));
    }

    #[test]
    fn a_missing_an_extra_and_a_stray_entry_shift_nothing_in_imagenet_a() {
        // n01498041 (stingray, index 6) is the first class of A; n01440764 (tench) is none of A's.
        let dir = tree(&[
            "imagenet-a/n01498041/x.jpg",
            "imagenet-a/n01440764/y.jpg",
            "imagenet-a/n12267677/z.jpg",
            "imagenet-a/README.txt",
            "imagenet-a/.cache/q.jpg",
            "imagenet-a/__MACOSX/q.jpg",
        ]);
        let data = load("imagenet_a", &dir).unwrap();
        assert_eq!((data.classes.len(), data.samples.len()), (200, 2));
        assert_eq!(data.classes[data.samples[0].label], "stingray");
        assert_eq!(data.classes[data.samples[1].label], "acorn");
        let text = warnings(&data);
        assert!(text.contains("198 of 200") && text.contains("1 folders are not classes"), "{text}");
    }

    #[test]
    fn an_extra_folder_level_is_entered() {
        let dir = tree(&["imagenet-r/imagenet-r/n01443537/x.jpg", "imagenet-r/README.txt"]);
        let data = load("imagenet_r", &dir).unwrap();
        assert_eq!((data.samples[0].label, data.classes[0].as_str()), (0, "goldfish"));
    }

    #[test]
    fn v2_folder_ten_is_label_ten() {
        let v2 = "imagenetv2-matched-frequency-format-val";
        let files = ["0", "1", "10", "2", "999"].map(|n| format!("{v2}/{n}/a.jpeg"));
        let dir = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
        let labels: Vec<_> = load("imagenetv2", &dir).unwrap().samples.iter().map(|s| s.label).collect();
        assert_eq!(labels, [0, 1, 2, 10, 999]);
    }

    #[test]
    fn a_flat_validation_folder_is_explained() {
        let dir = tree(&["ImageNet/val/ILSVRC2012_val_00000001.JPEG"]);
        let message = load("imagenet", &dir).unwrap_err().to_string();
        assert!(message.contains("valprep") && message.contains("1 images lie flat"), "{message}");
    }

    #[test]
    fn classnames_txt_wins_over_the_embedded_list_and_must_be_whole() {
        let dir = tree(&["imagenet/images/val/n01440764/a.JPEG"]);
        let lines: String = WNIDS.iter().map(|wnid| format!("{wnid} name of {wnid}\n")).collect();
        put(dir.path(), "imagenet/classnames.txt", &lines);
        assert_eq!(load("imagenet", &dir).unwrap().classes[0], "name of n01440764");
        put(dir.path(), "imagenet/classnames.txt", "n01440764 tench\n");
        assert!(load("imagenet", &dir).unwrap_err().to_string().contains("n01443537"));
    }
}
