//! S15, S16: a real browser, and schemathesis. Where one is not there, its test fails: it has shown nothing.

use crate::fault::Trial;
use crate::serving::clients::python;
use crate::serving::running::Running;
use anyhow::{Context as _, Result, ensure};
use std::process::Command;

pub(super) fn page(trial: &mut Trial) -> Result<()> {
    let flows = crate::serving::page::flows(&trial.binary, &trial.folder, None)?;
    let flows = flows.context("no chromedriver on this machine: install Debian's chromium-driver")?;
    for (name, outcome) in flows {
        trial.case(&name, || outcome);
    }
    Ok(())
}

pub(super) fn schema(trial: &mut Trial) -> Result<()> {
    let python = python(&["schemathesis==4.32.5"])?;
    let tool = python.parent().context("python has a folder")?.join("schemathesis");
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let examples = trial.count(2_000).div_ceil(20).to_string();
    let output = Command::new(tool)
        .args([
            "run",
            "--checks",
            CHECKS,
            "--mode",
            "all",
            "--phases",
            "examples,coverage,fuzzing",
            "--max-examples",
            &examples,
        ])
        .args(["--seed", "1", "--no-color", "--suppress-health-check", "all"])
        .arg(format!("http://{}/openapi.json", server.address))
        .current_dir(&trial.folder)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let total = said
        .lines()
        .filter_map(|line| line.trim().split_once(" generated"))
        .filter_map(|(count, _)| count.replace(',', "").parse::<u64>().ok())
        .max();
    let requests = server.metric("flatclip_requests_total")? as u64;
    trial.most("requests:", requests);
    trial.most("test cases:", total.unwrap_or(0));
    trial.case("schemathesis finds nothing", || {
        let tail: String = said.chars().rev().take(3000).collect::<Vec<_>>().into_iter().rev().collect();
        ensure!(output.status.success(), "{tail}\n{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    });
    trial.case("enough was tried", || {
        ensure!(requests >= 200, "{requests} requests");
        Ok(())
    });
    trial.case("no panic", || {
        ensure!(server.metric("flatclip_panics_total")? == 0.0, "it panicked");
        Ok(())
    });
    Ok(())
}

/// What is held against the description. That a wrong body is refused is S6's; here sizes are what they are.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
