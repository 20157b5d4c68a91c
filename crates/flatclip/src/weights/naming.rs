//! The names that CLIP's tensors go by. Inside flatclip they are OpenAI's; this file renames everything else.

use super::bytes::{Dtype, Stored, bad};
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Who named the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Naming {
    /// openai/CLIP, and open_clip's `CLIP` class.
    OpenAi,
    /// open_clip's `CustomTextCLIP`: the text tower under `text.`.
    OpenClipCustomText,
    /// Hugging Face transformers.
    HuggingFace,
    /// An image tower alone: OpenAI's names without `visual.`.
    BareImageTower,
}

/// How a canonical tensor comes out of the tensors of the file.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    Plain(Stored),
    /// Hugging Face keeps projections as `Linear` weights, the other way round.
    Transposed(Stored),
    /// Query, key and value weights, one below the other.
    Stacked(Box<[Stored; 3]>),
}

impl Recipe {
    /// How the numbers are stored; parts of different types are f32 together.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::Plain(stored) | Self::Transposed(stored) => stored.dtype,
            Self::Stacked(parts) if parts.iter().all(|p| p.dtype == parts[0].dtype) => parts[0].dtype,
            Self::Stacked(_) => Dtype::F32,
        }
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Self::Plain(stored) => stored.shape.clone(),
            Self::Transposed(stored) => stored.shape.iter().rev().copied().collect(),
            Self::Stacked(parts) => {
                let mut shape = parts[0].shape.clone();
                if let Some(rows) = shape.first_mut() {
                    *rows = parts.iter().map(|p| p.shape.first().copied().unwrap_or(0)).fold(0, usize::saturating_add);
                }
                shape
            }
        }
    }

    pub(crate) fn values(&self) -> Result<Vec<f32>> {
        match self {
            Self::Plain(stored) => stored.values(),
            Self::Transposed(stored) => {
                let values = stored.values()?;
                let &[rows, cols] = stored.shape.as_slice() else { return Ok(values) };
                Ok((0..cols).flat_map(|c| (0..rows).map(move |r| (r, c))).map(|(r, c)| values[r * cols + c]).collect())
            }
            Self::Stacked(parts) => {
                let mut all = parts[0].values()?;
                all.extend(parts[1].values()?);
                all.extend(parts[2].values()?);
                Ok(all)
            }
        }
    }
}

