//! `flatclip models` and `flatclip convert`, run as a user runs them.

use super::common::{command, run, said};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/models").join(name)
}

fn flatclip(home: &TempDir, args: &[&str]) -> Output {
    run(home.path(), args)
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn convert_writes_the_same_model_and_show_says_what_it_is() {
    let home = TempDir::new().unwrap();
    let (input, output) = (fixture("tiny-vit.jit.pt"), home.path().join("out.safetensors"));
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let converted = json(&flatclip(&home, &["convert", input, output, "--activation", "gelu", "--json"]));
    let before = json(&flatclip(&home, &["models", "show", input, "--json"]));
    let after = json(&flatclip(&home, &["models", "show", output, "--json"]));
    assert_eq!(converted["hash"], before["hash"]);
    assert_eq!(before["hash"], after["hash"]);
    assert_eq!(
        (&before["config"]["activation"], &after["config"]["activation"]),
        (&"quick_gelu".into(), &"gelu".into())
    );
    assert_eq!(after["config"]["activation_source"], "stated");
    assert_eq!(after["dtypes"], before["dtypes"]);

    let again = flatclip(&home, &["convert", input, output]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
    let text = flatclip(&home, &["models", "show", output]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("patch 8") && text.contains("gelu stated"), "{text}");
}

#[test]
fn the_list_tells_what_is_on_disk_and_what_is_unusable() {
    let (home, models) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    std::fs::write(models.path().join("RN50.pt"), "not weights").unwrap();
    std::fs::copy(fixture("tiny-vit.jit.pt"), models.path().join("ViT-B-16.pt")).unwrap();
    let list = json(&flatclip(&home, &["models", "--json", "--model-dir", models.path().to_str().unwrap()]));
    let row = |name: &str| list["models"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!(row("ViT-L-14/openai")["state"], "not on disk");
    assert!(row("pocket")["state"].as_str().unwrap().starts_with("ModifiedResNet"), "{}", row("pocket"));
    assert!(row("pocket-vit")["state"].as_str().unwrap().starts_with("ViT (image 64x64"), "{}", row("pocket-vit"));
    assert!(row("RN50/openai")["state"].as_str().unwrap().starts_with("unusable"));
    assert!(row("ViT-B-16/openai")["state"].as_str().unwrap().starts_with("ViT (image 32x32"));
    assert_eq!(row("ViT-B-16/openai")["bytes"], fixture("tiny-vit.jit.pt").metadata().unwrap().len());
}

#[test]
fn broken_input_ends_with_code_2_and_a_reason() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("page.pt");
    std::fs::write(&file, "<!DOCTYPE html>").unwrap();
    for (model, word) in
        [(file.to_str().unwrap(), "HTML"), ("MobileCLIP-S1", "convolutional"), ("nothing", "known names")]
    {
        let output = flatclip(&home, &["models", "show", model]);
        assert_eq!(output.status.code(), Some(2), "{model}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(word) && output.stdout.is_empty(), "{text}");
    }
}

#[test]
fn a_published_model_is_shown_before_it_is_fetched_and_the_list_fits_a_terminal() {
    let home = TempDir::new().unwrap();
    let text = |args: &[&str]| String::from_utf8(flatclip(&home, args).stdout).unwrap();
    let shown = text(&["models", "show", "ViT-H-14/dfn5b"]);
    for word in ["apple/DFN5B-CLIP-ViT-H-14", "quick_gelu as published", "squash, no crop, bicubic", "CLIP BPE", "MB"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let shown = text(&["models", "show", "ViT-B-16-SigLIP2-256/webli"]);
    for word in ["squash, no crop, bicubic; mean 0.5 0.5 0.5", "Gemma", "rows of 64", "(text gelu_tanh)"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let list = command(home.path(), &["models"]).env("COLUMNS", "100").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("ViT-bigG-14/laion2b_s39b_b160k") && list.contains("PE-Core-B-16/meta"), "{list}");
    assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
}
