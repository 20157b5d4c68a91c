//! Workers of a Ray cluster on this machine that are killed. Needs a Python with flatclip and Ray (`FLATCLIP_PEERS` names its
//! interpreter); without one the test is skipped.

use super::anchors::python;
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

pub(super) const TESTS: &[Test] = &[Test {
    name: "F10",
    suite: Suite::Kill,
    what: "Ray, 4 workers, 500 images: one of the workers is killed, 5 times in a run",
    rule: "the run ends with the bytes of a single process",
    patience: 600,
    run: killed_workers,
}];

/// F10.
fn killed_workers(trial: &mut Trial) -> Result<()> {
    let Some(python) = python("flatclip.ray") else {
        trial.skip("no Python with flatclip and Ray here");
        return Ok(());
    };
    let mut child = Command::new(python)
        .arg(crate::root()?.join("xtask/anchors/ray_kill.py"))
        .arg(&trial.folder)
        .arg(trial.count(20).to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
    let (mut kills, mut alone, mut longest) = (0, 0.0, 0.0f64);
    for line in lines {
        let Ok(told) = serde_json::from_str::<Value>(&line?) else { continue };
        let seconds = told["seconds"].as_f64().unwrap_or_default();
        let Some(run) = told["run"].as_u64() else {
            alone = seconds;
            continue;
        };
        trial.case(&format!("run {run}"), || {
            let different = told["different"].as_array().context("no list of differences")?;
            ensure!(different.is_empty(), "{different:?} differ after {} kills", told["kills"]);
            Ok(())
        });
        kills += told["kills"].as_u64().unwrap_or_default();
        longest = longest.max(seconds - alone);
    }
    ensure!(child.wait()?.success(), "ray_kill.py did not end well");
    trial.add("kills", kills);
    trial.note("seconds with four workers, none killed", format!("{alone:.1}"));
    trial.note("most seconds lost by kills", format!("{longest:.1}"));
    Ok(())
}