/// Tensors that carry no weight: sizes, counters, masks, index tables.
fn is_ballast(name: &str) -> bool {
    const WHOLE: [&str; 5] = ["input_resolution", "context_length", "vocab_size", "logit_bias", "attn_mask"];
    const ENDS: [&str; 4] = [".num_batches_tracked", ".position_ids", ".attn_mask", ".cls_mask"];
    WHOLE.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Strips what training wrappers put before every name.
fn strip_wrappers(tensors: &mut [Stored]) {
    for prefix in ["module.", "_orig_mod.", "model.", "clip."] {
        if !tensors.is_empty() && tensors.iter().all(|t| t.name.starts_with(prefix)) {
            for tensor in tensors.iter_mut() {
                tensor.name.drain(..prefix.len());
            }
        }
    }
}

fn detect(tensors: &[Stored]) -> Option<Naming> {
    let any = |prefix: &str| tensors.iter().any(|t| t.name.starts_with(prefix));
    let has = |name: &str| tensors.iter().any(|t| t.name == name);
    if any("vision_model.") || any("text_model.") {
        Some(Naming::HuggingFace)
    } else if any("visual.") && any("text.") {
        Some(Naming::OpenClipCustomText)
    } else if any("visual.") {
        Some(Naming::OpenAi)
    } else if has("conv1.weight") && (has("class_embedding") || any("attnpool.")) {
        Some(Naming::BareImageTower)
    } else {
        None
    }
}

/// The tensors under canonical names; what carries no weight is skipped.
pub(crate) fn canonical(path: &Path, mut tensors: Vec<Stored>) -> Result<(Naming, BTreeMap<String, Recipe>)> {
    strip_wrappers(&mut tensors);
    let naming = detect(&tensors).ok_or_else(|| {
        let some: Vec<&str> = tensors.iter().take(3).map(|t| t.name.as_str()).collect();
        let found = if some.is_empty() { "no tensors".to_owned() } else { format!("`{}`", some.join("`, `")) };
        bad(path, format!("not a CLIP checkpoint: expected tensors such as `visual.conv1.weight` (OpenAI, open_clip) or `vision_model.embeddings.patch_embedding.weight` (Hugging Face), found {found}"))
    })?;
    tensors.retain(|t| !is_ballast(&t.name));
    let named = match naming {
        Naming::OpenAi => tensors.into_iter().map(|t| (t.name.clone(), Recipe::Plain(t))).collect(),
        Naming::OpenClipCustomText => tensors
            .into_iter()
            .map(|t| (t.name.strip_prefix("text.").unwrap_or(&t.name).to_owned(), Recipe::Plain(t)))
            .collect(),
        Naming::BareImageTower => {
            tensors.into_iter().map(|t| (format!("visual.{}", t.name), Recipe::Plain(t))).collect()
        }
        Naming::HuggingFace => hugging_face(path, tensors)?,
    };
    Ok((naming, named))
}

fn hugging_face(path: &Path, tensors: Vec<Stored>) -> Result<BTreeMap<String, Recipe>> {
    let mut named = BTreeMap::new();
    let mut heads: BTreeMap<String, [Option<Stored>; 3]> = BTreeMap::new();
    for tensor in tensors {
        match hugging_face_name(&tensor.name) {
            Renamed::Plain(name) => drop(named.insert(name, Recipe::Plain(tensor))),
            Renamed::Transposed(name) => drop(named.insert(name, Recipe::Transposed(tensor))),
            Renamed::Part(name, part) => heads.entry(name).or_default()[part] = Some(tensor),
        }
    }
    for (name, parts) in heads {
        let [Some(q), Some(k), Some(v)] = parts else {
            return Err(bad(
                path,
                format!("query, key and value weights do not all exist for `{name}`; the file is incomplete"),
            ));
        };
        if q.shape != k.shape || q.shape != v.shape {
            let reason = format!(
                "query, key and value weights for `{name}` differ in shape: {:?}, {:?}, {:?}",
                q.shape, k.shape, v.shape
            );
            return Err(bad(path, reason));
        }
        named.insert(name, Recipe::Stacked(Box::new([q, k, v])));
    }
    Ok(named)
}

enum Renamed {
    Plain(String),
    Transposed(String),
    Part(String, usize),
}

fn hugging_face_name(name: &str) -> Renamed {
    let fixed = match name {
        "text_model.embeddings.token_embedding.weight" => "token_embedding.weight",
        "text_model.embeddings.position_embedding.weight" => "positional_embedding",
        "text_model.final_layer_norm.weight" => "ln_final.weight",
        "text_model.final_layer_norm.bias" => "ln_final.bias",
        "vision_model.embeddings.patch_embedding.weight" => "visual.conv1.weight",
        "vision_model.embeddings.class_embedding" => "visual.class_embedding",
        "vision_model.embeddings.position_embedding.weight" => "visual.positional_embedding",
        // The misspelling is real.
        "vision_model.pre_layrnorm.weight" => "visual.ln_pre.weight",
        "vision_model.pre_layrnorm.bias" => "visual.ln_pre.bias",
        "vision_model.post_layernorm.weight" => "visual.ln_post.weight",
        "vision_model.post_layernorm.bias" => "visual.ln_post.bias",
        "text_projection.weight" => return Renamed::Transposed("text_projection".into()),
        "visual_projection.weight" => return Renamed::Transposed("visual.proj".into()),
        _ => return hugging_face_block(name).unwrap_or_else(|| Renamed::Plain(name.to_owned())),
    };
    Renamed::Plain(fixed.to_owned())
}

fn hugging_face_block(name: &str) -> Option<Renamed> {
    let (tower, rest) = if let Some(rest) = name.strip_prefix("text_model.encoder.layers.") {
        ("transformer.resblocks", rest)
    } else {
        ("visual.transformer.resblocks", name.strip_prefix("vision_model.encoder.layers.")?)
    };
    let (layer, rest) = rest.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    let ours = match part {
        "layer_norm1" => "ln_1",
        "layer_norm2" => "ln_2",
        "mlp.fc1" => "mlp.c_fc",
        "mlp.fc2" => "mlp.c_proj",
        "self_attn.out_proj" => "attn.out_proj",
        _ => {
            let which = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"].iter().position(|p| *p == part)?;
            return Some(Renamed::Part(format!("{tower}.{layer}.attn.in_proj_{kind}"), which));
        }
    };
    Some(Renamed::Plain(format!("{tower}.{layer}.{ours}.{kind}")))
}
