//! State that no longer fits, images that are not there, disks that were full: counted, tried again, or refused with what
//! changed.

use super::common::{Home, entries, read_json, said};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// A folder `photos` with some images, one folder for each class, and their paths.
fn photos() -> (Home, Vec<PathBuf>) {
    let home = Home::with_photos(8);
    let classes = entries(&home.path("photos")).into_iter().filter(|path| path.is_dir());
    let found: Vec<PathBuf> = classes.flat_map(|class| entries(&class)).collect();
    assert!(found.len() >= 8);
    (home, found)
}

/// What a command says that must end with exit code 2.
fn assert_refused(output: &Output, words: &str) {
    assert!(output.status.code() == Some(2) && said(output).contains(words), "{}", said(output));
}

/// A table of the first `there` images and of `absent` that are nowhere.
fn table(home: &Home, images: &[PathBuf], absent: usize) {
    let class = |path: &Path| path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let row = |path: &PathBuf| format!("{},{}\n", path.display(), class(path));
    let mut text = "path,label\n".to_owned() + &images.iter().map(row).collect::<String>();
    for number in 0..absent {
        text += &format!("photos/absent-{number}.png,{}\n", class(&images[0]));
    }
    std::fs::write(home.path("list.csv"), text).unwrap();
}

fn summary(home: &Home, run: &str) -> Value {
    read_json(home.path(run).join("summary.json"))
}

const EVAL: &str = "eval --method zero-shot --data csv:list.csv --out";

#[test]
fn absent_images_of_a_list_are_failures_and_are_tried_again() {
    let (home, images) = photos();
    table(&home, &images[..4], 3);
    let ended = home.run(&format!("{EVAL} run"));
    assert_eq!(ended.status.code(), Some(1), "counted failures: {}", said(&ended));
    let found = summary(&home, "run");
    assert_eq!((found["samples"].as_u64(), found["failed"].as_u64()), (Some(7), Some(3)));
    let lines = home.text("run/predictions.jsonl");
    assert_eq!((lines.lines().count(), lines.matches("\"error\"").count()), (7, 3));
    let report = home.run("report run");
    assert_eq!(report.status.code(), Some(1), "counted failures: {}", said(&report));
    assert!(String::from_utf8_lossy(&report.stdout).contains("3 bad"));
    // Tried again, to the same failures and the same bytes.
    let before = std::fs::read(home.path("run/predictions.jsonl")).unwrap();
    home.run(&format!("{EVAL} run --resume"));
    assert!(std::fs::read(home.path("run/predictions.jsonl")).unwrap() == before);
    // One of them comes back.
    std::fs::copy(&images[0], home.path("photos/absent-1.png")).unwrap();
    home.run(&format!("{EVAL} run --resume"));
    assert_eq!(summary(&home, "run")["failed"].as_u64(), Some(2));
    home.run(&format!("{EVAL} anew"));
    let bytes = |run: &str| std::fs::read(home.path(run).join("predictions.jsonl")).unwrap();
    assert!(bytes("run") == bytes("anew") && summary(&home, "run") == summary(&home, "anew"));
}

#[test]
fn a_list_of_nothing_but_absent_images_is_refused() {
    let (home, images) = photos();
    table(&home, &[], 0);
    let class = images[0].parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    std::fs::write(home.path("list.csv"), format!("path,label\nx.png,{class}\ny.png,{class}\n")).unwrap();
    home.refused_with(&format!("{EVAL} run"), "2 of 2 listed images are missing");
}

