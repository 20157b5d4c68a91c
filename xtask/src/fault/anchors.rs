//! The same damaged files read by others: safetensors (Python), `torch.load(weights_only=True)`, Pillow; and Lightning's resume
//! after hard kills. Needs a Python with these (`FLATCLIP_PEERS` names its interpreter); without one A6 is
//! skipped, and the others try our readers alone.

use super::mutate::mutant;
use super::readers::{Reader, corpus, reader};
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use flatclip::image::DecodeOptions;
use flatclip::rng::Stream;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    test("A1", "damaged and crafted safetensors: ours, and safetensors in Python", |trial| {
        compare(trial, "safetensors", "safetensors", Some("safetensors-attacks"), 1000)
    }),
    test("A2", "damaged torch files and pickle attacks: ours, and torch.load(weights_only=True)", |trial| {
        compare(trial, "torch", "torch", Some("pickle-attacks"), 500)
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
pub(super) fn python(probe: &str) -> Option<PathBuf> {
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
    let python = python(if what == "pillow" { "PIL" } else { what });
    if python.is_none() {
        trial.note("skipped: the other reader,", "not installed here");
    }
    let mut theirs = python.map(|python| Others { python, what, files: &files, running: None, behind: String::new() });
    for (name, bytes) in &all {
        let mut accepted = false;
        trial.case(name, || {
            accepted = ours(reader, &files, name, bytes)?;
            Ok(())
        });
        trial.add(if accepted { "ours accepted" } else { "ours refused" }, 1);
        if let Some(theirs) = &mut theirs {
            let (fate, pixels) = theirs.fate(name)?;
            trial.add(&format!("theirs {fate}"), 1);
            match (accepted, fate == "accepted") {
                (true, true) if what == "pillow" => {
                    let image = flatclip::image::decode(bytes, &DecodeOptions::pillow())?;
                    let same = crc32fast::hash(&image.rgb) == pixels;
                    trial.add(if same { "both accepted, the same pixels" } else { "both accepted, other pixels" }, 1);
                }
                (true, false) => trial.add("only ours accepted", 1),
                (false, true) => trial.add("only theirs accepted", 1),
                _ => {}
            }
        }
    }
    Ok(())
}

fn ours(reader: &Reader, folder: &Path, name: &str, bytes: &[u8]) -> Result<bool> {
    Ok(reader.fate(folder, name, bytes, None)? != super::readers::Fate::Refused)
}

/// Another reader in a process of its own, which goes through the files in the order of their names.
struct Others<'a> {
    python: PathBuf,
    what: &'a str,
    files: &'a Path,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
    /// The file that the last process died of.
    behind: String,
}

impl Others<'_> {
    fn start(&self) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
        let script = crate::root()?.join("xtask/anchors/anchors.py");
        let mut command = Command::new(&self.python);
        command.arg(&script).arg(self.what).arg(self.files).arg(&self.behind);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        ensure!(first.contains("started"), "anchors.py {} does not start", self.what);
        Ok((child, lines))
    }

    /// What becomes of the next file, and a checksum of its pixels. A process that dies of it is started again behind it.
    fn fate(&mut self, name: &str) -> Result<(String, u32)> {
        let (mut child, mut lines) = self.running.take().map_or_else(|| self.start(), Ok)?;
        if let Some(Ok(line)) = lines.next() {
            let value: Value = serde_json::from_str(&line).context("a line of anchors.py")?;
            ensure!(value["case"] == name, "anchors.py answers for {} instead of {name}", value["case"]);
            self.running = Some((child, lines));
            let pixels = value["pixels"].as_u64().unwrap_or_default() as u32;
            return Ok((value["fate"].as_str().unwrap_or_default().to_owned(), pixels));
        }
        name.clone_into(&mut self.behind);
        let hung = child.wait()?.signal() == Some(Signal::SIGALRM as i32);
        Ok((if hung { "hung" } else { "crashed" }.to_owned(), 0))
    }
}

/// A6: whether its result after kills is that of a run that was left alone. A difference is theirs, not ours: it is counted.
fn lightning(trial: &mut Trial) -> Result<()> {
    let Some(python) = python("lightning") else {
        trial.skip("no Python with Lightning here");
        return Ok(());
    };
    let script = crate::root()?.join("xtask/anchors/anchors.py");
    let digest = |folder: &Path| -> Result<String> {
        let output = Command::new(&python).arg(&script).arg("lightning").arg(folder).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last: Value = serde_json::from_str(text.lines().last().unwrap_or("{}"))?;
        last["digest"].as_str().map(str::to_owned).context("the run did not end")
    };
    let (mut one, folder) = (String::new(), trial.folder.clone());
    for name in ["one", "two"] {
        trial.case(&format!("left alone, {name}"), || {
            let found = digest(&folder.join(name))?;
            ensure!(one.is_empty() || one == found, "two runs that were left alone differ already");
            one = found;
            Ok(())
        });
    }
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
