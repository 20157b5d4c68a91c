//! `flatclip reproduce` as a user runs it: killed, typed by hand from its plan, and reported.
#![cfg(unix)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

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

/// A home of its own: nothing of this machine is found, nothing is left on it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(TempDir::new().unwrap());
        std::fs::write(home.path("small.toml"), RECIPE).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.0.path()).env("HOME", self.0.path()).env("FLATCLIP_OFFLINE", "true");
        for name in ["XDG_CACHE_HOME", "FLATCLIP_CACHE", "FLATCLIP_DATA", "FLATCLIP_MODEL", "FLATCLIP_PRECISION"] {
            command.env_remove(name);
        }
        command
    }

    fn flatclip(&self, args: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_flatclip"), args)
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.flatclip(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.run(&[args, &["--json"]].concat()).stdout).unwrap()
    }
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
    let home = Home::new();
    let whole = ["reproduce", "--recipe", "small.toml", "--out", "whole"];
    let start = std::time::Instant::now();
    home.run(&whole);
    let lasts = start.elapsed().as_millis() as u64;
    // Each with a cache of its own: what one has encoded, the other would not have to.
    let killed = ["reproduce", "--recipe", "small.toml", "--out", "killed", "--cache", "other"];
    let mut kills = 0;
    for number in 0..40u64 {
        let mut child = home.flatclip(&killed).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
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
    home.run(&killed);
    assert_same(&files(&home.path("whole")), &files(&home.path("killed")));
}

#[test]
fn the_printed_commands_make_the_same_bytes() {
    let home = Home::new();
    home.run(&["reproduce", "--recipe", "small.toml", "--out", "item"]);
    let plan = home.json(&["reproduce", "--recipe", "small.toml", "--out", "typed", "--plan"]);
    let commands: Vec<&str> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["command"].as_str().unwrap()).collect();
    let folder = home.path(plan["folder"].as_str().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!("set -e\n{}\n", commands.join("\n"));
    let programs = Path::new(env!("CARGO_BIN_EXE_flatclip")).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let ended = home.command("sh", &["-c", &script]).env("PATH", path).current_dir(&folder).output().unwrap();
    assert!(ended.status.success(), "{script}\n{}", String::from_utf8_lossy(&ended.stderr));
    // What the item adds: its stamps, and its tables.
    let mut item = files(&home.path("item"));
    item.retain(|path, _| path.components().count() > 1 && !path.ends_with("step.json"));
    assert_same(&item, &files(&folder));
}

/// Two radii, two precisions, three seeds, an imported context: only seeds share a row.
#[test]
fn a_report_over_mixed_runs_keeps_apart_what_differs() {
    let home = Home::new();
    let context = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prompts/pocket-coop.pth.tar");
    home.run(&["prompt", "import", context.to_str().unwrap(), "--out", "brought.safetensors"]);
    let tune = |seed: &str| {
        let out = format!("prompts/coop/seed-{seed}");
        let words = ["tune", "--method", "coop", "--data", "pocket:photo::256", "--shots", "2", "--epochs", "2"];
        home.run(&[&words[..], &["--feature-bank", "1", "--seed", seed, "--out", &out]].concat());
    };
    let eval = |name: &str, prompt: &str, seed: &str, more: &[&str]| {
        let out = format!("runs/{name}/seed-{seed}");
        let words = ["eval", "--data", "pocket:hard:test:8", "--method", "stss", "--views", "8", "--prompt", prompt];
        home.run(&[&words[..], &["--seed", seed, "--out", &out], more].concat());
    };
    for seed in ["1", "2", "3"] {
        tune(seed);
        let prompt = format!("prompts/coop/seed-{seed}");
        eval("narrow", &prompt, seed, &["--precision", "f32"]);
        eval("wide", &prompt, seed, &["--precision", "f32", "--set", "radius=1"]);
        eval("bf16", &prompt, seed, &["--precision", "bf16"]);
    }
    eval("brought", "brought.safetensors", "1", &["--precision", "f32"]);
    let report = home.json(&["report", "runs", "--table", "methods"]);
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
    let home = Home::new();
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
    let said = home.run(&["reproduce", "efficiency", "--model", "pocket", "--out", "out"]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let page = std::fs::read_to_string(home.path("out/report.html")).unwrap();
    for place in [&text, &page] {
        for part in ["pocket, 2 threads, 1000 classes", "Excluded:", "64 random features", "one NVIDIA V100 GPU"] {
            assert!(place.contains(part), "{part}: {place}");
        }
    }
    let difftpt: Vec<&str> = text.lines().filter(|line| line.to_lowercase().starts_with("difftpt")).collect();
    assert!(!difftpt[0].contains("23.86") && !difftpt[0].contains("10.91"), "{difftpt:?}");
    assert!(difftpt[1].contains("23.86"), "{difftpt:?}");
}
