//! `flatclip tune` and `flatclip prompt`, run as a user runs them: on a folder of images, killed, stopped, out of disk.
#![cfg(unix)]

use super::common::{Home, entries, said};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A home with `photos`: three classes of five images each, as folders.
fn home() -> Home {
    let home = Home::new();
    home.works("pocket export all --count 160");
    for class in folders(&home.path("all")).iter().take(3) {
        let to = home.path("photos").join(class.file_name().unwrap());
        std::fs::create_dir_all(&to).unwrap();
        let images = entries(class);
        assert!(images.len() >= 5, "{} has {} images", class.display(), images.len());
        for image in &images[..5] {
            std::fs::copy(image, to.join(image.file_name().unwrap())).unwrap();
        }
    }
    home
}

/// The class folders below a folder of images, however deep.
fn folders(path: &Path) -> Vec<PathBuf> {
    let inside = entries(path);
    if inside.iter().any(|p| p.is_file() && p.extension().is_some_and(|e| e == "png")) {
        return vec![path.to_path_buf()];
    }
    inside.iter().filter(|p| p.is_dir()).flat_map(|p| folders(p)).collect()
}

fn tune(home: &Home, out: &str, extra: &str) -> Command {
    let often = "--set train.batch=5 --checkpoint-every 4";
    home.command(&format!("tune --data folder:photos --shots 5 --epochs 40 {often} --out {out} {extra}"))
}

/// All files of a run but the wall-clock times and the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    entries(folder)
        .into_iter()
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .filter(|(name, _)| name != "timing.jsonl" && name != ".lock")
        .collect()
}

#[test]
fn a_folder_of_photos_becomes_a_prompt_that_shows_and_exports() {
    let home = home();
    let made = tune(&home, "run", "--json").output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&summary["classes"], &summary["images"]), (&3.into(), &15.into()));
    assert_eq!(summary["method"], "sapt");
    let shown = home.json("prompt show run");
    assert_eq!((&shown["kind"], &shown["any_classes"]), (&"learned".into(), &true.into()));
    home.works("prompt export run --out features.npy");
    assert!(std::fs::read(home.path("features.npy")).unwrap().starts_with(b"\x93NUMPY"));

    let too_many = tune(&home, "other", "--held-out 2").output().unwrap();
    assert_eq!(too_many.status.code(), Some(2));
    assert!(said(&too_many).contains("--allow-fewer"), "{}", said(&too_many));
}

#[test]
fn twenty_kills_and_resumes_end_with_the_bytes_of_a_straight_run() {
    let home = home();
    let start = Instant::now();
    let made = tune(&home, "straight", "").output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let (mut length, expected) = (start.elapsed(), files(&home.path("straight")));
    let (mut kills, mut runs, mut saved) = (0, 0, 0);
    while kills < 20 {
        let name = format!("killed-{runs}");
        let out = home.path(&name);
        runs += 1;
        loop {
            let mut resumed = tune(&home, &name, "--resume");
            let mut child = resumed.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
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
                let last = tune(&home, &name, "--resume").output().unwrap();
                assert!(last.status.success(), "{}", said(&last));
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
    let home = home();
    let out = home.path("run");
    assert!(tune(&home, "straight", "").output().unwrap().status.success());
    // Stopped by a signal once there is a checkpoint.
    let child = tune(&home, "run", "").stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
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
        assert_eq!(stopped.status.code(), Some(143), "{}", said(&stopped));
        assert!(said(&stopped).contains("--resume"), "{}", said(&stopped));
        let before = std::fs::read(&checkpoint).unwrap();
        let full = Home::with_small_files(&tune(&home, "run", "--resume"), 1).output().unwrap();
        assert_eq!(full.status.code(), Some(4), "{}", said(&full));
        assert!(std::fs::read(&checkpoint).unwrap() == before, "the earlier checkpoint changed");
    }
    let last = tune(&home, "run", "--resume").output().unwrap();
    assert!(last.status.success(), "{}", said(&last));
    assert!(files(&out) == files(&home.path("straight")), "the resumed run differs");
}

#[test]
fn wrong_use_is_told_before_anything_is_loaded() {
    let home = Home::new();
    let fault = |more: &str| home.refused(&format!("tune --data folder:nowhere --out run {more}"));
    assert!(fault("--method soap").contains("sapt-dg"));
    assert!(fault("--set sapt.rhoo=1").contains("sapt.rhoo"));
    assert!(fault("--set train.swa_start=1.5").contains("train.swa_start"));
    let text = fault("--epochs 5 --set sapt.start_epoch=5");
    assert!(text.contains("sapt.start_epoch") && text.contains("less than train.epochs (5)"), "{text}");
    // A number without a digit before its point gets as far as the data.
    assert!(fault("--set sapt.lambda=.5").contains("nowhere"));
    assert!(fault("").contains("nowhere"));
    assert!(!home.path("run").exists());
}

#[test]
fn help_says_what_the_python_sampler_promises() {
    let help = Home::new().works("tune --help").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("CoOp's training shots on its ten datasets") && help.contains("not on ImageNet"), "{help}");
}
