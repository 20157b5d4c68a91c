//! The same damaged files read by others: safetensors (Python), `torch.load(weights_only=True)`, Pillow; and Lightning's resume
//! after hard kills. Needs a Python with these (`FLATCLIP_PEERS` names its interpreter); without one the tests are left out.

use super::mutate::mutant;
use super::readers::{Reader, corpus, reader};
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use flatclip::rng::Stream;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    test("A1", "damaged and crafted safetensors: ours, and safetensors in Python", |trial| {
        compare(trial, "safetensors", "safetensors", Some("safetensors-attacks"), 1500)
    }),
    test("A2", "damaged torch files and pickle attacks: ours, and torch.load(weights_only=True)", |trial| {
        compare(trial, "torch", "torch", Some("pickle-attacks"), 1500)
    }),
    test("A3", "damaged JPEG: ours, and Pillow", |trial| compare(trial, "pillow", "jpeg", None, 3000)),
    test("A4", "damaged PNG: ours, and Pillow", |trial| compare(trial, "pillow", "png", None, 1500)),
    test("A5", "damaged GIF: ours, and Pillow", |trial| compare(trial, "pillow", "gif", None, 1500)),
    test("A6", "a prompt learned with Lightning, kill -9 and resume (ours: F1)", lightning),
];

const fn test(name: &'static str, what: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    let rule = "ours neither panics nor hangs; the others' counts stand beside";
    Test { name, suite: Suite::Anchors, what, rule, patience: 600, run }
}

/// The interpreter with the others, if there is one.
fn python(probe: &str) -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("FLATCLIP_PEERS")?);
    let probed = Command::new(&python).args(["-c", &format!("import {probe}")]).stderr(Stdio::null()).status();
    probed.is_ok_and(|status| status.success()).then_some(python)
}

fn compare(trial: &mut Trial, what: &str, name: &str, attacks: Option<&str>, count: usize) -> Result<()> {
    let reader = reader(name)?;
    let files = trial.folder.join("files");
    std::fs::create_dir(&files)?;
    let seeds = corpus(name)?;
    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for number in 0..trial.count(count) {
        let (file, bytes) = &seeds[number % seeds.len()];
        all.insert(format!("{number:06}-{file}"), mutant(bytes, file, number as u64));
    }
    for (file, bytes) in attacks.map(corpus).transpose()?.into_iter().flatten() {
        all.insert(format!("attack-{file}"), bytes);
    }
    for (name, bytes) in &all {
        std::fs::write(files.join(name), bytes)?;
    }
    let theirs = match python(if what == "pillow" { "PIL" } else { what }) {
        Some(python) => Some(fates_of_others(&python, what, &files)?),
        None => {
            trial.note("others", "not installed here");
            None
        }
    };
    for (name, bytes) in &all {
        let mut accepted = false;
        trial.case(name, || {
            accepted = ours(reader, &files, name, bytes)?;
            Ok(())
        });
        trial.add(if accepted { "ours accepted" } else { "ours refused" }, 1);
        if let Some(theirs) = &theirs {
            let fate = theirs.get(name).map_or("crashed", String::as_str);
            trial.add(&format!("theirs {fate}"), 1);
            if accepted != (fate == "accepted") {
                trial.add(if accepted { "only ours accepted" } else { "only theirs accepted" }, 1);
            }
        }
    }
    Ok(())
}

fn ours(reader: &Reader, folder: &Path, name: &str, bytes: &[u8]) -> Result<bool> {
    Ok(reader.fate(folder, name, bytes, None)? != super::readers::Fate::Refused)
}

/// Reads all files; after a crash it starts again behind the file that it died of.
fn fates_of_others(python: &Path, what: &str, files: &Path) -> Result<BTreeMap<String, String>> {
    let script = crate::root()?.join("xtask/anchors/anchors.py");
    let output = Command::new(python).arg(&script).arg(what).arg(files).stderr(Stdio::null()).output()?;
    let mut fates = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let value: Value = serde_json::from_str(line).context("a line of anchors.py")?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        fates.insert(text("case"), text("fate"));
    }
    ensure!(!fates.is_empty(), "anchors.py {what} said nothing");
    Ok(fates)
}

/// A6: whether its result after kills is that of a run that was left alone. A difference is theirs, not ours: it is counted.
fn lightning(trial: &mut Trial) -> Result<()> {
    let Some(python) = python("lightning") else {
        trial.note("others", "not installed here");
        trial.case("left out", || Ok(()));
        return Ok(());
    };
    let script = crate::root()?.join("xtask/anchors/anchors.py");
    let digest = |folder: &Path| -> Result<String> {
        let output = Command::new(&python).arg(&script).arg("lightning").arg(folder).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last: Value = serde_json::from_str(text.lines().last().unwrap_or("{}"))?;
        last["digest"].as_str().map(str::to_owned).context("the run did not end")
    };
    let (one, two) = (digest(&trial.folder.join("one"))?, digest(&trial.folder.join("two"))?);
    ensure!(one == two, "two runs that were left alone differ already");
    let mut draw = Stream::new(1, &["A6"]);
    for number in 0..trial.count(10) {
        let folder = trial.folder.join(format!("killed-{number}"));
        let mut found = String::new();
        trial.case(&format!("run {number}"), || {
            let mut child = Command::new(&python)
                .arg(&script)
                .arg("lightning")
                .arg(&folder)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            // Killed once, at some moment after its first checkpoint.
            while !folder.join("last.ckpt").exists() && child.try_wait()?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_secs_f64(draw.unit()));
            let _ = child.kill();
            child.wait()?;
            found = digest(&folder).unwrap_or_else(|_| "did not resume".to_owned());
            Ok(())
        });
        let fate = if found == one { "theirs the same bytes" } else { "theirs other bytes" };
        trial.add(if found == "did not resume" { "theirs did not resume" } else { fate }, 1);
    }
    Ok(())
}
