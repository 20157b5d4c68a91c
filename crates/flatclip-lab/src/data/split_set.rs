//! The nine fine-grained sets that are defined by a `split_zhou_*.json`, and what is known to be odd about their copies.

use super::dataset::{Dataset, Note};
use super::known::Known;
use super::locate::Locator;
use super::open::OpenOptions;
use super::place::{self, Found};
use super::zhou::{self, ZhouSplit};
use super::{names, scan};
use flatclip::{Error, Result};
use std::path::PathBuf;

/// Where repositories keep the split files, below the data root.
const SPLIT_FOLDERS: [&str; 5] = ["", "data_splits", "data/data_splits", "splits", "other_lists"];

/// CoOp's EuroSAT names, by the raw folder names of older split files.
const EUROSAT: [(&str, &str); 10] = [
    ("AnnualCrop", "Annual Crop Land"),
    ("Forest", "Forest"),
    ("HerbaceousVegetation", "Herbaceous Vegetation Land"),
    ("Highway", "Highway or Road"),
    ("Industrial", "Industrial Buildings"),
    ("Pasture", "Pasture Land"),
    ("PermanentCrop", "Permanent Crop Land"),
    ("Residential", "Residential Buildings"),
    ("River", "River"),
    ("SeaLake", "Sea or Lake"),
];

/// Labels 16 and 17 of Food101 in sorted order.
const FOOD_PAIR: (usize, usize) = (16, 17);

pub(super) fn open(known: &'static Known, file: &str, found: &Found, options: &OpenOptions) -> Result<Dataset> {
    let json = split_file(known, file, found, options)?;
    let mut notes = vec![Note::info(found.describe()), Note::info(format!("split file {}", json.display()))];
    let parsed = zhou::read(&json, options.split)?;
    let mut locator = Locator::new(&found.folder, image_folders(known, found)?);
    let samples = parsed.locate(&mut locator, &mut notes)?;
    let classes = class_names(known, &parsed, options, &mut notes);
    Ok(known.dataset(options.split, classes, samples, notes))
}

/// The found image folder, then every other one known for the set, then each folder directly inside.
fn image_folders(known: &Known, found: &Found) -> Result<Vec<PathBuf>> {
    let mut folders = vec![found.images.clone(), found.folder.clone()];
    folders.extend(known.places.iter().filter_map(|&(_, _, images)| place::find(&found.folder, images)));
    folders.extend(scan::folders(&found.folder)?.into_iter().map(|entry| entry.path));
    let mut unique: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !unique.contains(&folder) {
            unique.push(folder);
        }
    }
    Ok(unique)
}

/// The split file in the data set's folder, in the data root, or where repositories keep it; also under an alias.
fn split_file(known: &Known, file: &str, found: &Found, options: &OpenOptions) -> Result<PathBuf> {
    let mut names = vec![file.to_owned()];
    names.extend(known.aliases.iter().chain([&known.name]).map(|alias| format!("split_zhou_{alias}.json")));
    let mut folders: Vec<PathBuf> = options.split_files.iter().cloned().collect();
    folders.push(found.folder.clone());
    for base in options.root.iter() {
        folders.extend(SPLIT_FOLDERS.iter().map(|inner| base.join(inner)));
    }
    for folder in &folders {
        if let Some(path) = names.iter().find_map(|name| place::find(folder, name)) {
            return Ok(path);
        }
    }
    let reason = format!(
        "has no {file}, which defines labels and splits; it must not be regenerated. Get it from CoOp's DATASETS.md or from \
         mariodoebler/test-time-adaptation (classification/datasets/other_lists) and put it into this folder"
    );
    Err(Error::Data { path: found.folder.clone(), reason })
}

