//! Disks that are full, and memory that is short.

use super::folders::{contents, differences};
use super::program::{Program, SMALL_TUNE, finish};
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Command;

pub(super) const TESTS: &[Test] = &[
    test(
        "F5",
        "a full disk (a small file system) below tune, eval, the feature cache, reports",
        "an error or a warning; what was there stays whole; with space again the same bytes",
        full_disk,
    ),
    test(
        "F17",
        "memory limits above and below the estimate",
        "above it works, below it refuses at the start with the numbers; nothing is killed",
        memory,
    ),
];

const fn test(name: &'static str, what: &'static str, rule: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    Test { name, suite: Suite::Disk, what, rule, patience: 120, run }
}

const EVAL: &[&str] =
    &["eval", "--method", "stss", "--data", "pocket:sketch", "--limit", "30", "--views", "16", "--resume", "--quiet"];
/// Files may not grow beyond so many kilobytes: writes fail as on a full disk.
fn files_of(count: usize) -> String {
    format!("trap '' XFSZ; ulimit -f {count}")
}

/// F5.
fn full_disk(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let tune = [SMALL_TUNE, &["--epochs", "4", "--checkpoint-every", "1"]].concat();
    for (name, arguments) in [("tune", &tune[..]), ("eval", EVAL)] {
        let straight = format!("straight-{name}");
        program.works(&[arguments, &["--out", &straight]].concat())?;
        let expected = contents(&program.folder.join(&straight))?;
        for limit in [1, 2, 4, 8, 16, 64].into_iter().take(trial.count(60)) {
            let out = format!("{name}-{limit}");
            let _ = std::fs::remove_dir_all(program.folder.join("cache"));
            trial.case(&format!("{name}, files of at most {limit} kB"), || {
                let ended = finish(program.limited(&files_of(limit), &[arguments, &["--out", &out]].concat()))?;
                ended.check_sane()?;
                ensure!(ended.status.success() || !ended.stderr.is_empty(), "failed without a word");
                program.works(&[arguments, &["--out", &out]].concat())?;
                let different = differences(&expected, &contents(&program.folder.join(&out))?);
                ensure!(different.is_empty(), "with space again: {}", different.join(", "));
                Ok(())
            });
        }
    }
    match Mount::new(&program.folder.join("small"), "256k") {
        Ok(mount) => small_cache(trial, &program, &mount),
        Err(reason) => {
            trial.note("skipped: small file system,", format!("not mounted here ({reason:#})"));
            Ok(())
        }
    }
}

/// A cache folder that fills up costs a warning, never an answer.
fn small_cache(trial: &mut Trial, program: &Program, mount: &Mount) -> Result<()> {
    program.works(&[EVAL, &["--no-cache", "--out", "no-cache"]].concat())?;
    let expected = contents(&program.folder.join("no-cache"))?;
    trial.case("the cache's file system is full", || {
        let mut command = program.command(&[EVAL, &["--out", "full-cache"]].concat());
        command.env("FLATCLIP_CACHE", &mount.0);
        let ended = finish(command)?;
        ended.check_sane()?;
        ensure!(ended.status.success(), "exit {}: {}", ended.status, ended.stderr.trim());
        let different = differences(&expected, &contents(&program.folder.join("full-cache"))?);
        ensure!(different.is_empty(), "{}", different.join(", "));
        Ok(())
    });
    trial.case("the run's own file system is full", || {
        let out = mount.0.join("run");
        for entry in std::fs::read_dir(&mount.0)?.flatten() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
        std::fs::write(mount.0.join("filler"), vec![0; 240 << 10])?;
        let place = out.display().to_string();
        let arguments = [EVAL, &["--no-cache", "--out", &place]].concat();
        let ended = finish(program.command(&arguments))?;
        ended.check_sane()?;
        // 4: the disk is full.
        ensure!(ended.status.code() == Some(4), "exit {}: {}", ended.status, ended.stderr.trim());
        std::fs::remove_file(mount.0.join("filler"))?;
        program.works(&arguments)?;
        let different = differences(&expected, &contents(&out)?);
        ensure!(different.is_empty(), "with space again: {}", different.join(", "));
        Ok(())
    });
    Ok(())
}

/// A small file system in memory, gone when this is dropped. Needs rights that not every machine gives.
struct Mount(std::path::PathBuf);

impl Mount {
    fn new(folder: &Path, size: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let made =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr).trim());
        Ok(Self(folder.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// F17.
fn memory(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let image = super::readers::corpus("png")?.remove(0).1;
    std::fs::write(program.folder.join("p.png"), image)?;
    for model in ["pocket", "random:ViT-B-32"] {
        let arguments =
            ["predict", "p.png", "--classes", "cat,dog", "--model", model, "--precision", "f32", "--threads", "2"];
        let refused = finish(program.limited("ulimit -v 120000", &arguments))?;
        // A model that fits even there tells no estimate.
        let Some(estimate) = told_estimate(&refused.stderr) else {
            trial.case(&format!("{model} in 120 MB"), || {
                refused.check_sane()?;
                ensure!(refused.status.success(), "neither works nor refuses with numbers: {}", refused.stderr.trim());
                Ok(())
            });
            continue;
        };
        trial.most(&format!("{model} estimate MB"), estimate >> 20);
        for part in [8u64, 5, 3] {
            trial.case(&format!("{model} below the estimate, {part}/10"), || {
                let limit = (estimate * part / 10).max(100 << 20) >> 10;
                let ended = finish(program.limited(&format!("ulimit -v {limit}"), &arguments))?;
                ended.check_sane()?;
                ensure!(ended.status.code() == Some(2), "exit {}: {}", ended.status, ended.stderr.trim());
                ensure!(ended.stderr.contains("MB"), "no numbers: {}", ended.stderr.trim());
                Ok(())
            });
        }
        trial.case(&format!("{model} above the estimate, 12/10"), || {
            // The program itself and its threads' arenas are mapped before anything is loaded.
            let limit = (estimate * 12 / 10 + (256 << 20)) >> 10;
            let ended = finish(program.limited(&format!("ulimit -v {limit}"), &arguments))?;
            ended.check_sane()?;
            ensure!(ended.status.success(), "exit {}: {}", ended.status, ended.stderr.trim());
            Ok(())
        });
    }
    Ok(())
}

/// The estimate that a refusal tells: `N is more than the limit`.
fn told_estimate(text: &str) -> Option<u64> {
    let (before, _) = text.split_once(" is more than the limit")?;
    before.rsplit(' ').next()?.parse().context("a number").ok()
}
