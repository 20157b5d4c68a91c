//! The canonical form: one safetensors file, OpenAI's names, the stored precision, and metadata for the settings that the
//! tensors do not show.

use super::bytes::{Dtype, bad};
use super::checkpoint::Checkpoint;
use crate::architecture::{Activation, ImageConfig, Preprocess, Size, Stated};
use crate::{Error, Result, files};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes `checkpoint` to `out` in canonical form, atomically. The values, and so [`Checkpoint::hash`], stay the same.
pub fn save_canonical(checkpoint: &Checkpoint, out: &Path) -> Result<()> {
    let hash = checkpoint.hash()?;
    let header = header(checkpoint, &hash);
    files::write_atomic_with(out, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes()).map_err(Error::io(out))?;
        file.write_all(header.as_bytes()).map_err(Error::io(out))?;
        for name in checkpoint.names() {
            let (_, values) = checkpoint.tensor(name)?;
            file.write_all(&encode(&values, target(checkpoint, name))).map_err(Error::io(out))?;
        }
        Ok(())
    })
}

/// Precisions of the canonical form; every other type is converted to f32.
fn target(checkpoint: &Checkpoint, name: &str) -> Dtype {
    match checkpoint.dtype(name) {
        Some(dtype @ (Dtype::F16 | Dtype::Bf16)) => dtype,
        _ => Dtype::F32,
    }
}

pub(super) fn encode(values: &[f32], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F16 => values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect(),
        Dtype::Bf16 => values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

fn header(checkpoint: &Checkpoint, hash: &str) -> String {
    let config = checkpoint.config();
    let (heads, image_form) = match &config.image {
        ImageConfig::Vit { heads, form, .. } => (heads, Some(form)),
        ImageConfig::ResNet { heads, .. } => (heads, None),
        ImageConfig::Other => (&0, None),
    };
    let mut metadata = json!({
        "format": "pt",
        "made_by": concat!("flatclip ", env!("CARGO_PKG_VERSION")),
        "activation": config.activation.name(),
        "weights_hash": hash,
        "image_heads": heads.to_string(),
        "image_size": config.image_size.to_string(),
    });
    // One entry per key; earlier versions read the last two.
    if let Value::Object(preprocess) = json!(config.preprocess) {
        preprocess.into_iter().for_each(|(key, value)| metadata[key] = json!(value.to_string()));
    }
    if let Some(text) = &config.text {
        metadata["text_heads"] = json!(text.heads.to_string());
        metadata["text_form"] = json!(json!(text.form).to_string());
    }
    if let Some(form) = image_form {
        metadata["image_form"] = json!(json!(form).to_string());
    }
    let mut all = Map::from_iter([("__metadata__".to_owned(), metadata)]);
    let mut at = 0;
    for name in checkpoint.names() {
        let shape = checkpoint.shape(name).unwrap_or_default();
        let dtype = target(checkpoint, name);
        let end = at + shape.iter().product::<usize>() * dtype.size();
        let about = json!({ "dtype": dtype.name().to_uppercase(), "shape": shape, "data_offsets": [at, end] });
        all.insert(name.to_owned(), about);
        at = end;
    }
    let mut text = Value::Object(all).to_string();
    // The format requires the data to start at a multiple of 8.
    text.push_str(&" ".repeat(text.len().wrapping_neg() % 8));
    text
}

/// The settings in the metadata of a safetensors file that flatclip wrote.
pub(crate) fn stated(path: &Path, metadata: &BTreeMap<String, String>) -> Result<Stated> {
    fn parsed<T: serde::de::DeserializeOwned>(
        path: &Path,
        metadata: &BTreeMap<String, String>,
        key: &str,
    ) -> Result<Option<T>> {
        let Some(text) = metadata.get(key) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|e| bad(path, format!("metadata `{key}` is `{text:.40}`: {e}")))
    }
    if !metadata.get("made_by").is_some_and(|by| by.starts_with("flatclip")) {
        return Ok(Stated::default());
    }
    let usual = Preprocess::CLIP;
    let preprocess = Preprocess {
        resize: parsed(path, metadata, "resize")?.unwrap_or(usual.resize),
        filter: parsed(path, metadata, "filter")?.unwrap_or(usual.filter),
        fill: parsed(path, metadata, "fill")?.unwrap_or(usual.fill),
        mean: parsed(path, metadata, "mean")?.unwrap_or(usual.mean),
        std: parsed(path, metadata, "std")?.unwrap_or(usual.std),
    };
    let size = json!({ "image_size": parsed::<u64>(path, metadata, "image_size")? });
    let mut stated = Stated {
        image_heads: parsed(path, metadata, "image_heads")?,
        text_heads: parsed(path, metadata, "text_heads")?,
        activation: metadata.get("activation").and_then(|word| Activation::parse(word)),
        image_form: parsed(path, metadata, "image_form")?,
        text_form: parsed(path, metadata, "text_form")?,
        preprocess: Some(preprocess),
        ..Stated::default()
    };
    stated.keep_sizes("", &size, ["image_size"], [Size::Pixels]);
    Ok(stated)
}
