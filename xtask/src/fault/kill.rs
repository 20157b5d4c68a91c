//! Runs that are ended the hard way, again and again, and must still end with the bytes of a run that was left alone.

use super::folders::{contents, differences};
use super::program::{Program, SMALL_TUNE, finish, wait};
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, bail, ensure};
use flatclip::rng::Stream;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub(super) const TESTS: &[Test] = &[
    test("F1", "kill -9 during tune, resumed until done", |trial| killed(trial, &tune())),
    test("F1-eval", "kill -9 during eval, resumed until done", |trial| killed(trial, EVAL)),
    test("F1-sweep", "kill -9 during sweep, resumed until done", |trial| killed(trial, SWEEP)),
    test("F1-landscape", "kill -9 during landscape, started again until done", |trial| killed(trial, LANDSCAPE)),
    Test {
        name: "F4",
        suite: Suite::Kill,
        what: "the newest checkpoint cut, flipped, emptied, replaced; then both",
        rule: "goes on from the one before to the same bytes, or refuses; never another result",
        patience: 120,
        run: damaged_checkpoints,
    },
    Test {
        name: "F6",
        suite: Suite::Kill,
        what: "SIGINT and SIGTERM during tune and eval",
        rule: "ends within 10 s with what is done kept; a resumed run has the same bytes",
        patience: 120,
        run: signals,
    },
    Test {
        name: "F8",
        suite: Suite::Kill,
        what: "a second process in the same run directory",
        rule: "the second is refused, the first ends with the same bytes",
        patience: 120,
        run: two_processes,
    },
];

/// A tuning run of twelve steps with six checkpoints.
pub(super) fn tune() -> Vec<&'static str> {
    [SMALL_TUNE, &["--epochs", "12", "--checkpoint-every", "2", "--out"]].concat()
}

pub(super) const EVAL: &[&str] = &[
    "eval",
    "--method",
    "stss",
    "--data",
    "pocket:sketch",
    "--limit",
    "40",
    "--views",
    "16",
    "--no-cache",
    "--resume",
    "--quiet",
    "--out",
];
const SWEEP: &[&str] = &[
    "sweep",
    "--set",
    "stss.radius=0,0.5",
    "--set",
    "stss.fraction=0.1,0.3",
    "--data",
    "pocket:hard",
    "--limit",
    "10",
    "--views",
    "8",
    "--resume",
    "--quiet",
    "--out",
];
const LANDSCAPE: &[&str] =
    &["landscape", "--data", "pocket:photo:train:64", "--shots", "1", "--points", "9", "--quiet", "--out"];

/// Kills of each command at full scale.
const KILLS: usize = 100;
/// A run that was killed so often is left alone, or it would never end.
const MOST: u64 = 8;

const fn test(name: &'static str, what: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    let rule = "every file of the result has the bytes of a run that was left alone";
    Test { name, suite: Suite::Kill, what, rule, patience: 120, run }
}

pub(super) fn with<'a>(arguments: &[&'a str], out: &'a str) -> Vec<&'a str> {
    arguments.iter().copied().chain([out]).collect()
}

/// Kills until the wanted number is reached, run after run.
fn killed(trial: &mut Trial, arguments: &[&str]) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    // Always the same name: pages tell the run's directory.
    let out = trial.folder.join("run");
    let whole = program.works(&with(arguments, "run"))?;
    let expected = contents(&out)?;
    ensure!(expected.len() > 2, "the straight run left {} files", expected.len());
    let mut draw = Stream::new(1, &[arguments[0]]);
    let (wanted, mut kills, mut number, mut seconds) = (trial.count(KILLS) as u64, 0, 0, whole.seconds);
    // A run can end before the moment that was drawn; not all may.
    while kills < wanted && number < 4 * wanted + 10 {
        std::fs::remove_dir_all(&out)?;
        let mut here = 0;
        trial.case(&format!("run {number}"), || {
            here = until_done(&program, &with(arguments, "run"), &mut draw, &mut seconds)?;
            let different = differences(&expected, &contents(&out)?);
            ensure!(different.is_empty(), "after {here} kills: {}", different.join(", "));
            Ok(())
        });
        kills += here;
        number += 1;
    }
    trial.add("kills", kills);
    ensure!(kills >= wanted, "{kills} kills in {number} runs, wanted {wanted}");
    Ok(())
}

