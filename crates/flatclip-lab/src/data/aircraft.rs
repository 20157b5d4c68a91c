//! FGVC-Aircraft's own lists: label = line of `variants.txt`, samples = lines `IMAGE_ID variant name` of
//! `images_variant_SPLIT.txt`. Names may hold `/` (`F/A-18`). Nobody crops the copyright banner in this benchmark.

use super::dataset::{Dataset, Note, Sample, Split};
use super::known::Known;
use super::locate::Listed;
use super::place::Found;
use flatclip::files::read_text;
use flatclip::{Error, Result};
use std::path::Path;

pub(super) fn open(known: &'static Known, found: &Found, split: Split) -> Result<Dataset> {
    let lists = found.images.parent().unwrap_or(&found.folder);
    let variants = read_text(&lists.join("variants.txt"))?;
    let classes: Vec<String> = variants.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    let path = lists.join(format!("images_variant_{}.txt", split.name()));
    let list = read_text(&path)?;
    let mut notes = vec![Note::info(found.describe())];
    let samples =
        read_list(&list, &classes, &found.images, &mut notes).map_err(|reason| Error::Data { path, reason })?;
    Ok(known.dataset(split, classes, samples, notes))
}

fn read_list(list: &str, classes: &[String], images: &Path, notes: &mut Vec<Note>) -> Result<Vec<Sample>, String> {
    let mut samples = Listed::default();
    for (number, line) in list.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (image, variant) =
            line.trim().split_once(' ').ok_or(format!("line {}: expected `IMAGE_ID variant`", number + 1))?;
        let label = classes.iter().position(|class| class == variant.trim());
        let label = label.ok_or(format!("line {}: `{variant}` is not a line of variants.txt", number + 1))?;
        let id = format!("{image}.jpg");
        let path = images.join(&id);
        let is_there = path.is_file();
        samples.push(id, label, path, is_there);
    }
    Ok(samples.finish(notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::place::candidates;
    use crate::data::tree::{labelled, put, tree};

    #[test]
    fn the_variant_list_is_the_label_order_and_slashes_stay() {
        let dir = tree(&["fgvc_aircraft/images/1.jpg", "fgvc_aircraft/images/2.jpg"]);
        put(dir.path(), "fgvc_aircraft/variants.txt", "Spitfire\n707-320\nF/A-18\n");
        put(dir.path(), "fgvc_aircraft/images_variant_test.txt", "0000001 F/A-18\n2 Spitfire\n1 707-320\n");
        let known = Known::find("aircraft").unwrap();
        let found = &candidates(known, Some(dir.path()), None)[0];
        let data = open(known, found, Split::Test).unwrap();
        assert_eq!(data.classes[2], "F/A-18");
        assert_eq!(labelled(&data), [("0000001.jpg", 2), ("2.jpg", 0), ("1.jpg", 1)]);
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("0000001.jpg")));
        put(dir.path(), "fgvc_aircraft/images_variant_test.txt", "1 Concorde\n");
        assert!(open(known, found, Split::Test).unwrap_err().to_string().contains("Concorde"));
    }
}
