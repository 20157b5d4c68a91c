//! What the peers need: a virtual environment outside the repository, the token ids, a photo, the script.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("../../../tools/peers.py");
const PACKAGES: [&str; 9] = [
    "torch",
    "torchvision",
    "open_clip_torch",
    "transformers",
    "openvino",
    "nncf",
    "onnx",
    "onnxscript",
    "onnxruntime",
];
const PROBE: &str = "import torch, torchvision, open_clip, transformers, openvino, nncf, onnxscript, onnxruntime";

/// The interpreter of a virtual environment with the peers. One that is given is used as it is; otherwise it is made on
/// first use.
pub(super) fn python(given: Option<&Path>) -> Result<PathBuf> {
    let folder = match given {
        Some(folder) => folder.to_path_buf(),
        None => default_folder()?,
    };
    let python = folder.join("bin/python");
    if !python.exists() {
        eprintln!("making {} ...", folder.display());
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status()?;
        ensure!(made.success(), "python3 -m venv {} failed", folder.display());
    }
    if !Command::new(&python).args(["-c", PROBE]).stderr(Stdio::null()).status()?.success() {
        eprintln!("installing {} into {} ...", PACKAGES.join(", "), folder.display());
        let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES).status()?;
        ensure!(installed.success(), "pip could not install {}", PACKAGES.join(", "));
    }
    Ok(python)
}

fn default_folder() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set; give --venv FOLDER")?.join("flatclip-peers"))
}

/// Puts what both sides read into `folder`.
pub(super) fn fill(folder: &Path) -> Result<()> {
    std::fs::write(folder.join("peers.py"), SCRIPT)?;
    std::fs::write(folder.join("tokens.json"), tokens())?;
    Ok(())
}

/// The tokens after the context for every ImageNet name: name, full stop, end.
fn tokens() -> String {
    let tokenizer = flatclip::text::Tokenizer::clip();
    let tail = |name: &&str| {
        let mut ids = tokenizer.encode(name);
        ids.extend(tokenizer.encode("."));
        ids.push(tokenizer.eot());
        ids
    };
    let tails: Vec<Vec<u32>> = flatclip::text::imagenet::CLASS_NAMES.iter().map(tail).collect();
    Value::from(tails.into_iter().map(Value::from).collect::<Vec<_>>()).to_string()
}