/// Starts, kills at a random moment, starts again, until a run ends by itself. `seconds` is what a whole run takes, which
/// changes with the machine's other work.
fn until_done(program: &Program, arguments: &[&str], draw: &mut Stream, seconds: &mut f64) -> Result<u64> {
    for kills in 0..MOST {
        let mut child = program.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let moment = Duration::from_secs_f64(1.2 * *seconds * draw.unit());
        let start = Instant::now();
        while start.elapsed() < moment {
            if let Some(status) = child.try_wait()? {
                ensure!(ended_well(status, arguments, kills), "ended with {status} after {kills} kills");
                if kills == 0 {
                    *seconds = start.elapsed().as_secs_f64();
                }
                return Ok(kills);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill()?;
        child.wait()?;
    }
    let ended = program.run(arguments)?;
    ensure!(ended_well(ended.status, arguments, MOST), "exit {}: {}", ended.status, ended.stderr.trim());
    Ok(MOST)
}

/// A landscape that was killed after its last byte is not begun again; its bytes are compared all the same.
fn ended_well(status: ExitStatus, arguments: &[&str], kills: u64) -> bool {
    status.success() || (kills > 0 && arguments[0] == "landscape" && status.code() == Some(2))
}

/// F4.
fn damaged_checkpoints(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let whole = program.works(&with(&tune(), "straight"))?;
    let expected = contents(&trial.folder.join("straight"))?;
    let mut draw = Stream::new(1, &["F4"]);
    let names = ["checkpoint.safetensors", "checkpoint.previous.safetensors"];
    for number in 0..trial.count(20) {
        let out = format!("damaged-{number}");
        let how = ["cut", "flipped", "emptied", "replaced", "both flipped"][number % 5];
        trial.case(&format!("{number} {how}"), || {
            stop_with_two_checkpoints(&program, &out, names, whole.seconds)?;
            let file = program.folder.join(&out).join(names[0]);
            let bytes = std::fs::read(&file)?;
            let flipped = |bytes: &[u8], place: usize| {
                let mut copy = bytes.to_vec();
                copy[place] ^= 0x10;
                copy
            };
            let damaged = match how {
                "cut" => bytes[..draw.below(bytes.len())].to_vec(),
                "emptied" => Vec::new(),
                "replaced" => std::fs::read(program.folder.join("straight/prompt.safetensors"))?,
                _ => flipped(&bytes, draw.below(bytes.len())),
            };
            std::fs::write(&file, &damaged)?;
            if how == "both flipped" {
                let older = program.folder.join(&out).join(names[1]);
                let bytes = std::fs::read(&older)?;
                std::fs::write(&older, flipped(&bytes, bytes.len() / 2))?;
            }
            let ended = program.run(&with(&tune(), &out))?;
            if ended.status.success() {
                let different = differences(&expected, &contents(&program.folder.join(&out))?);
                ensure!(different.is_empty(), "another result: {}", different.join(", "));
                // A flip may hit a byte of the header that says nothing; a cut or an exchange may not pass for nothing.
            } else {
                ensure!(how == "both flipped", "refused although the one before is whole: {}", ended.stderr.trim());
                ensure!(ended.stderr.contains("checkpoint"), "names no checkpoint: {}", ended.stderr.trim());
            }
            Ok(())
        });
    }
    Ok(())
}

/// A tuning run that was killed when it had two checkpoints.
fn stop_with_two_checkpoints(program: &Program, out: &str, names: [&str; 2], seconds: f64) -> Result<()> {
    for _ in 0..50 {
        let folder = program.folder.join(out);
        let _ = std::fs::remove_dir_all(&folder);
        let mut child = program.command(&with(&tune(), out)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < 20.0 * seconds && child.try_wait()?.is_none() {
            if names.iter().all(|name| folder.join(name).is_file()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        child.wait()?;
        if names.iter().all(|name| folder.join(name).is_file()) && !folder.join("summary.json").exists() {
            return Ok(());
        }
    }
    bail!("no run could be stopped between two checkpoints and its end")
}

/// F6.
fn signals(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    for (arguments, name) in [(tune(), "tune"), (EVAL.to_vec(), "eval")] {
        let straight = format!("straight-{name}");
        let whole = program.works(&with(&arguments, &straight))?;
        let expected = contents(&trial.folder.join(&straight))?;
        for number in 0..trial.count(10) {
            let signal = [Signal::SIGTERM, Signal::SIGINT][number % 2];
            let out = format!("{name}-{number}");
            trial.case(&format!("{name} {signal} {number}"), || {
                let mut child =
                    program.command(&with(&arguments, &out)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
                std::thread::sleep(Duration::from_secs_f64(whole.seconds * (0.1 + 0.08 * number as f64)));
                if child.try_wait()?.is_none() {
                    kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
                    wait(&mut child, Duration::from_secs(10)).context("after the signal")?;
                }
                program.works(&with(&arguments, &out))?;
                let different = differences(&expected, &contents(&program.folder.join(&out))?);
                ensure!(different.is_empty(), "{}", different.join(", "));
                Ok(())
            });
        }
    }
    Ok(())
}

/// F8.
fn two_processes(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let expected = {
        program.works(&with(EVAL, "straight"))?;
        contents(&trial.folder.join("straight"))?
    };
    for number in 0..trial.count(10) {
        let out = format!("both-{number}");
        let mut refused = 0;
        trial.case(&format!("pair {number}"), || {
            let first = program.command(&with(EVAL, &out)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            let mut first = first;
            let lock = program.folder.join(&out).join("predictions.jsonl");
            while !lock.exists() && first.try_wait()?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let second = finish(program.command(&with(EVAL, &out)))?;
            second.check_sane()?;
            // The first may have ended by now: then the second finds a complete run.
            if !second.status.success() {
                ensure!(second.stderr.contains("another process"), "{}", second.stderr.trim());
                refused += 1;
            }
            ensure!(wait(&mut first, Duration::from_secs(60))?.success(), "the first did not end well");
            let different = differences(&expected, &contents(&program.folder.join(&out))?);
            ensure!(different.is_empty(), "{}", different.join(", "));
            Ok(())
        });
        trial.add("refused", refused);
    }
    Ok(())
}
