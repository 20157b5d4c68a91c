//! Checks and measurements that are Python scripts (`tools/`). A check has the packages that it needs in an environment below the
//! target folder; measurements make theirs themselves.

use anyhow::{Context as _, Result, ensure};
use std::ffi::OsString;
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

/// Arguments of a script.
#[derive(clap::Args)]
pub struct Words {
    /// Arguments of the script; `-- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Words {
    /// Runs a script with these arguments behind some of ours.
    pub fn run(self, name: &str, first: &[PathBuf]) -> Result<()> {
        let arguments = first.iter().cloned().chain(self.words.into_iter().map(PathBuf::from));
        script(name, &interpreter()?, &arguments.collect::<Vec<_>>())
    }
}

/// `cargo xtask serving`.
#[derive(clap::Subcommand)]
pub enum Serving {
    /// Use the page in a headless browser: drop a photo, see selected views, switch method, errors, dark, phone; needs chromedriver
    Page,
    /// Ask with tritonclient, huggingface_hub, openai, a generated client and schemathesis, from PyPI
    Clients,
    /// Images per second and p99 at 16 clients, against `flatclip bench` and a FastAPI + open_clip server; writes docs/guide/serving-measured.md
    Throughput(Words),
    /// Requests at 2 and 10 times the capacity, and a crowd of 1 000 clients: what is served, refused, and how long it takes
    Overload(Words),
    /// Load the server for a while at a share of its capacity; resident memory and open files must stay flat
    Soak(Words),
}

pub fn serving(what: Serving) -> Result<()> {
    let binary = crate::build(crate::root()?)?;
    match what {
        Serving::Page => serve_page(&binary),
        Serving::Clients => script("checks/clients.py", &python("clients", &CLIENTS)?, &[binary]),
        Serving::Throughput(words) => words.run("serving", &[binary, "throughput".into()]),
        Serving::Overload(words) => words.run("serving", &[binary, "overload".into()]),
        Serving::Soak(words) => words.run("serving", &[binary, "soak".into()]),
    }
}

/// `cargo xtask bench-peers`, with the tokens after the context for every ImageNet name: name, full stop, end.
pub fn bench_peers(words: Words) -> Result<()> {
    let binary = crate::build(crate::root()?)?;
    let tokenizer = flatclip::text::Tokenizer::clip();
    let tail = |name: &&str| [tokenizer.encode(name), tokenizer.encode("."), vec![tokenizer.eot()]].concat();
    let tails: Vec<Vec<u32>> = flatclip::text::imagenet::CLASS_NAMES.iter().map(tail).collect();
    let folder = tempfile::tempdir()?;
    let tokens = folder.path().join("tokens.json");
    std::fs::write(&tokens, serde_json::to_vec(&tails)?)?;
    words.run("bench_peers", &[binary, tokens])
}

/// `cargo xtask serving page`; with axe where npm can install it.
fn serve_page(binary: &Path) -> Result<()> {
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

/// The tests of the scripts, and the part of `tools/faults` that is in `cargo xtask test`; skipped without Python.
pub fn quick_faults(binary: &Path) -> Result<()> {
    let Some(python) = crate::python::interpreter(Path::new("python3")) else {
        eprintln!("== faults: SKIPPED, there is no Python 3.10 or newer");
        return Ok(());
    };
    let tests =
        Command::new(&python).args(["-m", "unittest", "discover", "tools"]).current_dir(crate::root()?).status()?;
    ensure!(tests.success(), "tests of tools failed");
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
fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = crate::target_dir(crate::root()?)?.join("tools").join(name);
    Ok(crate::python::environment(&interpreter()?, &folder, packages)?.join("python"))
}

fn interpreter() -> Result<PathBuf> {
    crate::python::interpreter(Path::new("python3")).context("needs Python 3.10 or newer with venv")
}

fn script(name: &str, python: &Path, arguments: &[PathBuf]) -> Result<()> {
    let script = crate::root()?.join("tools").join(name);
    let status = Command::new(python).arg(&script).args(arguments).status()?;
    ensure!(status.success(), "{} failed", script.display());
    Ok(())
}
