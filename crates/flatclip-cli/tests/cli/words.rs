//! What the command says is true and helps: versions, hints, warnings, help texts, tables that fit.

use super::common::command;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

fn flatclip(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).env("COLUMNS", "80").output().unwrap()
}

/// Stdout and stderr of a command that works.
fn works(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = flatclip(folder, arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{arguments:?}: {err}");
    (out, err)
}

fn fails(folder: &Path, arguments: &[&str]) -> String {
    let output = flatclip(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.canonicalize().unwrap().display().to_string()
}

const CLASSES: &str = "fish,lamp,snail,boat";

/// A folder with images of four classes in `photos`.
fn photos() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    works(folder.path(), &["pocket", "export", "photos", "--domain", "photo", "--count", "8"]);
    folder
}

fn of_class(folder: &Path, class: &str) -> PathBuf {
    std::fs::read_dir(folder.join("photos").join(class)).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn the_version_says_which_instructions_and_precision() {
    let folder = tempfile::tempdir().unwrap();
    let (text, _) = works(folder.path(), &["version", "--isa", "plain"]);
    assert!(text.contains("instructions plain, precision f32"), "{text}");
    let (json, _) = works(folder.path(), &["version", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["isa"].is_string() && json["precision"].is_string(), "{json}");
}

#[test]
fn quiet_prints_warnings_as_its_help_says_and_one_class_is_a_warning() {
    let folder = photos();
    let image = of_class(folder.path(), "fish").display().to_string();
    let (table, said) = works(folder.path(), &["predict", &image, "--classes", "fish", "--quiet"]);
    assert!(table.contains("1.0000"), "{table}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("warning: with \"fish\" as the only class"), "{said}");
    let (_, said) = works(folder.path(), &["predict", &image, "--classes", "fish,lamp", "--quiet"]);
    assert_eq!(said, "");
    let (help, _) = works(folder.path(), &["predict", "--help"]);
    assert!(help.contains("only warnings and errors on stderr"), "{help}");
}

#[test]
fn errors_name_what_to_type() {
    let folder = photos();
    let torch = fixture("torch/coop.pth.tar-50");
    let predict = ["predict", "photos", "--classes", CLASSES];
    let message = fails(folder.path(), &[&predict[..], &["--prompt", &torch]].concat());
    assert!(message.contains("flatclip prompt import FILE --out"), "{message}");
    let twice = fails(folder.path(), &["predict", "photos", "--classes", "fish,lamp,fish"]);
    assert!(twice.contains("\"fish\" occurs 2 times") && twice.contains("a name of its own"), "{twice}");
    assert!(!twice.contains("only the first"), "{twice}");
    let option = fails(folder.path(), &[&predict[..], &["--method", "stss", "--set", "vews=8"]].concat());
    assert!(option.contains("did you mean `views`?"), "{option}");
}

#[test]
fn a_bare_state_dict_warns_with_both_activations_until_one_is_given() {
    let folder = tempfile::tempdir().unwrap();
    works(folder.path(), &["convert", "pocket", "stated.safetensors"]);
    // The same file as another program would have written it: nothing in it says the activation.
    let bytes = std::fs::read(folder.path().join("stated.safetensors")).unwrap();
    let at = bytes.windows(9).position(|part| part == b"flatclip ").unwrap();
    let other = [&bytes[..at], &b"somebody"[..], &bytes[at + 8..]].concat();
    std::fs::write(folder.path().join("finetuned.safetensors"), other).unwrap();
    let bare = "finetuned.safetensors";
    for arguments in [&["models", "show", bare][..], &["convert", bare, "a.safetensors"]] {
        let (_, said) = works(folder.path(), arguments);
        assert!(said.contains("warning: ") && said.contains("do not state their activation"), "{said}");
        assert!(said.contains("quick-gelu (OpenAI") && said.contains("gelu (open_clip"), "{said}");
    }
    let (_, said) = works(folder.path(), &["convert", bare, "b.safetensors", "--activation", "quick-gelu"]);
    assert!(!said.contains("warning"), "{said}");
    let (_, said) = works(folder.path(), &["models", "show", "b.safetensors"]);
    assert!(!said.contains("warning"), "{said}");
}

/// Features of one activation are not taken for those of the other.
#[test]
fn the_feature_cache_tells_activations_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (out, activation) in [("quick", "quick-gelu"), ("plain", "gelu")] {
        let eval = ["eval", "--method", "zero-shot", "--data", "pocket:photo", "--limit", "8", "--out", out];
        works(folder.path(), &[&eval[..], &["--model", "pocket", "--activation", activation]].concat());
    }
    let (json, _) = works(folder.path(), &["cache", "ls", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["entries"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn a_replaced_image_is_answered_again() {
    let folder = photos();
    let home = folder.path();
    let (fish, lamp) = (of_class(home, "fish"), of_class(home, "lamp"));
    for (file, image) in [("a.png", &fish), ("b.png", &fish)] {
        std::fs::copy(image, home.join(file)).unwrap();
    }
    for out in ["rows.csv", "rows.jsonl"] {
        let predict = ["predict", "a.png", "b.png", "--classes", CLASSES, "--out", out];
        works(home, &predict);
        let first = std::fs::read_to_string(home.join(out)).unwrap();
        let (_, said) = works(home, &predict);
        assert!(said.contains("2 images answered already, skipped"), "{said}");
        assert_eq!(std::fs::read_to_string(home.join(out)).unwrap(), first);
        std::fs::copy(&lamp, home.join("a.png")).unwrap();
        let (_, said) = works(home, &predict);
        assert!(said.contains("1 image changed since, answered again"), "{said}");
        let second = std::fs::read_to_string(home.join(out)).unwrap();
        let row = |text: &str, name: &str| {
            let rows: Vec<String> = text.lines().filter(|line| line.contains(name)).map(str::to_owned).collect();
            assert_eq!(rows.len(), 1, "{text}");
            rows[0].clone()
        };
        assert_eq!(row(&first, "b.png"), row(&second, "b.png"));
        assert_ne!(row(&first, "a.png"), row(&second, "a.png"));
        assert_eq!(first.lines().count(), second.lines().count());
        std::fs::copy(&fish, home.join("a.png")).unwrap();
    }
}

#[test]
fn tables_fit_eighty_columns_and_break_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let tables: [(&[&str], &[&str]); 4] = [
        (&["models"], &["ViT-B-32/datacomp_xl_s13b_b90k", "pocket-vit"]),
        (&["reproduce", "list"], &["components", "directions", "efficiency", "ViT-B-16/openai", "tip-adapter"]),
        (&["data", "ls"], &["imagenet_sketch", "fgvc_aircraft"]),
        (&["methods"], &["boostadapter", "promptalign"]),
    ];
    for (arguments, names) in tables {
        let (text, _) = works(folder.path(), arguments);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        }
        for name in names {
            assert!(text.contains(name), "{arguments:?} breaks {name}: {text}");
        }
    }
}

#[test]
fn data_ls_says_where_each_was_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("root/ImageNet-A/n01498041")).unwrap();
    let (json, _) = works(folder.path(), &["data", "ls", "--data-root", "root", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let row = |name: &str| json["data_sets"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("imagenet_a")["folder"], "root/ImageNet-A");
    assert_eq!(row("dtd")["folder"], Value::Null);
    let (text, _) = works(folder.path(), &["data", "ls", "--data-root", "root"]);
    assert!(text.contains("found in") && text.contains("root/ImageNet-A"), "{text}");
    assert!(fails(folder.path(), &["data", "ls", "--data-root", "nowhere"]).contains("nowhere"));
}

#[test]
fn help_names_every_tuner_and_what_the_cache_does() {
    let folder = tempfile::tempdir().unwrap();
    let (tune, _) = works(folder.path(), &["tune", "--help"]);
    let words = tune.split_whitespace().collect::<Vec<_>>().join(" ");
    for spec in flatclip_lab::tuners::TUNERS {
        assert!(words.contains(spec.name), "{}: {tune}", spec.name);
    }
    for preset in flatclip_lab::tuners::PRESETS {
        assert!(words.contains(preset.name), "{}: {tune}", preset.name);
    }
    let (own, global) = tune.split_once("Global options:").unwrap();
    assert!(own.contains("--resume") && global.contains("--threads") && !own.contains("--threads"), "{tune}");
    let (cache, _) = works(folder.path(), &["cache", "--help"]);
    assert!(cache.starts_with("Manage the feature cache: list, export and remove"), "{cache}");
    assert!(cache.contains("text banks") && cache.contains("FLATCLIP_CACHE"), "{cache}");
}