fn class_names(known: &Known, parsed: &ZhouSplit, options: &OpenOptions, notes: &mut Vec<Note>) -> Vec<String> {
    let mut classes: Vec<String> = parsed.raw_names.iter().map(|name| names::readable(name)).collect();
    match known.name {
        "eurosat" => rewrite_eurosat(&mut classes, notes),
        "food101" => check_food(&mut classes, options.compat.tpt_food101, notes),
        "caltech101" => check_caltech(&classes, notes),
        _ => {}
    }
    classes
}

fn rewrite_eurosat(classes: &mut [String], notes: &mut Vec<Note>) {
    let mut rewritten = 0;
    for class in classes.iter_mut() {
        let long = EUROSAT.iter().find(|(raw, long)| class == raw && raw != long);
        if let Some((_, long)) = long {
            *class = (*long).to_owned();
            rewritten += 1;
        }
    }
    if rewritten > 0 {
        notes.push(Note::info(format!(
            "the split file has raw folder names (AnnualCrop); {rewritten} replaced by CoOp's names (Annual Crop Land)"
        )));
    }
}

fn check_food(classes: &mut [String], swap: bool, notes: &mut Vec<Note>) {
    let (plate, cake) = FOOD_PAIR;
    let pair = (classes.get(plate).map(String::as_str), classes.get(cake).map(String::as_str));
    match pair {
        (Some("cheese plate"), Some("cheesecake")) if swap => {
            classes.swap(plate, cake);
            notes.push(Note::warning("compat tpt-food101: the names of labels 16 and 17 are swapped, as in TPT's list"));
        }
        (Some("cheesecake"), Some("cheese plate")) if !swap => notes.push(Note::warning(
            "the split file itself names label 16 cheesecake and 17 cheese plate: swapped against the folders (600 test images)",
        )),
        _ if swap => notes.push(Note::warning("compat tpt-food101 has no effect: labels 16 and 17 are not the known pair")),
        _ => {}
    }
}

