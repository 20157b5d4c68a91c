//! Model folders in the layouts of Hugging Face and open_clip: which files hold the tensors, and what the configuration
//! says about them.

use super::bytes::{Stored, bad};
use super::open::read_tensors;
use super::pixels;
use super::towers;
use crate::architecture::Stated;
use crate::{Error, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Configurations have a few kilobytes, the index of a sharded model some hundred.
const MAX_JSON: u64 = 16 << 20;
/// Names of weight files. Safetensors first: the same values, easier to read.
const WEIGHTS: [&str; 6] = [
    "open_clip_model.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_pytorch_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// The weight file (or the index of the shards) of a folder.
pub(crate) fn weight_file(folder: &Path) -> Result<PathBuf> {
    let found = WEIGHTS.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| bad(folder, format!("a model folder holds one of {}; this one does not", WEIGHTS.join(", "))))
}

/// The tensors of a folder, and its configuration.
pub(crate) fn read(folder: &Path) -> Result<(Vec<Stored>, Stated)> {
    let file = weight_file(folder)?;
    let (tensors, inside) = if file.extension().is_some_and(|e| e == "json") {
        (read_shards(folder, &file)?, Stated::default())
    } else {
        read_tensors(&file)?
    };
    let stated = stated_beside(&file)?.unwrap_or(inside);
    Ok((tensors, stated))
}

/// The configuration next to a weight file with a well-known name.
pub(crate) fn stated_beside(file: &Path) -> Result<Option<Stated>> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|n| n.to_str())) else {
        return Ok(None);
    };
    let is_open_clip = WEIGHTS.contains(&name) && name.starts_with("open_clip_");
    let is_hugging_face = (WEIGHTS.contains(&name) || name.ends_with(".index.json")) && !is_open_clip;
    let stated = match () {
        () if is_open_clip => config(folder, "open_clip_config.json", towers::open_clip)?,
        () if is_hugging_face => config(folder, "config.json", towers::hugging_face)?,
        () => None,
    };
    let Some(mut stated) = stated else { return Ok(None) };
    let processor = folder.join("preprocessor_config.json");
    if is_hugging_face && processor.is_file() {
        stated.preprocess = Some(pixels::hugging_face(&processor, &json(&processor)?)?);
    }
    Ok(Some(stated))
}

/// The configuration of that name, if the folder has it.
fn config(folder: &Path, name: &str, read: fn(&Path, &Value) -> Result<Stated>) -> Result<Option<Stated>> {
    let path = folder.join(name);
    path.is_file().then(|| read(&path, &json(&path)?)).transpose()
}

/// The configuration next to a weight file with any name. It may belong to another model, so a configuration that cannot
/// be read or is not of a CLIP model is ignored.
pub(crate) fn stated_nearby(file: &Path) -> Option<Stated> {
    let folder = if file.is_dir() { file } else { file.parent()? };
    if let Some(stated) = config(folder, "open_clip_config.json", towers::open_clip).transpose() {
        return stated.ok();
    }
    let path = folder.join("config.json");
    let found = json(&path).ok()?;
    // Only files of transformers: other programs also name their files config.json.
    let is_clip = found["vision_config"].is_object() && found["text_config"].is_object();
    if is_clip { towers::hugging_face(&path, &found).ok() } else { None }
}

/// The folder, if it has any file of a tokenizer: an incomplete tokenizer must not be silently replaced by CLIP's.
pub(crate) fn tokenizer(folder: &Path) -> Option<PathBuf> {
    let names = ["vocab.json", "merges.txt", "tokenizer.json", "spiece.model", "tokenizer.model"];
    let some = names.iter().any(|name| folder.join(name).is_file());
    some.then(|| folder.to_path_buf())
}

fn read_shards(folder: &Path, index: &Path) -> Result<Vec<Stored>> {
    let index_json = json(index)?;
    let map = index_json["weight_map"]
        .as_object()
        .ok_or_else(|| bad(index, "expected a `weight_map` from tensors to files"))?;
    let mut files = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (tensor, file) in map {
        // A name, not a path: an index must not reach outside its folder.
        let file = file.as_str().filter(|f| Path::new(f).file_name().is_some_and(|name| name == *f));
        let file = file.ok_or_else(|| {
            bad(index, format!("tensor `{tensor}` lies in something that is not a file of this folder"))
        })?;
        files.entry(file).or_default().insert(tensor);
    }
    let mut tensors = Vec::new();
    for (file, mut wanted) in files {
        let path = folder.join(file);
        for tensor in read_tensors(&path)?.0 {
            if wanted.remove(tensor.name.as_str()) {
                tensors.push(tensor);
            }
        }
        if let Some(lost) = wanted.first() {
            return Err(bad(&path, format!("tensor `{lost}` is missing; the index says that it is here")));
        }
    }
    Ok(tensors)
}

fn json(path: &Path) -> Result<Value> {
    let len = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if len > MAX_JSON {
        let (what, hint) = (format!("{}: bytes", path.display()), "a configuration has a few kilobytes".into());
        return Err(Error::Limit { what, asked: len, allowed: MAX_JSON, hint });
    }
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&bytes).map_err(|e| bad(path, format!("not JSON: {e}")))
}
