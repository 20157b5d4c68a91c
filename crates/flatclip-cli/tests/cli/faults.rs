//! State that no longer fits, images that are not there, disks that were full: counted, tried again, or refused with what
//! changed.

use super::common::{self, run, said, works};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn refused(folder: &Path, arguments: &[&str], words: &str) {
    let said = common::refused(folder, arguments);
    assert!(said.contains(words), "expected {words:?} in {said}");
}

/// A folder `photos` with some images, one folder for each class, and their paths.
fn photos() -> (TempDir, Vec<PathBuf>) {
    let home = TempDir::new().unwrap();
    works(home.path(), &["pocket", "export", "photos", "--domain", "photo", "--count", "8"]);
    let mut found = Vec::new();
    for class in std::fs::read_dir(home.path().join("photos")).unwrap().map(|entry| entry.unwrap().path()) {
        if class.is_dir() {
            found.extend(std::fs::read_dir(class).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    assert!(found.len() >= 8);
    (home, found)
}

/// A table of the first `there` images and of `absent` that are nowhere.
fn table(home: &Path, images: &[PathBuf], absent: usize) {
    let class = |path: &Path| path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let row = |path: &PathBuf| format!("{},{}\n", path.display(), class(path));
    let mut text = "path,label\n".to_owned() + &images.iter().map(row).collect::<String>();
    for number in 0..absent {
        text += &format!("photos/absent-{number}.png,{}\n", class(&images[0]));
    }
    std::fs::write(home.join("list.csv"), text).unwrap();
}

fn summary(home: &Path, run: &str) -> Value {
    serde_json::from_slice(&std::fs::read(home.join(run).join("summary.json")).unwrap()).unwrap()
}

const EVAL: [&str; 6] = ["eval", "--method", "zero-shot", "--data", "csv:list.csv", "--out"];

#[test]
fn absent_images_of_a_list_are_failures_and_are_tried_again() {
    let (home, images) = photos();
    let home = home.path();
    table(home, &images[..4], 3);
    let ended = run(home, &[&EVAL[..], &["run"]].concat());
    assert_eq!(ended.status.code(), Some(1), "counted failures: {}", said(&ended));
    let found = summary(home, "run");
    assert_eq!((found["samples"].as_u64(), found["failed"].as_u64()), (Some(7), Some(3)));
    let lines = std::fs::read_to_string(home.join("run/predictions.jsonl")).unwrap();
    assert_eq!((lines.lines().count(), lines.matches("\"error\"").count()), (7, 3));
    let report = run(home, &["report", "run"]);
    assert_eq!(report.status.code(), Some(1), "counted failures: {}", said(&report));
    assert!(String::from_utf8_lossy(&report.stdout).contains("3 bad"));
    // Tried again, to the same failures and the same bytes.
    let before = std::fs::read(home.join("run/predictions.jsonl")).unwrap();
    run(home, &[&EVAL[..], &["run", "--resume"]].concat());
    assert!(std::fs::read(home.join("run/predictions.jsonl")).unwrap() == before);
    // One of them comes back.
    std::fs::copy(&images[0], home.join("photos/absent-1.png")).unwrap();
    run(home, &[&EVAL[..], &["run", "--resume"]].concat());
    assert_eq!(summary(home, "run")["failed"].as_u64(), Some(2));
    run(home, &[&EVAL[..], &["anew"]].concat());
    let bytes = |run: &str| std::fs::read(home.join(run).join("predictions.jsonl")).unwrap();
    assert!(bytes("run") == bytes("anew") && summary(home, "run") == summary(home, "anew"));
}

#[test]
fn a_list_of_nothing_but_absent_images_is_refused() {
    let (home, images) = photos();
    table(home.path(), &[], 0);
    let class = images[0].parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    std::fs::write(home.path().join("list.csv"), format!("path,label\nx.png,{class}\ny.png,{class}\n")).unwrap();
    refused(home.path(), &[&EVAL[..], &["run"]].concat(), "2 of 2 listed images are missing");
}

#[test]
fn a_run_with_changed_labels_records_or_summary_is_not_used() {
    let (home, images) = photos();
    let home = home.path();
    table(home, &images[..6], 0);
    works(home, &[&EVAL[..], &["run", "--limit", "6"]].concat());
    let log = home.join("run/predictions.jsonl");
    let whole = std::fs::read_to_string(&log).unwrap();
    // A record less, a digit changed, another summary.
    let shorter: String = whole.lines().skip(1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&log, shorter).unwrap();
    refused(home, &["report", "run"], "predictions.jsonl");
    std::fs::write(&log, whole.replacen("\"confidence\":0.", "\"confidence\":0.1", 1)).unwrap();
    refused(home, &["report", "run"], "was changed");
    std::fs::write(&log, &whole).unwrap();
    works(home, &["report", "run"]);
    // Runs of earlier versions have no digests: the records are counted.
    std::fs::remove_file(home.join("run/SHA256SUMS")).unwrap();
    works(home, &["report", "run"]);
    std::fs::write(&log, whole.lines().take(5).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    refused(home, &["report", "run"], "has 5 records");
    std::fs::write(&log, &whole).unwrap();
    // Labels that were edited since.
    let list = std::fs::read_to_string(home.join("list.csv")).unwrap();
    let mut rows: Vec<Vec<&str>> = list.lines().map(|line| line.split(',').collect()).collect();
    let last = rows.len() - 1;
    let (first_label, last_label) = (rows[1][1], rows[last][1]);
    (rows[1][1], rows[last][1]) = (last_label, first_label);
    let edited: String = rows.iter().map(|row| row.join(",") + "\n").collect();
    assert_ne!(list, edited);
    std::fs::write(home.join("list.csv"), edited).unwrap();
    refused(home, &[&EVAL[..], &["run", "--limit", "6", "--resume"]].concat(), "stream was");
}

#[test]
fn an_evaluation_does_not_go_on_over_images_that_changed_under_its_records() {
    let (home, images) = photos();
    let home = home.path();
    table(home, &images[..6], 0);
    for cache in [&["--no-cache"][..], &[]] {
        let name = format!("run-{}", cache.len());
        let first = [&EVAL[..], &[&name], cache].concat();
        let again = [&first[..], &["--resume"]].concat();
        works(home, &first);
        works(home, &again);
        let whole = std::fs::read(&images[2]).unwrap();
        std::fs::write(&images[2], std::fs::read(&images[3]).unwrap()).unwrap();
        refused(home, &again, "has changed since it was answered");
        std::fs::remove_file(&images[2]).unwrap();
        refused(home, &again, "cannot be read any more");
        // The same bytes again, whatever their time and place on the disk.
        std::fs::write(&images[2], whole).unwrap();
        works(home, &again);
    }
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let (home, decoded_images) = photos();
    let home = home.path();
    std::fs::write(home.join("names.txt"), "cat\n\u{1b}[31mdog\u{1b}]0;title\u{7}\n").unwrap();
    let one = decoded_images[0].display().to_string();
    for images in [&one[..], "photos"] {
        let output = run(home, &["predict", images, "--classes-file", "names.txt"]);
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.iter().any(|byte| matches!(byte, 0x1b | 0x07)), "{}", String::from_utf8_lossy(text));
        }
        assert!(String::from_utf8_lossy(&output.stdout).contains("\\u{1b}[31mdog"), "{output:?}");
    }
}

#[test]
fn tuning_does_not_go_on_with_other_images_or_instructions() {
    let (home, images) = photos();
    let home = home.path();
    let tune = |more: &[&str]| {
        let start = ["tune", "--method", "coop", "--data", "folder:photos", "--shots", "1", "--allow-fewer"];
        let rest =
            ["--precision", "f32", "--epochs", "2", "--set", "coop.words=", "--set", "coop.n_ctx=2", "--out", "tuned"];
        run(home, &[&start[..], &rest, more].concat())
    };
    let first = tune(&[]);
    assert!(first.status.success(), "{}", said(&first));
    let again = tune(&["--resume"]);
    assert!(again.status.success(), "{}", said(&again));
    let other = tune(&["--resume", "--isa", "plain"]);
    assert!(other.status.code() == Some(2) && said(&other).contains("isa"), "{}", said(&other));
    // Every class has one image: each is among the shots.
    let (a, b) = (std::fs::read(&images[0]).unwrap(), std::fs::read(&images[1]).unwrap());
    std::fs::write(&images[0], &b).unwrap();
    std::fs::write(&images[1], &a).unwrap();
    let changed = tune(&["--resume"]);
    assert!(changed.status.code() == Some(2) && said(&changed).contains("training images"), "{}", said(&changed));
    // The result itself carries a digest.
    std::fs::write(&images[0], &a).unwrap();
    std::fs::write(&images[1], &b).unwrap();
    let prompt = home.join("tuned/prompt.safetensors");
    let mut bytes = std::fs::read(&prompt).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    std::fs::write(&prompt, &bytes).unwrap();
    let predict = ["predict", "photos", "--classes", "cat,dog", "--prompt", "tuned"];
    refused(home, &predict, "checksum");
    let resumed = tune(&["--resume"]);
    assert!(resumed.status.code() == Some(2) && said(&resumed).contains("was changed"), "{}", said(&resumed));
}

#[test]
fn a_cache_that_cannot_be_written_costs_a_warning() {
    let (home, images) = photos();
    let home = home.path();
    table(home, &images[..4], 0);
    works(home, &[&EVAL[..], &["plain", "--no-cache"]].concat());
    // A limit on file sizes stands in for a full disk: the cache's segment cannot be written.
    let binary = env!("CARGO_BIN_EXE_flatclip");
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{binary}' eval --method stss --views 32 --data csv:list.csv --out full"
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(home).env("HOME", home).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("the feature cache cannot be"), "{}", said(&output));
    assert_eq!(summary(home, "full")["failed"].as_u64(), Some(0));
    std::fs::write(home.join("blocked"), "a file where a folder should be").unwrap();
    let mut command = Command::new(binary);
    let output = command.args(EVAL).arg("blocked-cache").current_dir(home).env("HOME", home);
    let output = output.env("FLATCLIP_CACHE", home.join("blocked")).output().unwrap();
    assert!(output.status.success() && said(&output).contains("the feature cache cannot be"), "{}", said(&output));
}
