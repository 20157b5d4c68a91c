//! Opens a checkpoint from a path, or from files that are embedded in the binary. The format is detected from the bytes, not from
//! the file name.

use super::bytes::{Source, Stored, bad};
use super::checkpoint::Checkpoint;
use super::{canonical_file, folder, safetensors, torch_file, towers};
use crate::architecture::Stated;
use crate::{Error, Result};
use serde_json::Value;
use std::path::Path;

impl Checkpoint {
    /// Opens a weight file (safetensors, TorchScript archive, `torch.save`) or a model folder (Hugging Face, open_clip).
    /// Names, shapes and the architecture are checked here; values are read on demand.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            let (tensors, stated) = folder::read(path)?;
            let mut checkpoint = Self::from_tensors(path, tensors, &stated)?;
            checkpoint.tokenizer_dir = folder::tokenizer(path);
            return Ok(checkpoint);
        }
        let (tensors, inside) = read_tensors(path)?;
        let stated = folder::stated_beside(path)?.unwrap_or(inside);
        Self::from_tensors(path, tensors, &stated)
    }

    /// From the files of a model folder that are in memory, named as they are in the folder. `name` stands for the folder
    /// in messages and as the checkpoint's path.
    pub fn from_files(name: &str, files: &'static [(&'static str, &'static [u8])]) -> Result<Self> {
        let folder = Path::new(name);
        let file = |name: &str| {
            let (path, found) = (folder.join(name), files.iter().find(|(found, _)| *found == name));
            let (_, bytes) = found.ok_or_else(|| bad(&path, "this file of the embedded model is missing"))?;
            Ok((path, *bytes))
        };
        let stated = |name: &str, read: fn(&Path, &Value) -> Result<Stated>| {
            let (path, bytes) = file(name)?;
            read(&path, &serde_json::from_slice(bytes).map_err(|e| bad(&path, format!("not JSON: {e}")))?)
        };
        let ((path, bytes), stated) = match file("open_clip_model.safetensors") {
            Ok(weights) => (weights, stated("open_clip_config.json", towers::open_clip)?),
            Err(_) => (file("model.safetensors")?, stated("config.json", towers::hugging_face)?),
        };
        let container = safetensors::read(&path, Source::embedded(&path, bytes))?;
        let mut checkpoint = Self::from_tensors(folder, container.tensors, &stated)?;
        checkpoint.embedded = files;
        Ok(checkpoint)
    }

    /// The embedded model of that name (`pocket`, `pocket-vit`), `None` when there is no such model.
    #[cfg(feature = "pocket")]
    pub fn embedded(name: &str) -> Option<Result<Self>> {
        flatclip_pocket::model_files(name).map(|files| Self::from_files(name, files))
    }

    /// Always `None`: built without the feature `pocket`.
    #[cfg(not(feature = "pocket"))]
    pub fn embedded(_name: &str) -> Option<Result<Self>> {
        None
    }
}

/// The tensors of one file, and the settings in its metadata.
pub(crate) fn read_tensors(path: &Path) -> Result<(Vec<Stored>, Stated)> {
    let source = Source::open(path)?;
    let head = source.read(0, source.len.min(64))?;
    if torch_file::looks_like_torch(&head) {
        let tensors = torch_file::load(path)?.state_dict().tensors();
        return Ok((tensors, Stated::default()));
    }
    if let Some(error) = foreign(path, &head) {
        return Err(error);
    }
    let container = safetensors::open(path)?;
    let stated = canonical_file::stated(path, &container.metadata)?;
    Ok((container.tensors, stated))
}

/// Describes files that are often mistaken for weights.
fn foreign(path: &Path, head: &[u8]) -> Option<Error> {
    let is = |start: &[u8]| head.starts_with(start);
    // The length of a safetensors header may look like any magic number.
    if head.get(4..9) == Some(b"\0\0\0\0{") {
        return None;
    }
    let reason = match head {
        [] => "the file is empty",
        _ if is(b"version https://git-lfs") => "a Git LFS pointer, not the weights; fetch them with `git lfs pull`",
        _ if is(b"<!DOCTYPE") || is(b"<html") || is(b"<!doctype") => {
            "an HTML page, not weights; the download went wrong"
        }
        _ if is(b"GGUF") => "a GGUF file; flatclip reads safetensors and torch files",
        _ if is(b"\x93NUMPY") => "a numpy array, not a checkpoint",
        _ if is(b"\x89HDF") => "an HDF5 file; flatclip reads safetensors and torch files",
        _ if is(b"\x1f\x8b") => "a gzip file; unpack it first",
        _ if is(b"\x80") => "a bare pickle, not a torch file; save the state dict with torch.save or as safetensors",
        _ => return None,
    };
    Some(bad(path, reason))
}
