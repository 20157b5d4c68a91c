//! `flatclip tune` and `flatclip prompt`, run as a user runs them: on a folder of images, killed, stopped, out of disk.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn flatclip() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatclip"));
    command.env_remove("FLATCLIP_MODEL").env("FLATCLIP_OFFLINE", "true");
    command
}

fn run(args: &[&str]) -> Output {
    flatclip().args(args).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Three classes of five images each, as folders.
fn photos(folder: &TempDir) -> PathBuf {
    let all = folder.path().join("all");
    let made = run(&["pocket", "export", all.to_str().unwrap(), "--count", "160"]);
    assert!(made.status.success(), "{}", error(&made));
    let photos = folder.path().join("photos");
    let mut classes: Vec<PathBuf> = folders(&all);
    classes.sort();
    for class in classes.iter().take(3) {
        let to = photos.join(class.file_name().unwrap());
        std::fs::create_dir_all(&to).unwrap();
        let mut images: Vec<PathBuf> = std::fs::read_dir(class).unwrap().map(|e| e.unwrap().path()).collect();
        images.sort();
        assert!(images.len() >= 5, "{} has {} images", class.display(), images.len());
        for image in &images[..5] {
            std::fs::copy(image, to.join(image.file_name().unwrap())).unwrap();
        }
    }
    photos
}

/// The class folders below a folder of images, however deep.
fn folders(path: &Path) -> Vec<PathBuf> {
    let inside: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    if inside.iter().any(|p| p.is_file() && p.extension().is_some_and(|e| e == "png")) {
        return vec![path.to_path_buf()];
    }
    inside.iter().filter(|p| p.is_dir()).flat_map(|p| folders(p)).collect()
}

fn tune(data: &Path, out: &Path, extra: &[&str]) -> Command {
    let mut command = flatclip();
    command.args(["tune", "--data", &format!("folder:{}", data.display()), "--shots", "5", "--epochs", "40"]);
    command.args(["--set", "train.batch=5", "--checkpoint-every", "4", "--out"]).arg(out).args(extra);
    command
}

/// All files of a run but the wall-clock times and the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .filter(|(name, _)| name != "timing.jsonl" && name != ".lock")
        .collect()
}

