//! `cargo xtask python`: a virtual environment, the wheel, its tests, types and examples.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the tests use beside pytest; all of them small. Torch has an environment of its own (`torch.rs`), or comes here with
/// open_clip and Ray by `--full`.
const SMALL: [&str; 8] = ["maturin>=1.9.4,<2", "numpy", "pytest", "mypy", "scikit-learn", "pandas", "pillow", "tqdm"];
const LARGE: [&str; 4] = ["torch", "open_clip_torch", "ray", "safetensors"];

/// Options of `cargo xtask python`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Install torch, open_clip and Ray, too, and run the tests that need them
    #[arg(long)]
    full: bool,
    /// The interpreter of the virtual environment, 3.10 or newer
    #[arg(long, default_value = "python3", value_name = "PYTHON")]
    python: PathBuf,
    /// Where the virtual environment and the wheel go [default: python in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Further arguments of pytest
    #[arg(last = true, value_name = "ARGUMENTS")]
    pytest: Vec<String>,
    /// A flatclip that was built already
    #[arg(skip)]
    binary: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let Some(python) = interpreter(&arguments.python) else {
        anyhow::bail!("{}: expected Python 3.10 or newer with the module venv", arguments.python.display());
    };
    let root = crate::root()?;
    let dir = match arguments.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => crate::target_dir(root)?.join("python"),
    };
    let wanted: Vec<&str> = SMALL.iter().chain(LARGE.iter().filter(|_| arguments.full)).copied().collect();
    let bin = environment(&python, &dir, &wanted)?;
    let binary = arguments.binary.map_or_else(|| crate::build(root), Ok)?;
    let wheel = install(root, &bin, &dir)?;
    let tool = |name: &str| {
        let mut command = Command::new(bin.join(name));
        // From another folder, so that it is the installed package that is tested.
        command.current_dir(&dir).env("FLATCLIP_BIN", &binary);
        command
    };
    let tests = root.join("python/tests");
    let settings = root.join("pyproject.toml");
    step("pytest", tool("pytest").args(["-q", "-c"]).arg(&settings).arg(&tests).args(&arguments.pytest))?;
    let doctests = ["-q", "--doctest-modules", "--pyargs", "flatclip", "-p", "no:cacheprovider"];
    step(
        "examples in docstrings",
        tool("pytest").args(doctests).args([
            "--ignore-glob=*ray.py",
            "--ignore-glob=*__main__.py",
            "--ignore-glob=*/torch/*",
        ]),
    )?;
    step("types", tool("mypy").arg("--config-file").arg(&settings).args(["-p", "flatclip"]))?;
    let allowed = tests.join("stubtest-allowlist.txt");
    let stubs = ["-m", "mypy.stubtest", "flatclip._native", "--concise", "--allowlist"];
    step("stubs", tool("python").args(stubs).arg(&allowed))?;
    crate::torch::run(root, &python, &dir, &wheel)
}

/// As part of `cargo xtask test`: without Python, prints a note and continues.
pub fn run_if_possible(binary: PathBuf) -> Result<()> {
    if interpreter(Path::new("python3")).is_none() {
        eprintln!("== python: skipped, there is no Python 3.10 or newer with venv");
        return Ok(());
    }
    let start = Instant::now();
    eprintln!("== python: cargo xtask python");
    // The demonstration, the examples and the interrupts take minutes or depend on an idle machine: `cargo xtask python`.
    let pytest = ["-k", "not test_examples and not test_the_command and not interrupt"].map(str::to_owned).to_vec();
    run(Arguments { full: false, python: "python3".into(), dir: None, pytest, binary: Some(binary) })?;
    eprintln!("== python: ok in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The interpreter if it can make virtual environments. Where it cannot and this is root on a Debian, its package is tried.
pub fn interpreter(python: &Path) -> Option<PathBuf> {
    let fine = || {
        let code = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
        let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet(Command::new(python).args(["-c", code])).is_ok_and(|status| status.success())
    };
    if !fine() {
        let _ = Command::new("apt-get")
            .args(["install", "-y", "-q", "python3", "python3-venv"])
            .stdout(Stdio::null())
            .status();
    }
    fine().then(|| python.to_path_buf())
}

/// Makes an environment with these packages, or takes the one that is there; gives the folder of its programs.
pub fn environment(python: &Path, dir: &Path, wanted: &[&str]) -> Result<PathBuf> {
    let venv = dir.join("venv");
    let bin = venv.join(if cfg!(windows) { "Scripts" } else { "bin" });
    if !bin.join("python").exists() && !bin.join("python.exe").exists() {
        std::fs::create_dir_all(dir)?;
        step("environment", Command::new(python).args(["-m", "venv"]).arg(&venv))?;
    }
    // Asking the registry takes seconds; what was installed for the same list stays.
    let mark = dir.join("installed.txt");
    if std::fs::read_to_string(&mark).ok().as_deref() != Some(&wanted.join("\n")) {
        let mut pip = Command::new(bin.join("python"));
        step("packages", pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]).args(wanted))?;
        std::fs::write(&mark, wanted.join("\n"))?;
    }
    Ok(bin)
}

/// Builds the wheel in cargo's own target folder, so that the library is not compiled again, and installs it.
fn install(root: &Path, bin: &Path, dir: &Path) -> Result<PathBuf> {
    let wheels = dir.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let mut maturin = crate::outside(bin.join("maturin"));
    // With the golden cases, which the tests of torch towers run through the bridge.
    maturin.args(["build", "--release", "--quiet", "--features", "golden", "--out"]).arg(&wheels).current_dir(root);
    step("wheel", maturin.arg("--interpreter").arg(bin.join("python")))?;
    let made = std::fs::read_dir(&wheels)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = made.context("maturin made no wheel")?;
    let mut pip = Command::new(bin.join("python"));
    step("install", pip.args(["-m", "pip", "install", "-q", "--force-reinstall", "--no-deps"]).arg(&wheel))?;
    Ok(wheel)
}

pub fn step(name: &str, command: &mut Command) -> Result<()> {
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {:?} for {name}", command.get_program()))?;
    ensure!(status.success(), "{name} failed");
    eprintln!("== python: {name} in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
