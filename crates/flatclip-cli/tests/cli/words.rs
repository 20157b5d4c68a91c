//! What the command says is true and helps: versions, hints, warnings, help texts, tables that fit.

use super::common::{Home, entries, in_repository};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Output;

fn flatclip(home: &Home, line: &str) -> Output {
    home.command(line).env("COLUMNS", "80").output().unwrap()
}

/// Stdout and stderr of a command that works.
fn works(home: &Home, line: &str) -> (String, String) {
    let output = flatclip(home, line);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{line}: {err}");
    (out, err)
}

fn fails(home: &Home, line: &str) -> String {
    let output = flatclip(home, line);
    assert_eq!(output.status.code(), Some(2), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

const CLASSES: &str = "fish,lamp,snail,boat";

fn of_class(home: &Home, class: &str) -> PathBuf {
    entries(&home.path("photos").join(class)).remove(0)
}

#[test]
fn the_version_says_which_instructions_and_precision() {
    let home = Home::new();
    let (text, _) = works(&home, "version --isa plain");
    assert!(text.contains("instructions plain, precision f32"), "{text}");
    let json = home.json("version");
    assert!(json["isa"].is_string() && json["precision"].is_string(), "{json}");
}

#[test]
fn quiet_prints_warnings_as_its_help_says_and_one_class_is_a_warning() {
    let home = Home::with_photos(8);
    let image = of_class(&home, "fish").display().to_string();
    let (table, said) = works(&home, &format!("predict {image} --classes fish --quiet"));
    assert!(table.contains("1.0000"), "{table}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("warning: with \"fish\" as the only class"), "{said}");
    let (_, said) = works(&home, &format!("predict {image} --classes fish,lamp --quiet"));
    assert_eq!(said, "");
    let (help, _) = works(&home, "predict --help");
    assert!(help.contains("only warnings and errors on stderr"), "{help}");
}

#[test]
fn errors_name_what_to_type() {
    let home = Home::with_photos(8);
    let torch = in_repository("fixtures/torch/coop.pth.tar-50").display().to_string();
    let predict = format!("predict photos --classes {CLASSES}");
    let message = fails(&home, &format!("{predict} --prompt {torch}"));
    assert!(message.contains("flatclip prompt import FILE --out"), "{message}");
    let twice = fails(&home, "predict photos --classes fish,lamp,fish");
    assert!(twice.contains("\"fish\" occurs 2 times") && twice.contains("a name of its own"), "{twice}");
    assert!(!twice.contains("only the first"), "{twice}");
    let option = fails(&home, &format!("{predict} --method stss --set vews=8"));
    assert!(option.contains("did you mean `views`?"), "{option}");
}

#[test]
fn a_bare_state_dict_warns_with_both_activations_until_one_is_given() {
    let home = Home::new();
    works(&home, "convert pocket stated.safetensors");
    // The same file as another program would have written it: nothing in it says the activation.
    let bytes = std::fs::read(home.path("stated.safetensors")).unwrap();
    let at = bytes.windows(9).position(|part| part == b"flatclip ").unwrap();
    let other = [&bytes[..at], &b"somebody"[..], &bytes[at + 8..]].concat();
    std::fs::write(home.path("finetuned.safetensors"), other).unwrap();
    for line in ["models show finetuned.safetensors", "convert finetuned.safetensors a.safetensors"] {
        let (_, said) = works(&home, line);
        assert!(said.contains("warning: ") && said.contains("do not state their activation"), "{said}");
        assert!(said.contains("quick-gelu (OpenAI") && said.contains("gelu (open_clip"), "{said}");
    }
    let (_, said) = works(&home, "convert finetuned.safetensors b.safetensors --activation quick-gelu");
    assert!(!said.contains("warning"), "{said}");
    let (_, said) = works(&home, "models show b.safetensors");
    assert!(!said.contains("warning"), "{said}");
}

/// Features of one activation are not taken for those of the other.
#[test]
fn the_feature_cache_tells_activations_apart() {
    let home = Home::new();
    for (out, activation) in [("quick", "quick-gelu"), ("plain", "gelu")] {
        let eval = format!("eval --method zero-shot --data pocket:photo --limit 8 --out {out}");
        works(&home, &format!("{eval} --model pocket --activation {activation}"));
    }
    let json = home.json("cache ls");
    assert_eq!(json["entries"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn a_replaced_image_is_answered_again() {
    let home = Home::with_photos(8);
    let (fish, lamp) = (of_class(&home, "fish"), of_class(&home, "lamp"));
    for (file, image) in [("a.png", &fish), ("b.png", &fish)] {
        std::fs::copy(image, home.path(file)).unwrap();
    }
    for out in ["rows.csv", "rows.jsonl"] {
        let predict = format!("predict a.png b.png --classes {CLASSES} --out {out}");
        works(&home, &predict);
        let first = home.text(out);
        let (_, said) = works(&home, &predict);
        assert!(said.contains("2 images answered already, skipped"), "{said}");
        assert_eq!(home.text(out), first);
        std::fs::copy(&lamp, home.path("a.png")).unwrap();
        let (_, said) = works(&home, &predict);
        assert!(said.contains("1 image changed since, answered again"), "{said}");
        let second = home.text(out);
        let row = |text: &str, name: &str| {
            let rows: Vec<String> = text.lines().filter(|line| line.contains(name)).map(str::to_owned).collect();
            assert_eq!(rows.len(), 1, "{text}");
            rows[0].clone()
        };
        assert_eq!(row(&first, "b.png"), row(&second, "b.png"));
        assert_ne!(row(&first, "a.png"), row(&second, "a.png"));
        assert_eq!(first.lines().count(), second.lines().count());
        std::fs::copy(&fish, home.path("a.png")).unwrap();
    }
}

#[test]
fn tables_fit_eighty_columns_and_break_no_name() {
    let home = Home::new();
    for (line, names) in [
        ("models", &["ViT-B-32/datacomp_xl_s13b_b90k", "pocket-vit"][..]),
        ("reproduce list", &["components", "directions", "efficiency", "ViT-B-16/openai", "tip-adapter"]),
        ("data ls", &["imagenet_sketch", "fgvc_aircraft"]),
        ("methods", &["boostadapter", "promptalign"]),
    ] {
        let (text, _) = works(&home, line);
        for row in text.lines() {
            assert!(row.chars().count() <= 80, "{line}: {row}");
        }
        for name in names {
            assert!(text.contains(name), "{line} breaks {name}: {text}");
        }
    }
}

#[test]
fn data_ls_says_where_each_was_found() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("root/ImageNet-A/n01498041")).unwrap();
    let json = home.json("data ls --data-root root");
    let row = |name: &str| json["data_sets"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("imagenet_a")["folder"], "root/ImageNet-A");
    assert_eq!(row("dtd")["folder"], Value::Null);
    let (text, _) = works(&home, "data ls --data-root root");
    assert!(text.contains("found in") && text.contains("root/ImageNet-A"), "{text}");
    assert!(fails(&home, "data ls --data-root nowhere").contains("nowhere"));
}

#[test]
fn help_names_every_tuner_and_what_the_cache_does() {
    let home = Home::new();
    let (tune, _) = works(&home, "tune --help");
    let words = tune.split_whitespace().collect::<Vec<_>>().join(" ");
    for spec in flatclip_lab::tuners::TUNERS {
        assert!(words.contains(spec.name), "{}: {tune}", spec.name);
    }
    for preset in flatclip_lab::tuners::PRESETS {
        assert!(words.contains(preset.name), "{}: {tune}", preset.name);
    }
    let (own, global) = tune.split_once("Global options:").unwrap();
    assert!(own.contains("--resume") && global.contains("--threads") && !own.contains("--threads"), "{tune}");
    let (cache, _) = works(&home, "cache --help");
    assert!(cache.starts_with("Manage the feature cache: list, export and remove"), "{cache}");
    assert!(cache.contains("text banks") && cache.contains("FLATCLIP_CACHE"), "{cache}");
}
