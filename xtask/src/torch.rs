//! The tests of towers on PyTorch, in an environment of its own: torch is large, and nothing else needs it.

use crate::python::{environment, step};
use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Packages whose dependencies come along.
const PLAIN: &str = "numpy pytest pillow transformers ftfy safetensors typing-extensions filelock sympy networkx jinja2 fsspec \
                     setuptools>=77 tqdm";
/// Without theirs: those of torch are gigabytes of CUDA libraries, which a machine without a GPU does not use.
const BARE: [&str; 5] = ["torch", "torchvision", "timm", "open_clip_torch", "nvidia-cuda-runtime"];
const TESTS: [&str; 6] = [
    "test_torch.py",
    "test_torch_golden.py",
    "test_from_torch.py",
    "test_encoder.py",
    "test_device_example.py",
    "test_ray_devices.py",
];

/// Installs the wheel beside torch and runs the tests; where torch cannot be installed, prints a note and continues.
pub fn run(root: &Path, python: &Path, dir: &Path, wheel: &Path) -> Result<()> {
    let start = Instant::now();
    let dir = dir.join("torch");
    let bin = match environment(python, &dir, &PLAIN.split_whitespace().collect::<Vec<_>>())
        .and_then(|bin| torch(root, &bin, &dir).map(|()| bin))
    {
        Ok(bin) => bin,
        Err(error) => {
            eprintln!("== python: torch: skipped, it cannot be installed here: {error:#}");
            return Ok(());
        }
    };
    let mut pip = Command::new(bin.join("python"));
    step(
        "install beside torch",
        pip.args(["-m", "pip", "install", "-q", "--force-reinstall", "--no-deps"]).arg(wheel),
    )?;
    let mut pytest = Command::new(bin.join("python"));
    pytest.args(["-m", "pytest", "-q", "-c"]).arg(root.join("pyproject.toml")).current_dir(&dir);
    step("torch", pytest.args(TESTS.map(|test| root.join("python/tests").join(test))))?;
    eprintln!("== python: torch: ok in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Torch and its companions, importable without CUDA libraries.
fn torch(root: &Path, bin: &Path, dir: &Path) -> Result<()> {
    let mark = dir.join("torch.txt");
    if std::fs::read_to_string(&mark).ok().as_deref() == Some(&BARE.join("\n")) {
        return Ok(());
    }
    let mut pip = Command::new(bin.join("python"));
    step("torch without CUDA", pip.args(["-m", "pip", "install", "-q", "--no-deps"]).args(BARE))?;
    step("stubs of CUDA", Command::new(bin.join("python")).arg(root.join("tools/torch_without_cuda.py")))?;
    let mut import = Command::new(bin.join("python"));
    step("import torch", import.args(["-c", "import torch"]).stderr(Stdio::null()))?;
    std::fs::write(&mark, BARE.join("\n")).context("cannot note what is installed")
}
