//! Training that ends in numbers that are none.

use super::program::{Program, SMALL_TUNE};
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::Path;

pub(super) const TESTS: &[Test] = &[Test {
    name: "F15",
    suite: Suite::Kill,
    what: "learning rates that make the loss of a later step NaN",
    rule: "stops at that step, named with its batch; the checkpoint before it stays, no result is written",
    patience: 120,
    run: diverge,
}];

/// Each ends at another step; the largest is the largest that a 32-bit float holds.
const RATES: [&str; 5] = ["1e20", "1e25", "1e30", "1e35", "3e38"];

fn diverge(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    for rate in trial.some(&RATES) {
        let mut stopped = 0;
        trial.case(&format!("learning rate {rate}"), || {
            let (out, setting) = (format!("rate-{rate}"), format!("train.lr={rate}"));
            let steps = ["--epochs", "12", "--checkpoint-every", "1"];
            let tune = [SMALL_TUNE, &steps, &["--set", &setting, "--out", &out]].concat();
            let folder = program.folder.join(&out);
            let first = program.refuses(&tune, "loss NaN")?;
            stopped = step_of(&first.stderr)?;
            let kept = std::fs::read(folder.join("checkpoint.safetensors")).context("no checkpoint is left")?;
            check_records(&folder, stopped)?;
            let again = program.refuses(&tune, "loss NaN")?;
            ensure!(step_of(&again.stderr)? == stopped, "resumed, it stops elsewhere: {}", again.stderr.trim());
            ensure!(std::fs::read(folder.join("checkpoint.safetensors"))? == kept, "the good checkpoint was changed");
            for name in ["prompt.safetensors", "summary.json"] {
                ensure!(!folder.join(name).exists(), "{name} was written");
            }
            Ok(())
        });
        trial.note(&format!("{rate} stops at step"), stopped.to_string());
    }
    Ok(())
}

/// The step that a refusal names.
fn step_of(text: &str) -> Result<usize> {
    let rest = text.split_once("step ").with_context(|| format!("names no step: {}", text.trim()))?.1;
    Ok(rest.split(' ').next().unwrap_or_default().parse()?)
}

/// Every step before the one that failed has a record, with numbers.
fn check_records(folder: &Path, stopped: usize) -> Result<()> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl"))?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    ensure!(records.len() + 1 == stopped, "{} records before step {stopped}", records.len());
    ensure!(records.iter().all(|record| record["loss"].is_number()), "a record without a loss");
    Ok(())
}
