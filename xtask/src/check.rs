//! `cargo xtask test`: layers, format, lints, tests, documentation, pages, Python, in the order in which they fail fastest.

use anyhow::{Context as _, Result, ensure};
use std::process::Command;
use std::time::Instant;

pub fn run() -> Result<()> {
    eprintln!("== layers");
    crate::layers::check(false)?;
    install_components();
    step("format", &["fmt", "--all", "--check"], &[])?;
    step("lints", &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    step("tests", &["test", "--release", "--workspace"], &[])?;
    eprintln!("== audit");
    crate::audit::run(&crate::audit::Arguments {})?;
    eprintln!("== faults: a tenth of tools/faults");
    // The binary of the tests: one built for itself differs in the features of its dependencies, and takes minutes.
    let binary = crate::target_dir(crate::root()?)?.join("release/flatclip");
    crate::tools::quick_faults(&binary)?;
    // The libraries only: comments of the command line are help texts, not documentation pages.
    let libraries = ["flatclip", "flatclip-lab", "flatclip-tensor", "flatclip-pocket", "flatclip-serve"];
    let mut documented = vec!["doc", "--release", "--no-deps"];
    documented.extend(libraries.iter().flat_map(|library| ["-p", library]));
    step("documentation", &documented, &[("RUSTDOCFLAGS", "-D warnings")])?;
    crate::tools::in_browser_if_possible(&binary)?;
    crate::python::run_if_possible(binary)
}

/// rustfmt and clippy come with most toolchains; where they do not, rustup adds them. A machine without rustup has its
/// own way, so a failure here is only a failure if the steps below miss something.
fn install_components() {
    let missing =
        |tool: &str| !Command::new("cargo").args([tool, "--version"]).output().is_ok_and(|o| o.status.success());
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if missing(tool) {
            let _ = Command::new("rustup").args(["component", "add", component]).status();
        }
    }
}

fn step(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    eprintln!("== {name}: cargo {}", arguments.join(" "));
    let start = Instant::now();
    let status = crate::cargo()
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .with_context(|| format!("cannot start cargo for {name}"))?;
    ensure!(status.success(), "{name} failed");
    eprintln!("== {name}: ok in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
