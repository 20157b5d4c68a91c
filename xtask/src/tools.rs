//! Checks that are Python scripts (`tools/`), each with the packages that it needs in an environment below the target folder.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The browser's driver; used by both scripts that open pages.
const BROWSER: [&str; 2] = ["selenium>=4.20,<5", "pillow"];
const CLIENTS: [&str; 7] = [
    "tritonclient[http]",
    "huggingface_hub",
    "openai",
    "openapi-python-client",
    "schemathesis==4.32.5",
    "numpy",
    "pillow",
];
const AXE: &str = "axe-core@4.10.3";

/// `cargo xtask pages`.
pub fn pages(binary: &Path) -> Result<()> {
    let folder = crate::target_dir(crate::root()?)?.join("pages");
    script("checks/report_pages.py", &python("browser", &BROWSER)?, &[binary.into(), folder])
}

/// `cargo xtask serving page`; with axe where npm can install it.
pub fn serve_page(binary: &Path) -> Result<()> {
    let target = crate::target_dir(crate::root()?)?;
    let axe = target.join("axe/node_modules/axe-core/axe.min.js");
    if !axe.is_file() {
        let options = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix"];
        let _ = Command::new("npm").args(options).arg(target.join("axe")).arg(AXE).output();
    }
    let mut arguments = vec![binary.into(), target.join("serve-page")];
    arguments.extend(axe.is_file().then_some(axe));
    script("checks/serve_page.py", &python("browser", &BROWSER)?, &arguments)
}

/// `cargo xtask serving clients`.
pub fn clients(binary: &Path) -> Result<()> {
    script("checks/clients.py", &python("clients", &CLIENTS)?, &[binary.into()])
}

/// The part of `tools/faults` that is in `cargo xtask test`; skipped without Python.
pub fn quick_faults(binary: &Path) -> Result<()> {
    let Some(python) = crate::python::interpreter(Path::new("python3")) else {
        eprintln!("== faults: SKIPPED, there is no Python 3.10 or newer");
        return Ok(());
    };
    script("faults", &python, &["--quick".into(), "--binary".into(), binary.into()])
}

/// Both checks in a browser, as steps of `cargo xtask test`: only where there is one, and its driver can be installed.
pub fn in_browser_if_possible(binary: &Path) -> Result<()> {
    let has_driver = Command::new("chromedriver").arg("--version").output().is_ok_and(|done| done.status.success());
    let reason = if has_driver {
        python("browser", &BROWSER).err().map(|error| format!("{error:#}"))
    } else {
        Some("no chromedriver; `apt-get install chromium chromium-driver` installs one".to_owned())
    };
    if let Some(reason) = reason {
        eprintln!("== pages: SKIPPED, {reason}");
        return Ok(());
    }
    eprintln!("== pages: reports and the page of the server in a headless browser");
    pages(binary)?;
    serve_page(binary)
}

/// The interpreter of an environment with these packages.
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let python = crate::python::interpreter(Path::new("python3")).context("needs Python 3.10 or newer with venv")?;
    let folder = crate::target_dir(crate::root()?)?.join("tools").join(name);
    Ok(crate::python::environment(&python, &folder, packages)?.join("python"))
}

fn script(name: &str, python: &Path, arguments: &[PathBuf]) -> Result<()> {
    let script = crate::root()?.join("tools").join(name);
    let status = Command::new(python).arg(&script).args(arguments).status()?;
    ensure!(status.success(), "{} failed", script.display());
    Ok(())
}
