//! The same file gets the same answer from `predict`, `eval`, `embed` and the library: EXIF, 16-bit grey, CMYK, palettes,
//! alpha, wrong endings. The server's forms and Python are held to the same answers in their own tests.

use super::common;
use flatclip::{Classifier, Image, Model};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const CLASSES: [&str; 4] = ["fish", "lamp", "snail", "boat"];

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/reading").canonicalize().unwrap();
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_none_or(|e| e != "py")).collect();
    files.sort();
    assert!(files.len() >= 12, "{} files", files.len());
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn json(home: &Path, arguments: &[&str]) -> Value {
    common::json(home, &[&["-q"], arguments].concat())
}

/// The method and the reading rule, as flags and as the library's classifier.
fn cases(model: &Model) -> Vec<(Vec<&'static str>, Classifier)> {
    let builder = || Classifier::builder(model).classes(CLASSES);
    vec![
        (vec![], builder().build().unwrap()),
        (vec!["--method", "stss", "--views", "8"], builder().method("stss").views(8).build().unwrap()),
        (vec!["--no-exif"], builder().exif(false).build().unwrap()),
        (
            vec!["--method", "zero", "--views", "8", "--no-exif"],
            builder().method("zero").views(8).exif(false).build().unwrap(),
        ),
    ]
}

#[test]
fn predict_gives_the_librarys_answers() {
    let (home, model, files) = (TempDir::new().unwrap(), Model::load("pocket").unwrap(), files());
    let named: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    let classes = CLASSES.join(",");
    for (flags, classifier) in cases(&model) {
        let arguments = [&["predict", "--classes", &classes, "--top", "4"][..], &named, &flags].concat();
        let printed = json(home.path(), &arguments);
        for (file, row) in files.iter().zip(printed["results"].as_array().unwrap()) {
            let expected = serde_json::to_value(classifier.answer(file).unwrap().report(4)).unwrap();
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(&row[key], value, "{} {flags:?}: {key}", name(file));
            }
        }
    }
}

#[test]
fn eval_on_a_folder_and_on_a_list_gives_the_librarys_answers() {
    let (home, model, files) = (TempDir::new().unwrap(), Model::load("pocket").unwrap(), files());
    let (mut list, mut by_name) = ("path,label\n".to_owned(), Vec::new());
    for (index, file) in files.iter().enumerate() {
        let class = CLASSES[index % CLASSES.len()];
        let folder = home.path().join("images").join(class);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(file, folder.join(name(file))).unwrap();
        list += &format!("images/{class}/{},{class}\n", name(file));
        by_name.push((name(file), file));
    }
    std::fs::write(home.path().join("list.csv"), list).unwrap();
    let mut sorted = CLASSES.map(String::from).to_vec();
    sorted.sort();
    std::fs::write(home.path().join("names.txt"), sorted.join("\n")).unwrap();
    for (flags, _) in cases(&model) {
        // The loaders sort class names.
        let mut builder = Classifier::builder(&model).classes(sorted.clone()).exif(!flags.contains(&"--no-exif"));
        if let Some(at) = flags.iter().position(|flag| *flag == "--method") {
            builder = builder.method(flags[at + 1]).views(8);
        }
        let classifier = builder.build().unwrap();
        for data in ["folder:images", "csv:list.csv"] {
            let out = format!("run-{}-{}", flags.join("-"), data.replace([':', '.'], "-"));
            let arguments = [&["eval", "--data", data, "--no-cache", "--out", &out][..], &flags].concat();
            json(home.path(), &arguments);
            let lines = std::fs::read_to_string(home.path().join(&out).join("predictions.jsonl")).unwrap();
            let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(records.len(), files.len());
            for record in records {
                let id = record["id"].as_str().unwrap();
                let (_, file) = by_name.iter().find(|(name, _)| id.ends_with(name.as_str())).unwrap();
                let answer = classifier.answer(*file).unwrap();
                let what = format!("{id} of {data} {flags:?}");
                let expected: Vec<(usize, f32)> =
                    answer.ranked(4).into_iter().map(|(class, _, p)| (class, p)).collect();
                assert_eq!(
                    serde_json::from_value::<Vec<(usize, f32)>>(record["answer"]["top5"].clone()).unwrap(),
                    expected,
                    "{what}"
                );
                assert_eq!(record["answer"]["selected"], json!(answer.explanation().selected), "{what}");
            }
            let config = std::fs::read_to_string(home.path().join(&out).join("config.toml")).unwrap();
            assert_eq!(config.contains("exif = true"), !flags.contains(&"--no-exif"), "{config}");
        }
    }
}

#[test]
fn embed_gives_the_librarys_features() {
    let (home, model, files) = (TempDir::new().unwrap(), Model::load("pocket").unwrap(), files());
    let named: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    for flags in [&[][..], &["--no-exif"]] {
        let printed = json(home.path(), &[&["embed"][..], &named, flags].concat());
        for (file, row) in files.iter().zip(printed["results"].as_array().unwrap()) {
            let options = flatclip::image::DecodeOptions { exif: flags.is_empty(), ..Default::default() };
            let image = Image::open_with(file, &options).unwrap();
            let expected = model.encode_images(&[image]).unwrap();
            assert_eq!(row["features"], json!(expected.row(0)), "{} {flags:?}", name(file));
        }
    }
}

#[test]
fn known_data_sets_keep_pillows_rule_and_own_images_do_not() {
    let reads = |spec: &str| {
        let data = flatclip_lab::data::Dataset { spec: spec.to_owned(), ..Default::default() };
        [None, Some(true), Some(false)].map(|exif| data.decode_options(exif).exif)
    };
    for own in ["folder:photos", "csv:list.csv", "wds:shards", "zhou:mine", ""] {
        assert_eq!(reads(own), [true, true, false], "{own}");
    }
    for known in ["imagenet", "imagenet_a", "food101", "pocket:sketch"] {
        assert_eq!(reads(known), [false, true, false], "{known}");
    }
}
