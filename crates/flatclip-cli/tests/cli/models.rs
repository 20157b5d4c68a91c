//! `flatclip models` and `flatclip convert`, run as a user runs them.

use super::common::{Home, in_repository};
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    in_repository("fixtures/golden/models").join(name)
}

#[test]
fn convert_writes_the_same_model_and_show_says_what_it_is() {
    let home = Home::new();
    let (input, output) = (fixture("tiny-vit.jit.pt").display().to_string(), "out.safetensors");
    let converted = home.json(&format!("convert {input} {output} --activation gelu"));
    let before = home.json(&format!("models show {input}"));
    let after = home.json(&format!("models show {output}"));
    assert_eq!(converted["hash"], before["hash"]);
    assert_eq!(before["hash"], after["hash"]);
    assert_eq!(
        (&before["config"]["activation"], &after["config"]["activation"]),
        (&"quick_gelu".into(), &"gelu".into())
    );
    assert_eq!(after["config"]["activation_source"], "stated");
    assert_eq!(after["dtypes"], before["dtypes"]);

    home.refused_with(&format!("convert {input} {output}"), "--force");
    let text = home.works(&format!("models show {output}"));
    assert!(text.contains("patch 8") && text.contains("gelu stated"), "{text}");
}

#[test]
fn the_list_tells_what_is_on_disk_and_what_is_unusable() {
    let home = Home::new();
    std::fs::create_dir(home.path("models")).unwrap();
    std::fs::write(home.path("models/RN50.pt"), "not weights").unwrap();
    std::fs::copy(fixture("tiny-vit.jit.pt"), home.path("models/ViT-B-16.pt")).unwrap();
    let list = home.json("models --model-dir models");
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
    let home = Home::new();
    std::fs::write(home.path("page.pt"), "<!DOCTYPE html>").unwrap();
    for (model, word) in [("page.pt", "HTML"), ("MobileCLIP-S1", "convolutional"), ("nothing", "known names")] {
        let line = format!("models show {model}");
        home.refused_with(&line, word);
        assert!(home.run(&line).stdout.is_empty(), "{model}");
    }
}

#[test]
fn a_published_model_is_shown_before_it_is_fetched_and_the_list_fits_a_terminal() {
    let home = Home::new();
    let shown = home.works("models show ViT-H-14/dfn5b");
    for word in ["apple/DFN5B-CLIP-ViT-H-14", "quick_gelu as published", "squash, no crop, bicubic", "CLIP BPE", "MB"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let shown = home.works("models show ViT-B-16-SigLIP2-256/webli");
    for word in ["squash, no crop, bicubic; mean 0.5 0.5 0.5", "Gemma", "rows of 64", "(text gelu_tanh)"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let list = home.command("models").env("COLUMNS", "100").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("ViT-bigG-14/laion2b_s39b_b160k") && list.contains("PE-Core-B-16/meta"), "{list}");
    assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
}
