//! Clients that people use, from PyPI, in an environment outside of the tree.

use super::running::Running;
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub struct Arguments {
    /// A Python that has the clients already; by default an environment is made in the user's cache
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
}

const PACKAGES: [&str; 6] =
    ["tritonclient[http]", "huggingface_hub", "openai", "openapi-python-client", "numpy", "pillow"];

pub fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::root()?;
    let binary = crate::build(root)?;
    let python = match &arguments.python {
        Some(python) => python.clone(),
        None => python(&PACKAGES)?,
    };
    let folder = tempfile::tempdir()?;
    let made = Command::new(&binary)
        .args(["pocket", "export", "photos", "--domain", "photo", "--count", "4"])
        .current_dir(folder.path())
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let server = Running::start(&binary, folder.path(), &[])?;
    let done = Command::new(python)
        .arg(root.join("xtask/serving/clients.py"))
        .arg(format!("http://{}", server.address))
        .arg(&binary)
        .current_dir(folder.path())
        .status()?;
    ensure!(done.success(), "a client got another answer than expected");
    Ok(())
}

/// A Python with these packages, in an environment of its own outside of the tree; made once, by the usual `pip`.
pub fn python(packages: &[&str]) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("FLATCLIP_TEST_PYTHON") {
        return Ok(given.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = cache.context("no home folder for an environment")?.join("flatclip-serve-clients");
    let python = folder.join("bin/python");
    if !python.is_file() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status().context("python3 is needed")?;
        ensure!(made.success(), "python3 -m venv failed");
    }
    let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages).status()?;
    ensure!(installed.success(), "pip install failed");
    Ok(python)
}