#[test]
fn a_run_with_changed_labels_records_or_summary_is_not_used() {
    let (home, images) = photos();
    table(&home, &images[..6], 0);
    home.works(&format!("{EVAL} run --limit 6"));
    let log = home.path("run/predictions.jsonl");
    let whole = std::fs::read_to_string(&log).unwrap();
    // A record less, a digit changed, another summary.
    let shorter: String = whole.lines().skip(1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&log, shorter).unwrap();
    home.refused_with("report run", "predictions.jsonl");
    std::fs::write(&log, whole.replacen("\"confidence\":0.", "\"confidence\":0.1", 1)).unwrap();
    home.refused_with("report run", "was changed");
    std::fs::write(&log, &whole).unwrap();
    home.works("report run");
    // Runs of earlier versions have no digests: the records are counted.
    std::fs::remove_file(home.path("run/SHA256SUMS")).unwrap();
    home.works("report run");
    std::fs::write(&log, whole.lines().take(5).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    home.refused_with("report run", "has 5 records");
    std::fs::write(&log, &whole).unwrap();
    // Labels that were edited since.
    let list = home.text("list.csv");
    let mut rows: Vec<Vec<&str>> = list.lines().map(|line| line.split(',').collect()).collect();
    let last = rows.len() - 1;
    let (first_label, last_label) = (rows[1][1], rows[last][1]);
    (rows[1][1], rows[last][1]) = (last_label, first_label);
    let edited: String = rows.iter().map(|row| row.join(",") + "\n").collect();
    assert_ne!(list, edited);
    std::fs::write(home.path("list.csv"), edited).unwrap();
    home.refused_with(&format!("{EVAL} run --limit 6 --resume"), "stream was");
}

#[test]
fn an_evaluation_does_not_go_on_over_images_that_changed_under_its_records() {
    let (home, images) = photos();
    table(&home, &images[..6], 0);
    for cache in ["--no-cache", ""] {
        let first = format!("{EVAL} run{cache} {cache}");
        let again = format!("{first} --resume");
        home.works(&first);
        home.works(&again);
        let whole = std::fs::read(&images[2]).unwrap();
        std::fs::write(&images[2], std::fs::read(&images[3]).unwrap()).unwrap();
        home.refused_with(&again, "has changed since it was answered");
        std::fs::remove_file(&images[2]).unwrap();
        home.refused_with(&again, "cannot be read any more");
        // The same bytes again, whatever their time and place on the disk.
        std::fs::write(&images[2], whole).unwrap();
        home.works(&again);
    }
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let (home, decoded_images) = photos();
    std::fs::write(home.path("names.txt"), "cat\n\u{1b}[31mdog\u{1b}]0;title\u{7}\n").unwrap();
    let one = decoded_images[0].display().to_string();
    for images in [&one[..], "photos"] {
        let output = home.run(&format!("predict {images} --classes-file names.txt"));
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.iter().any(|byte| matches!(byte, 0x1b | 0x07)), "{}", String::from_utf8_lossy(text));
        }
        assert!(String::from_utf8_lossy(&output.stdout).contains("\\u{1b}[31mdog"), "{output:?}");
    }
}

#[test]
fn tuning_does_not_go_on_with_other_images_or_instructions() {
    let (home, images) = photos();
    let tune = |more: &str| {
        let start = "tune --method coop --data folder:photos --shots 1 --allow-fewer";
        let rest = "--precision f32 --epochs 2 --set coop.words= --set coop.n_ctx=2 --out tuned";
        home.run(&format!("{start} {rest} {more}"))
    };
    let first = tune("");
    assert!(first.status.success(), "{}", said(&first));
    let again = tune("--resume");
    assert!(again.status.success(), "{}", said(&again));
    assert_refused(&tune("--resume --isa plain"), "isa");
    // Every class has one image: each is among the shots.
    let (a, b) = (std::fs::read(&images[0]).unwrap(), std::fs::read(&images[1]).unwrap());
    std::fs::write(&images[0], &b).unwrap();
    std::fs::write(&images[1], &a).unwrap();
    assert_refused(&tune("--resume"), "training images");
    // The result itself carries a digest.
    std::fs::write(&images[0], &a).unwrap();
    std::fs::write(&images[1], &b).unwrap();
    let prompt = home.path("tuned/prompt.safetensors");
    let mut bytes = std::fs::read(&prompt).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    std::fs::write(&prompt, &bytes).unwrap();
    let predict = "predict photos --classes cat,dog --prompt tuned";
    home.refused_with(predict, "checksum");
    assert_refused(&tune("--resume"), "was changed");
}

#[test]
fn a_cache_that_cannot_be_written_costs_a_warning() {
    let (home, images) = photos();
    table(&home, &images[..4], 0);
    home.works(&format!("{EVAL} plain --no-cache"));
    // The cache's segment cannot be written.
    let eval = home.command("eval --method stss --views 32 --data csv:list.csv --out full");
    let output = Home::with_small_files(&eval, 8).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("the feature cache cannot be"), "{}", said(&output));
    assert_eq!(summary(&home, "full")["failed"].as_u64(), Some(0));
    std::fs::write(home.path("blocked"), "a file where a folder should be").unwrap();
    let mut command = home.command(&format!("{EVAL} blocked-cache"));
    let output = command.env("FLATCLIP_CACHE", home.path("blocked")).output().unwrap();
    assert!(output.status.success() && said(&output).contains("the feature cache cannot be"), "{}", said(&output));
}
