//! Weights that change on the disk while a server works with them.

use super::readers::corpus;
use super::{Suite, Test, Trial};
use crate::serving::http::{ask, post_form};
use crate::serving::running::Running;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;

pub(super) const TESTS: &[Test] = &[Test {
    name: "F13",
    suite: Suite::Disk,
    what: "weights cut, overwritten, exchanged or removed while a server runs",
    rule: "the same answers, ready all the time: weights are read into memory, not mapped; a new start refuses the damaged file",
    patience: 120,
    run: replaced,
}];

const MODEL: &str = "crates/flatclip-pocket/models/pocket";
const WEIGHTS: &str = "open_clip_model.safetensors";

/// What is done to the file, and whether a server that starts afterwards must refuse it.
type Damage = (&'static str, bool, fn(&Path) -> Result<()>);

const DAMAGES: &[Damage] = &[
    ("cut to nothing", true, |file| Ok(std::fs::write(file, b"")?)),
    ("cut in the middle", true, |file| {
        let whole = std::fs::metadata(file)?.len();
        Ok(std::fs::OpenOptions::new().write(true).open(file)?.set_len(whole / 2)?)
    }),
    ("overwritten in place", true, |file| {
        Ok(std::fs::write(file, vec![0xa5; std::fs::metadata(file)?.len() as usize])?)
    }),
    ("exchanged for another model", false, |file| {
        let other = file.with_file_name("other");
        std::fs::write(&other, corpus("safetensors")?.remove(0).1)?;
        Ok(std::fs::rename(other, file)?)
    }),
    ("removed with its folder", true, |file| Ok(std::fs::remove_dir_all(file.parent().context("a folder")?)?)),
];

/// F13.
fn replaced(trial: &mut Trial) -> Result<()> {
    let question = post_form(
        "/v1/classify",
        &[("classes", "fish,lamp,snail"), ("method", "stss"), ("views", "8")],
        &[&corpus("png")?.remove(0).1],
    );
    for &(name, refuses, damage) in trial.some(DAMAGES) {
        let model = trial.folder.join("model");
        let (binary, folder) = (trial.binary.clone(), trial.folder.clone());
        trial.case(name, || {
            let _ = std::fs::remove_dir_all(&model);
            std::fs::create_dir(&model)?;
            for entry in std::fs::read_dir(crate::root()?.join(MODEL))?.flatten() {
                std::fs::copy(entry.path(), model.join(entry.file_name()))?;
            }
            let arguments = ["--model", &model.display().to_string()];
            let mut server = Running::start(&binary, &folder, &arguments)?;
            let before = ask(server.address, &question)?;
            ensure!(before.status == 200, "status {}: {}", before.status, before.text());
            damage(&model.join(WEIGHTS))?;
            for _ in 0..5 {
                let after = ask(server.address, &question)?;
                ensure!(after.status == 200, "status {}: {}", after.status, after.text());
                ensure!(answers_of(&after.text())? == answers_of(&before.text())?, "another answer: {}", after.text());
                ensure!(server.get("/readyz")?.status == 200, "not ready");
            }
            server.signal("TERM")?;
            ensure!(server.wait(std::time::Duration::from_secs(25))?.code() == Some(0), "the server did not end well");
            let takes = || Running::start(&binary, &folder, &arguments).is_ok();
            ensure!(!refuses || !takes(), "a new server took the damaged file");
            Ok(())
        });
    }
    Ok(())
}

/// An answer without the times in it.
fn answers_of(text: &str) -> Result<serde_json::Value> {
    let mut value: serde_json::Value = serde_json::from_str(text)?;
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !["timing", "time", "seconds", "ms", "request_id", "id"].contains(&key.as_str()));
    }
    Ok(value)
}
