//! The same file gets the same answer from `predict`, `eval`, `embed` and the library: EXIF, 16-bit grey, CMYK, palettes,
//! alpha, wrong endings. The server's forms and Python are held to the same answers in their own tests.

use super::common::{Home, entries, in_repository};
use flatclip::{Classifier, Image, Model};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CLASSES: [&str; 4] = ["fish", "lamp", "snail", "boat"];

fn files() -> Vec<PathBuf> {
    let folder = in_repository("fixtures/reading").canonicalize().unwrap();
    let files = entries(&folder).into_iter();
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_none_or(|e| e != "py")).collect();
    assert!(files.len() >= 12, "{} files", files.len());
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn line_of(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string().replace(' ', "~")).collect::<Vec<_>>().join(" ")
}

/// The method and the reading rule, as flags and as the library's classifier.
fn cases(model: &Model) -> Vec<(&'static str, Classifier)> {
    let builder = || Classifier::builder(model).classes(CLASSES);
    vec![
        ("", builder().build().unwrap()),
        ("--method stss --views 8", builder().method("stss").views(8).build().unwrap()),
        ("--no-exif", builder().exif(false).build().unwrap()),
        ("--method zero --views 8 --no-exif", builder().method("zero").views(8).exif(false).build().unwrap()),
    ]
}

#[test]
fn predict_gives_the_librarys_answers() {
    let (home, model, files) = (Home::new(), Model::load("pocket").unwrap(), files());
    let (named, classes) = (line_of(&files), CLASSES.join(","));
    for (flags, classifier) in cases(&model) {
        let printed = home.json(&format!("-q predict --classes {classes} --top 4 {named} {flags}"));
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
    let (home, model, files) = (Home::new(), Model::load("pocket").unwrap(), files());
    let (mut list, mut by_name) = ("path,label\n".to_owned(), Vec::new());
    for (index, file) in files.iter().enumerate() {
        let class = CLASSES[index % CLASSES.len()];
        let folder = home.path("images").join(class);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(file, folder.join(name(file))).unwrap();
        list += &format!("images/{class}/{},{class}\n", name(file));
        by_name.push((name(file), file));
    }
    std::fs::write(home.path("list.csv"), list).unwrap();
    let mut sorted = CLASSES.map(String::from).to_vec();
    sorted.sort();
    std::fs::write(home.path("names.txt"), sorted.join("\n")).unwrap();
    for (flags, _) in cases(&model) {
        // The loaders sort class names.
        let mut builder = Classifier::builder(&model).classes(sorted.clone()).exif(!flags.contains("--no-exif"));
        if let Some(named) = flags.strip_prefix("--method ") {
            builder = builder.method(named.split(' ').next().unwrap()).views(8);
        }
        let classifier = builder.build().unwrap();
        for data in ["folder:images", "csv:list.csv"] {
            let out = format!("run-{}-{}", flags.replace(' ', "-"), data.replace([':', '.'], "-"));
            home.json(&format!("-q eval --data {data} --no-cache --out {out} {flags}"));
            let lines = home.text(&format!("{out}/predictions.jsonl"));
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
            let config = home.text(&format!("{out}/config.toml"));
            assert_eq!(config.contains("exif = true"), !flags.contains("--no-exif"), "{config}");
        }
    }
}

#[test]
fn embed_gives_the_librarys_features() {
    let (home, model, files) = (Home::new(), Model::load("pocket").unwrap(), files());
    let named = line_of(&files);
    for flags in ["", "--no-exif"] {
        let printed = home.json(&format!("-q embed {named} {flags}"));
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
