//! Run directories and prompts of version 0.1.0 (`fixtures/runs/0.1.0`) are still read, and things still have the same names.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn old(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runs/0.1.0").join(name)
}

/// Runs the command in a folder and home of its own.
fn run(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatclip"));
    command.args(arguments).current_dir(home).env("HOME", home);
    for name in ["XDG_CACHE_HOME", "FLATCLIP_CACHE", "FLATCLIP_DATA", "FLATCLIP_MODEL", "RANK", "SLURM_PROCID"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

/// What the command prints.
fn stdout(home: &Path, arguments: &[&str]) -> String {
    let output = run(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Line by line and cell by cell, numbers as numbers: the order of rows and how many digits are printed may change, what they
/// say may not.
fn assert_same_table(found: &str, expected: &str) {
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (found, expected) = (sorted(found), sorted(expected));
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(&expected) {
        let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let (found, expected) = (cells(found), cells(expected));
        assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
        for (found, expected) in found.iter().zip(&expected) {
            match (found.parse::<f64>(), expected.parse::<f64>()) {
                (Ok(a), Ok(b)) => assert!((a - b).abs() <= 1e-9 * b.abs(), "{found} is not {expected}"),
                _ => assert_eq!(found, expected),
            }
        }
    }
}

#[test]
fn report_prints_the_same_numbers() {
    let home = tempfile::tempdir().unwrap();
    let runs = old("eval");
    let table = stdout(home.path(), &["report", runs.to_str().unwrap(), "--paired", "--format", "csv"]);
    assert_same_table(&table, &std::fs::read_to_string(old("report.csv")).unwrap());
}

#[test]
fn classes_and_samples_still_have_the_same_names() {
    let home = tempfile::tempdir().unwrap();
    let eval = "eval --method zero-shot --data pocket:sketch --limit 16 --views 1 --no-cache --out new";
    stdout(home.path(), &eval.split(' ').collect::<Vec<_>>());
    let (new, old) = (json(&home.path().join("new/run.json")), json(&old("eval/zero-shot/run.json")));
    for key in ["class_names", "stream"] {
        assert_eq!(new[key], old[key], "{key}");
    }
}

#[test]
fn an_old_prompt_is_shown_and_refused_by_the_models_of_today() {
    let home = tempfile::tempdir().unwrap();
    let prompt = old("tune/prompt.safetensors");
    let prompt = prompt.to_str().unwrap();
    let shown: Value = serde_json::from_str(&stdout(home.path(), &["prompt", "show", prompt, "--json"])).unwrap();
    let record = json(&old("tune/run.json"));
    assert_eq!(shown["provenance"]["class_hash"], record["class_hash"], "{shown}");
    assert_eq!(shown["provenance"]["model_hash"], record["model_hash"], "{shown}");
    let eval = "eval --method zero-shot --data pocket:photo --limit 8 --views 1 --no-cache --out new --prompt";
    let refused = run(home.path(), &eval.split(' ').chain([prompt]).collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("was learned with the weights 07653d4d31ea"), "{said}");
}
