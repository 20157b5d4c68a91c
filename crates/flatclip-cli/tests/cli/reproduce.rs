//! `flatclip reproduce` as a user runs it: killed, typed by hand from its plan, and reported.
#![cfg(unix)]

use super::common::{BINARY, Home, in_repository};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A tuned prompt, a stream, views, a sweep and both kinds of landscape, each in a moment.
const RECIPE: &str = r#"
name = "small"
title = "A little of everything"
model = "pocket"
source = "pocket:photo::256"
datasets = ["pocket:hard", "pocket:sketch"]
seeds = [1, 2]
policy = "crop-flip"
views = 6
limit = 6
reference = "ZERO"

[[prompt]]
name = "template"
text = "template"

[[prompt]]
name = "four"
text = "c-tpt4"

[[prompt]]
name = "sapt"
tuner = "sapt"
shots = 2
held_out = 1
search = true
settings = { train = { epochs = 2 }, views = { bank = 1 }, sapt = { radius_unit = "relative" } }

[[row]]
label = "ZERO"
prompt = "sapt"
method = "zero"

[[row]]
label = "TDA"
prompt = "template"
method = "tda"

[[row]]
label = "C-TPT"
prompt = "four"
method = "c-tpt"
options = { weight = 20.0 }

[[sweep]]
name = "radius"
title = "Test radius"
prompt = "sapt"
method = "stss"
axes = ["stss.radius=0,1"]
datasets = ["pocket:hard"]

[[landscape]]
name = "training"
title = "Training loss"
prompts = ["sapt"]
of = "training"
shots = 1
points = 3

[[landscape]]
name = "views"
title = "A selected and a rejected view"
prompts = ["sapt"]
of = "pocket:hard"
points = 3
"#;

/// A home with the recipe.
fn home() -> Home {
    let home = Home::new();
    std::fs::write(home.path("small.toml"), RECIPE).unwrap();
    home
}

