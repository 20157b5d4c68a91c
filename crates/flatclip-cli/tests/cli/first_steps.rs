//! What a newcomer types first, run as the README prints it: pocket, predict, embed, landscape, analyze, demo.

use super::common::{run, works};
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

fn fails(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    // 3: the images cannot be read.
    assert!(matches!(output.status.code(), Some(2 | 3)), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

const CLASSES: &str = "fish,lamp,snail,boat,clock,bicycle,butterfly,airplane";

fn photos() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    works(folder.path(), &["pocket", "export", "photos", "--domain", "photo", "--count", "8"]);
    folder
}

#[test]
fn a_folder_of_images_is_classified() {
    let folder = photos();
    let text = works(folder.path(), &["predict", "photos", "--classes", CLASSES, "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let rows = json["results"].as_array().unwrap();
    let right = |row: &&Value| row["image"].as_str().unwrap().contains(row["prediction"].as_str().unwrap());
    assert_eq!(rows.len(), 8);
    let known = rows.iter().filter(right).count();
    assert!(known >= 5, "only {known} of 8 right: {text}");
    let sum: f64 = rows[0]["top"].as_array().unwrap().iter().map(|t| t["probability"].as_f64().unwrap()).sum();
    assert!(sum > 0.5 && sum < 1.0 + 1e-5);
    let table = works(folder.path(), &["predict", "photos", "--classes", CLASSES]);
    assert!(table.contains("probability") && table.contains("photos/fish"), "{table}");
}

#[test]
fn an_answer_is_explained_and_repeats() {
    let folder = photos();
    let image = std::fs::read_dir(folder.path().join("photos/fish")).unwrap().next().unwrap().unwrap().path();
    let image = image.to_str().unwrap();
    let arguments = ["predict", image, "--classes", CLASSES, "--method", "stss", "--explain", "views.png"];
    let first = works(folder.path(), &arguments);
    assert!(first.contains("6 of 64 views selected"), "{first}");
    assert_eq!(first, works(folder.path(), &[&arguments[..], &["--threads", "1"]].concat()));
    assert!(std::fs::read(folder.path().join("views.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn features_of_texts_and_images_are_unit() {
    let folder = photos();
    for input in [&["embed", "--text", "a photo of a cat.", "--json"][..], &["embed", "photos", "--json"]] {
        let json: Value = serde_json::from_str(&works(folder.path(), input)).unwrap();
        let row = json["results"][0]["features"].as_array().unwrap();
        let norm: f64 = row.iter().map(|x| x.as_f64().unwrap().powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-4, "{norm}");
    }
}

#[test]
fn wrong_use_is_explained() {
    let folder = photos();
    for (arguments, word) in [
        (&["predict", "photos"][..], "--classes"),
        (&["predict", "absent.jpg", "--classes", "a,b"], "absent.jpg"),
        (&["predict", "photos", "--classes", "a,,b"], "class 2"),
        (&["predict", "photos", "--classes", "a,b", "--method", "stsss"], "stss"),
        (&["predict", "photos", "--classes", "a,b", "--model", "nowhere"], "nowhere"),
        (&["predict", "photos", "--classes", "a,b", "--template", "no place"], "{}"),
        (&["embed"], "--text"),
        (&["landscape", "--data", "pocket:photo", "--points", "1"], "points"),
        (&["analyze", "--near", "pocket:moon"], "moon"),
        (&["eval", "--data", "folder:nowhere", "--out", "run"], "nowhere"),
        (&["data", "check", "--data-root", "nowhere"], "nowhere"),
    ] {
        let message = fails(folder.path(), arguments);
        assert!(message.contains(word), "{arguments:?}: {message}");
        assert!(message.matches("os error").count() < 2, "said twice: {message}");
    }
}

#[test]
fn a_landscape_and_an_analysis_leave_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        works(folder.path(), &["landscape", "--data", "pocket:photo", "--shots", "1", "--points", "5", "--out", "l"]);
    assert!(text.contains("mean rise at 0.25"), "{text}");
    let page = std::fs::read_to_string(folder.path().join("l/landscape.html")).unwrap();
    assert!(page.contains("\"values\":") && !page.contains("/*DATA*/") && !page.contains("http://"), "self-contained");
    let text = works(folder.path(), &["analyze", "--limit", "64", "--shots", "2", "--out", "a"]);
    assert!(text.contains("P(score < xi)"), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("a/analysis.json")).unwrap()).unwrap();
    let gap = &json["near"]["entropy_gap"];
    assert_eq!((&gap["count"], &gap["holding"]), (&64.into(), &64.into()), "the bound is a theorem");
    let worst = &json["bound"]["worst_case"];
    let term = |name: &str| worst[name].as_f64().unwrap();
    assert!(term("centre") <= term("shared") && term("shared") <= term("per_image"), "{worst}");
    works(folder.path(), &["report", "l", "a", "--html", "r.html"]);
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("Landscape (l)") && page.contains("Terms of the bound") && page.matches("<svg").count() >= 3);
}

#[test]
fn the_demo_runs_from_nothing_to_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let text = works(folder.path(), &["demo", "--quick"]);
    let titles = ["1. One image", "2. What views gain", "3. What tuning gains", "4. Where the prompts", "5. The table"];
    for word in titles.iter().chain(&["zero-shot", "CoOp", "FGA", "STSS", "report.html", "flatclip tune"]) {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let report = std::fs::read_to_string(folder.path().join("flatclip-demo/report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("data:image/png"), "figures and views");
    let bytes = std::fs::read(folder.path().join("flatclip-demo/results.json")).unwrap();
    let json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 7);
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::write(folder.path().join("mine/precious"), "x").unwrap();
    assert!(fails(folder.path(), &["demo", "--quick", "--out", "mine"]).contains("not an earlier demo"));
}