#[test]
fn a_folder_of_photos_becomes_a_prompt_that_shows_and_exports() {
    let folder = TempDir::new().unwrap();
    let (photos, out) = (photos(&folder), folder.path().join("run"));
    let made = tune(&photos, &out, &["--json"]).output().unwrap();
    assert!(made.status.success(), "{}", error(&made));
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&summary["classes"], &summary["images"]), (&3.into(), &15.into()));
    assert_eq!(summary["method"], "sapt");
    let shown = run(&["prompt", "show", out.to_str().unwrap(), "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["kind"], &shown["any_classes"]), (&"learned".into(), &true.into()));
    let features = folder.path().join("features.npy");
    let exported = run(&["prompt", "export", out.to_str().unwrap(), "--out", features.to_str().unwrap()]);
    assert!(exported.status.success(), "{}", error(&exported));
    assert!(std::fs::read(&features).unwrap().starts_with(b"\x93NUMPY"));

    let too_many = tune(&photos, &folder.path().join("other"), &["--held-out", "2"]).output().unwrap();
    assert_eq!(too_many.status.code(), Some(2));
    assert!(error(&too_many).contains("--allow-fewer"), "{}", error(&too_many));
}

#[test]
fn twenty_kills_and_resumes_end_with_the_bytes_of_a_straight_run() {
    let folder = TempDir::new().unwrap();
    let photos = photos(&folder);
    let straight = folder.path().join("straight");
    let start = Instant::now();
    let made = tune(&photos, &straight, &[]).output().unwrap();
    assert!(made.status.success(), "{}", error(&made));
    let (mut length, expected) = (start.elapsed(), files(&straight));
    let (mut kills, mut runs, mut saved) = (0, 0, 0);
    while kills < 20 {
        let out = folder.path().join(format!("killed-{runs}"));
        runs += 1;
        loop {
            let mut child =
                tune(&photos, &out, &["--resume"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
            // Moments spread over the length of a run: before the first file, while encoding, between two steps.
            std::thread::sleep(length * (kills * 7 % 20 + 1) / 20);
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success());
                // Other tests ran beside the one that was timed.
                length = length * 4 / 5;
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            saved += u32::from(out.join("checkpoint.safetensors").exists());
            if kills == 20 {
                let last = tune(&photos, &out, &["--resume"]).output().unwrap();
                assert!(last.status.success(), "{}", error(&last));
                break;
            }
        }
        let found = files(&out);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, bytes) in &expected {
            assert!(found[name] == *bytes, "{name} differs after {kills} kills");
        }
    }
    println!("20 kills in {runs} runs, {saved} of them after a checkpoint");
}

#[test]
fn a_full_disk_and_a_signal_lose_no_checkpoint() {
    let folder = TempDir::new().unwrap();
    let photos = photos(&folder);
    let (straight, out) = (folder.path().join("straight"), folder.path().join("run"));
    assert!(tune(&photos, &straight, &[]).output().unwrap().status.success());
    // Stopped by a signal once there is a checkpoint.
    let child = tune(&photos, &out, &[]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let checkpoint = out.join("checkpoint.safetensors");
    for _ in 0..3000 {
        if checkpoint.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let stopped = child.wait_with_output().unwrap();
    if !stopped.status.success() {
        assert_eq!(stopped.status.code(), Some(143), "{}", error(&stopped));
        assert!(error(&stopped).contains("--resume"), "{}", error(&stopped));
        let before = std::fs::read(&checkpoint).unwrap();
        // A limit on file sizes stands in for a full disk: writes fail beyond it.
        let again = tune(&photos, &out, &["--resume"]);
        let line: Vec<String> = std::iter::once(again.get_program())
            .chain(again.get_args())
            .map(|a| format!("'{}'", a.to_string_lossy()))
            .collect();
        let script = format!("trap '' XFSZ; ulimit -f 1; exec {}", line.join(" "));
        let full = Command::new("bash").args(["-c", &script]).env("FLATCLIP_OFFLINE", "true").output().unwrap();
        assert_eq!(full.status.code(), Some(4), "{}", error(&full));
        assert!(std::fs::read(&checkpoint).unwrap() == before, "the earlier checkpoint changed");
    }
    let last = tune(&photos, &out, &["--resume"]).output().unwrap();
    assert!(last.status.success(), "{}", error(&last));
    assert!(files(&out) == files(&straight), "the resumed run differs");
}

#[test]
fn wrong_use_is_told_before_anything_is_loaded() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let fault = |args: &[&str]| {
        let output =
            flatclip().args(["tune", "--data", "folder:nowhere", "--out"]).arg(&out).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        error(&output)
    };
    assert!(fault(&["--method", "soap"]).contains("sapt-dg"));
    assert!(fault(&["--set", "sapt.rhoo=1"]).contains("sapt.rhoo"));
    assert!(fault(&["--set", "train.swa_start=1.5"]).contains("train.swa_start"));
    let text = fault(&["--epochs", "5", "--set", "sapt.start_epoch=5"]);
    assert!(text.contains("sapt.start_epoch") && text.contains("less than train.epochs (5)"), "{text}");
    // A number without a digit before its point gets as far as the data.
    assert!(fault(&["--set", "sapt.lambda=.5"]).contains("nowhere"));
    assert!(fault(&[]).contains("nowhere"));
    assert!(!out.exists());
}

#[test]
fn help_says_what_the_python_sampler_promises() {
    let help =
        String::from_utf8_lossy(&run(&["tune", "--help"]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("CoOp's training shots on its ten datasets") && help.contains("not on ImageNet"), "{help}");
}