/// Every file but those of wall-clock times, locks, and beginnings of files that a kill left and nobody reads.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                folders.push(path);
            } else if !["timing", "events.out", ".lock", ".tmp"].iter().any(|other| name.starts_with(other)) {
                found.insert(path.strip_prefix(folder).unwrap().to_path_buf(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Names and contents, so that a failure says which file it is.
fn assert_same(expected: &BTreeMap<PathBuf, Vec<u8>>, found: &BTreeMap<PathBuf, Vec<u8>>) {
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    let lacks = |a: &BTreeMap<PathBuf, Vec<u8>>, b: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
        names(a).into_iter().filter(|name| !b.contains_key(name)).collect()
    };
    assert_eq!((lacks(expected, found), lacks(found, expected)), (Vec::new(), Vec::new()));
    for (name, bytes) in expected {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(2000).collect::<String>();
        assert!(*bytes == found[name], "{}:\n{}\nand\n{}", name.display(), text(bytes), text(&found[name]));
    }
}

#[test]
fn killed_at_ten_moments_it_goes_on_to_the_same_bytes() {
    let home = home();
    let whole = "reproduce --recipe small.toml --out whole";
    let start = std::time::Instant::now();
    home.works(whole);
    let lasts = start.elapsed().as_millis() as u64;
    // Each with a cache of its own: what one has encoded, the other would not have to.
    let killed = "reproduce --recipe small.toml --out killed --cache other";
    let mut kills = 0;
    for number in 0..40u64 {
        let mut child = home.command(killed).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Spread over what is left to do: loading the model takes a part of every attempt.
        std::thread::sleep(Duration::from_millis(60 + number * 7919 % (lasts / 4 + 60)));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if kills == 10 {
            break;
        }
    }
    assert!(kills >= 3, "only {kills} kills of a run that lasts {lasts} ms");
    home.works(killed);
    assert_same(&files(&home.path("whole")), &files(&home.path("killed")));
}

#[test]
fn the_printed_commands_make_the_same_bytes() {
    let home = home();
    home.works("reproduce --recipe small.toml --out item");
    let plan = home.json("reproduce --recipe small.toml --out typed --plan");
    let commands: Vec<&str> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["command"].as_str().unwrap()).collect();
    let folder = home.path(plan["folder"].as_str().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!("set -e\n{}\n", commands.join("\n"));
    let programs = Path::new(BINARY).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = home.program("sh");
    let ended = shell.args(["-c", &script]).env("PATH", path).current_dir(&folder).output().unwrap();
    assert!(ended.status.success(), "{script}\n{}", String::from_utf8_lossy(&ended.stderr));
    // What the item adds: its stamps, and its tables.
    let mut item = files(&home.path("item"));
    item.retain(|path, _| path.components().count() > 1 && !path.ends_with("step.json"));
    assert_same(&item, &files(&folder));
}

/// Two radii, two precisions, three seeds, an imported context: only seeds share a row.
#[test]
fn a_report_over_mixed_runs_keeps_apart_what_differs() {
    let home = home();
    let context = in_repository("crates/flatclip-cli/tests/prompts/pocket-coop.pth.tar").display().to_string();
    home.works(&format!("prompt import {context} --out brought.safetensors"));
    let tune = |seed: &str| {
        let out = format!("prompts/coop/seed-{seed}");
        let words = "tune --method coop --data pocket:photo::256 --shots 2 --epochs 2";
        home.works(&format!("{words} --feature-bank 1 --seed {seed} --out {out}"));
    };
    let eval = |name: &str, prompt: &str, seed: &str, more: &str| {
        let out = format!("runs/{name}/seed-{seed}");
        let words = format!("eval --data pocket:hard:test:8 --method stss --views 8 --prompt {prompt}");
        home.works(&format!("{words} --seed {seed} --out {out} {more}"));
    };
    for seed in ["1", "2", "3"] {
        tune(seed);
        let prompt = format!("prompts/coop/seed-{seed}");
        eval("narrow", &prompt, seed, "--precision f32");
        eval("wide", &prompt, seed, "--precision f32 --set radius=1");
        eval("bf16", &prompt, seed, "--precision bf16");
    }
    eval("brought", "brought.safetensors", "1", "--precision f32");
    let report = home.json("report runs --table methods");
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let cells = |row: &Value| [&row[0], &row[1]].map(|cell| cell["text"].as_str().unwrap().to_owned());
    let found: BTreeMap<String, String> = rows.iter().map(|row| cells(row).into()).collect();
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = [
        "coop (imported) + stss",
        "coop + stss, precision bf16, radius 0.5",
        "coop + stss, precision f32, radius 0.5",
        "coop + stss, precision f32, radius 1.0",
    ];
    assert_eq!(names, expected);
    for (name, top1) in &found {
        assert_eq!(top1.contains('±'), !name.contains("imported"), "{name}: {top1}");
    }
}

#[test]
fn efficiency_says_what_it_measured_and_keeps_the_papers_numbers_apart() {
    let home = home();
    let row = |method: &str, median: f64, stand_ins: &[&str]| {
        serde_json::json!({
            "method": method, "views": 64, "prepare": 22.1, "median": median, "fastest": median, "slowest": median,
            "repeats": 5, "added": 0.1, "encode": 1.0, "ratio": median, "peak_rss_mb": 800.0, "stand_ins": stand_ins,
        })
    };
    let setting = serde_json::json!({
        "version": "0", "model": "pocket", "isa": "avx2", "precision": "f32", "text_precision": "f32", "threads": 2,
    });
    let methods = [row("stss", 1.1, &[]), row("tpt", 4.0, &[]), row("difftpt", 12.0, &["64 random features"])];
    let bench = serde_json::json!({ "setting": setting, "classes": 1000, "methods": methods });
    // Measured before: nothing is measured again.
    std::fs::create_dir(home.path("out")).unwrap();
    std::fs::write(home.path("out/bench.json"), bench.to_string()).unwrap();
    let text = home.works("reproduce efficiency --model pocket --out out");
    let page = home.text("out/report.html");
    for place in [&text, &page] {
        for part in ["pocket, 2 threads, 1000 classes", "Excluded:", "64 random features", "one NVIDIA V100 GPU"] {
            assert!(place.contains(part), "{part}: {place}");
        }
    }
    let difftpt: Vec<&str> = text.lines().filter(|line| line.to_lowercase().starts_with("difftpt")).collect();
    assert!(!difftpt[0].contains("23.86") && !difftpt[0].contains("10.91"), "{difftpt:?}");
    assert!(difftpt[1].contains("23.86"), "{difftpt:?}");
}
