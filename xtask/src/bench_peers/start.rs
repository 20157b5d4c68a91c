//! What a new user waits for: the build of the command line, and a program's start to its first answer.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Starts that count; the first fills the page cache.
const STARTS: usize = 3;

/// A table of both.
pub(super) fn rows(root: &Path, binary: &Path, folder: &Path) -> Result<String> {
    let mut table = "\n| start | s |\n|---|---|\n".to_owned();
    let checkpoint = folder.join("vit-b16.safetensors");
    run(Command::new(binary).args(["convert", "random:ViT-B-16", "--quiet"]).arg(&checkpoint))?;
    let mut seconds = Vec::new();
    for _ in 0..=STARTS {
        let mut start = Command::new(binary);
        start.args(["predict", "--quiet", "--classes", "cat,dog,fish", "--model"]).arg(&checkpoint);
        seconds.push(timed(start.arg(folder.join("photo.jpg")))?);
    }
    let best = seconds[1..].iter().copied().fold(f64::INFINITY, f64::min);
    table += &format!(
        "| ViT-B/16 checkpoint of 600 MB in f32, from the start of the program to its first answer | {:.2}, then {best:.2} |\n",
        seconds[0]
    );
    let target = tempfile::tempdir()?;
    let mut build = crate::cargo();
    build.args(["build", "--release", "--quiet", "-p", "flatclip-cli", "--target-dir"]).arg(target.path());
    let built = timed(build.current_dir(root))?;
    table += &format!("| clean `cargo build --release -p flatclip-cli`, crates already downloaded | {built:.0} |\n");
    Ok(table)
}

fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    run(command)?;
    Ok(start.elapsed().as_secs_f64())
}

fn run(command: &mut Command) -> Result<()> {
    let ended = command.stdout(Stdio::null()).status().with_context(|| format!("starting {command:?}"))?;
    ensure!(ended.success(), "{command:?} ended with {ended}");
    Ok(())
}
