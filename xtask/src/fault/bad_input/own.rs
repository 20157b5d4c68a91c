//! Files of our own: all of them carry checksums, so a changed one is refused or says the same.

use crate::fault::Trial;
use crate::fault::mutate::mutant;
use crate::fault::program::Program;
use anyhow::{Result, ensure};
use flatclip_lab::report::Run;

const FILES: [&str; 6] = ["predictions.jsonl", "summary.json", "run.json", "config.toml", "classes.txt", "SHA256SUMS"];

/// M13: one file of a finished run damaged, then read as a report reads it.
pub(super) fn runs(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    program.works(&[
        "eval",
        "--method",
        "zero-shot",
        "--data",
        "pocket:sketch",
        "--limit",
        "6",
        "--quiet",
        "--out",
        "run",
    ])?;
    let folder = trial.folder.join("run");
    let content = || -> Result<String> {
        let run = Run::read(&folder)?;
        Ok(format!(
            "{:?} {:?} {:?} {:?} {:?}",
            run.config,
            run.provenance,
            run.summary,
            run.records()?,
            run.class_names()?
        ))
    };
    let whole = content()?;
    for number in 0..trial.count(6000) {
        let name = FILES[number % FILES.len()];
        let path = folder.join(name);
        let bytes = std::fs::read(&path)?;
        std::fs::write(&path, mutant(&bytes, name, number as u64))?;
        let mut refused = 0;
        trial.case(&format!("{name} mutant {number}"), || {
            match content() {
                Ok(found) => ensure!(found == whole, "read as other content"),
                Err(error) => {
                    refused = 1;
                    let text = format!("{error:#}");
                    ensure!(text.contains(&folder.display().to_string()), "the refusal names no file: {text}");
                }
            }
            Ok(())
        });
        trial.add("refused", refused);
        std::fs::write(&path, bytes)?;
    }
    Ok(())
}
