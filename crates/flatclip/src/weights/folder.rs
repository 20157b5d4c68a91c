//! Model folders in the layouts of Hugging Face and open_clip: which files hold the tensors, and what the configuration
//! says about them.

use super::bytes::{Stored, bad};
use super::open::read_tensors;
use super::pixels;
use super::towers;
use crate::architecture::{Activation, Preprocess, Size, Stated};
use crate::{Error, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Configurations have a few kilobytes, the index of a sharded model some hundred.
const MAX_JSON: u64 = 16 << 20;
const OPEN_CLIP: [&str; 2] = ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"];
const HUGGING_FACE: [&str; 2] = ["model.safetensors", "pytorch_model.bin"];

/// The weight file (or the index of the shards) of a folder.
pub(crate) fn weight_file(folder: &Path) -> Result<PathBuf> {
    let exists = |name: &&str| folder.join(name).is_file();
    // Safetensors first: the same values, easier to read.
    let order = [
        "open_clip_model.safetensors",
        "model.safetensors",
        "model.safetensors.index.json",
        "open_clip_pytorch_model.bin",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ];
    let found = order.iter().find(|name| exists(name)).map(|name| folder.join(name));
    found.ok_or_else(|| bad(folder, format!("a model folder holds one of {}; this one does not", order.join(", "))))
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
    let hugging_face = HUGGING_FACE.contains(&name) || name.ends_with(".index.json");
    let [open_clip_file, transformers_file] = ["open_clip_config.json", "config.json"].map(|name| folder.join(name));
    let mut stated = match () {
        () if OPEN_CLIP.contains(&name) && open_clip_file.is_file() => {
            open_clip(&open_clip_file, &json(&open_clip_file)?)?
        }
        () if hugging_face && transformers_file.is_file() => {
            hugging_face_config(&transformers_file, &json(&transformers_file)?)?
        }
        () => return Ok(None),
    };
    let processor = folder.join("preprocessor_config.json");
    if hugging_face && processor.is_file() {
        stated.preprocess = Some(pixels::hugging_face(&processor, &json(&processor)?)?);
    }
    Ok(Some(stated))
}

/// The configuration next to a weight file with any name. It may belong to another model, so a configuration that cannot
/// be read or is not of a CLIP model is ignored.
pub(crate) fn stated_nearby(file: &Path) -> Option<Stated> {
    let folder = if file.is_dir() { file } else { file.parent()? };
    let config = folder.join("open_clip_config.json");
    if config.is_file() {
        return open_clip(&config, &json(&config).ok()?).ok();
    }
    let config = folder.join("config.json");
    let found = json(&config).ok()?;
    // Only files of transformers: other programs also name their files config.json.
    let towers = found["vision_config"].is_object() && found["text_config"].is_object();
    if towers { hugging_face_config(&config, &found).ok() } else { None }
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

pub(super) fn activation(path: &Path, word: &Value) -> Result<Option<Activation>> {
    match word {
        Value::Null => Ok(None),
        Value::String(word) => Activation::parse(word)
            .map(Some)
            .ok_or_else(|| bad(path, format!("hidden_act `{word}` is not one of quick_gelu, gelu, gelu_pytorch_tanh"))),
        _ => Err(bad(path, "hidden_act is not a word")),
    }
}

pub(super) fn heads(path: &Path, value: &Value) -> Result<Option<usize>> {
    if value.is_null() {
        return Ok(None);
    }
    let heads = value.as_u64().filter(|n| (1..=65_536).contains(n)).map(|heads| heads as usize);
    heads.map(Some).ok_or_else(|| bad(path, format!("the number of attention heads is {value}")))
}

/// `config.json` of transformers: both towers, or the image tower at top level.
pub(super) fn hugging_face_config(path: &Path, json: &Value) -> Result<Stated> {
    let alone = !json["vision_config"].is_object();
    let vision = if alone { json } else { &json["vision_config"] };
    let text = if alone { &Value::Null } else { &json["text_config"] };
    let mut stated = towers::hugging_face(path, json, vision, text)?;
    // The defaults of transformers' processor without a preprocessor_config.json.
    let siglip = json["model_type"].as_str().is_some_and(|kind| kind.starts_with("siglip"));
    stated.preprocess = siglip.then_some(Preprocess::SIGLIP);
    stated.keep_sizes("", json, ["projection_dim"], [Size::EmbedDim]);
    let place = if alone { "" } else { "vision_config" };
    stated.keep_sizes(place, vision, ["hidden_size", "num_hidden_layers", "patch_size", "image_size"], Size::IMAGE);
    let keys = ["hidden_size", "num_hidden_layers", "max_position_embeddings", "vocab_size"];
    stated.keep_sizes("text_config", text, keys, Size::TEXT);
    Ok(stated)
}

/// `open_clip_config.json`. Its default activation is GELU.
pub(super) fn open_clip(path: &Path, json: &Value) -> Result<Stated> {
    let model = &json["model_cfg"];
    let (vision, text) = (&model["vision_cfg"], &model["text_cfg"]);
    let other = [
        (&text["hf_model_name"], "a text tower of transformers"),
        (&vision["attentional_pool"], "an attentional pool"),
    ];
    if let Some((_, what)) = other.iter().find(|(value, _)| !matches!(value, Value::Null | Value::Bool(false))) {
        return Err(bad(path, format!("the model has {what}, which flatclip does not compute")));
    }
    let mut stated = towers::open_clip(path, json)?;
    stated.preprocess = pixels::open_clip(path, &json["preprocess_cfg"])?;
    stated.keep_sizes("model_cfg", model, ["embed_dim"], [Size::EmbedDim]);
    stated.keep_sizes("model_cfg.vision_cfg", vision, ["width", "layers", "patch_size", "image_size"], Size::IMAGE);
    stated.keep_sizes("model_cfg.text_cfg", text, ["width", "layers", "context_length", "vocab_size"], Size::TEXT);
    Ok(stated)
}