fn check_caltech(classes: &[String], notes: &mut Vec<Note>) {
    let dropped = ["BACKGROUND Google", "Faces easy"];
    if let Some(class) = classes.iter().find(|class| dropped.contains(&class.as_str())) {
        notes.push(Note::warning(format!(
            "class `{class}` does not belong to CoOp's 100 classes; take CoOp's split file"
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::*;
    use crate::data::tree::{put, tree};
    use crate::data::{Compat, Split};

    fn options(dir: &tempfile::TempDir) -> OpenOptions {
        OpenOptions { root: Some(dir.path().into()), ..OpenOptions::default() }
    }

    fn rows(rows: &[(&str, usize, &str)]) -> String {
        let rows: Vec<_> = rows.iter().map(|(path, label, name)| serde_json::json!([path, label, name])).collect();
        serde_json::json!({ "train": [], "val": [], "test": rows }).to_string()
    }

    #[test]
    fn every_set_opens_in_coops_and_in_tpts_layout() {
        for known in super::super::known::KNOWN.iter() {
            let super::super::known::Kind::Zhou(file) = known.kind else { continue };
            for &(layout, folder, images) in known.places {
                let image = if known.name == "stanford_cars" { "cars_test/00001.jpg" } else { "x_y/1.jpg" };
                let dir = tree(&[&format!("{folder}/{images}/{image}")]);
                // TPT keeps split files apart from the images.
                let json = if layout == super::super::known::Layout::CoOp {
                    format!("{folder}/{file}")
                } else {
                    format!("data_splits/{file}")
                };
                put(dir.path(), &json, rows(&[(image, 0, "x_y")]));
                let data = open(known.name, &options(&dir)).unwrap_or_else(|e| panic!("{folder}/{images}: {e}"));
                assert_eq!((data.samples.len(), data.classes[0].as_str()), (1, "x y"), "{folder}/{images}");
                assert_eq!(data.templates, [known.template]);
                assert!(data.notes[0].text.contains("layout at"), "{:?}", data.notes[0]);
            }
        }
    }

    fn food_names() -> String {
        let names: Vec<String> = (0..18)
            .map(|label| match label {
                16 => "cheese_plate".into(),
                17 => "cheesecake".into(),
                other => format!("food_{other}"),
            })
            .collect();
        rows(&names.iter().enumerate().map(|(label, name)| ("a/1.jpg", label, name.as_str())).collect::<Vec<_>>())
    }

    #[test]
    fn food101_is_right_by_default_and_swapped_on_request() {
        let dir = tree(&["food-101/images/a/1.jpg"]);
        put(dir.path(), "food-101/split_zhou_Food101.json", food_names());
        let data = open("food101", &options(&dir)).unwrap();
        assert_eq!((data.classes[16].as_str(), data.classes[17].as_str()), ("cheese plate", "cheesecake"));
        let compat = Compat { tpt_food101: true };
        let data = open("food101", &OpenOptions { compat, ..options(&dir) }).unwrap();
        assert_eq!((data.classes[16].as_str(), data.classes[17].as_str()), ("cheesecake", "cheese plate"));
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("tpt-food101")));
    }

    #[test]
    fn raw_eurosat_names_are_spelled_out() {
        let dir = tree(&["eurosat/2750/AnnualCrop/1.jpg"]);
        put(
            dir.path(),
            "eurosat/split_zhou_EuroSAT.json",
            rows(&[("AnnualCrop/1.jpg", 0, "AnnualCrop"), ("AnnualCrop/1.jpg", 1, "SeaLake")]),
        );
        let data = open("eurosat", &options(&dir)).unwrap();
        assert_eq!(data.classes, ["Annual Crop Land", "Sea or Lake"]);
        assert!(data.notes.iter().any(|note| note.text.contains("AnnualCrop")));
    }

    #[test]
    fn cars_mirrors_are_found_by_file_name() {
        let dir =
            tree(&["stanford_cars/car_data/test/AM General/00001.jpg", "stanford_cars/car_data/train/BMW/00001.jpg"]);
        put(
            dir.path(),
            "stanford_cars/split_zhou_StanfordCars.json",
            rows(&[("cars_test/00001.jpg", 0, "2000 AM General Hummer SUV")]),
        );
        let data = open("cars", &options(&dir)).unwrap();
        assert!(data.samples[0].path().ends_with("test/AM General/00001.jpg"));
        assert_eq!(data.samples[0].id, "cars_test/00001.jpg");
        assert!(data.notes.iter().any(|note| note.text.contains("by file name")));
    }

    #[test]
    fn a_missing_split_file_is_demanded_not_guessed() {
        let dir = tree(&["dtd/images/banded/1.jpg"]);
        let message = open("dtd", &options(&dir)).unwrap_err().to_string();
        assert!(
            message.contains("split_zhou_DescribableTextures.json") && message.contains("DATASETS.md"),
            "{message}"
        );
    }

    #[test]
    fn renamed_split_files_and_other_splits_are_read() {
        let dir = tree(&["Flower102/jpg/image_1.jpg"]);
        let json = r#"{"train": [["image_1.jpg", 0, "pink primrose"]], "val": [], "test": [["image_2.jpg", 0, "pink primrose"]]}"#;
        put(dir.path(), "other_lists/split_zhou_flowers102.json", json);
        let data = open("flowers", &OpenOptions { split: Split::Train, ..options(&dir) }).unwrap();
        assert_eq!(data.samples.len(), 1);
        let message = open("flowers", &options(&dir)).unwrap_err().to_string();
        assert!(message.contains("no sample") && message.contains("image_2.jpg"), "{message}");
    }

    #[test]
    fn the_extra_caltech_classes_are_reported() {
        let dir = tree(&["caltech-101/101_ObjectCategories/Faces_easy/1.jpg"]);
        put(dir.path(), "caltech-101/split_zhou_Caltech101.json", rows(&[("Faces_easy/1.jpg", 0, "Faces_easy")]));
        let data = open("caltech101", &options(&dir)).unwrap();
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("Faces easy")));
    }
}
