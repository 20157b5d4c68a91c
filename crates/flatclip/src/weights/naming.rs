//! Tensor names of CLIP checkpoints. flatclip uses OpenAI's names; this file converts all others.

use super::bytes::{Dtype, Stored, bad};
use super::towers::naflex;
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// The naming scheme of the tensors.
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

/// How a canonical tensor is made from the tensors of the file.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    Plain(Stored),
    /// Transposed: Hugging Face stores projections as `Linear` weights.
    Transposed(Stored),
    /// Weights that the file stores separately (queries, keys, values; the halves of a gated MLP), concatenated along the rows.
    /// Missing parts are zero.
    Stacked(Vec<Option<Stored>>),
}

impl Recipe {
    /// The stored number type; f32 if parts have different types.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::Plain(stored) | Self::Transposed(stored) => stored.dtype,
            Self::Stacked(parts) => {
                let mut dtypes = parts.iter().flatten().map(|part| part.dtype);
                let first = dtypes.next().unwrap_or(Dtype::F32);
                if dtypes.all(|dtype| dtype == first) { first } else { Dtype::F32 }
            }
        }
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Self::Plain(stored) => stored.shape.clone(),
            Self::Transposed(stored) => stored.shape.iter().rev().copied().collect(),
            Self::Stacked(parts) => {
                let mut shape = parts.iter().flatten().next().map(|part| part.shape.clone()).unwrap_or_default();
                let own = shape.first().copied().unwrap_or(0);
                let rows = |part: &Option<Stored>| part.as_ref().map_or(own, |p| p.shape.first().copied().unwrap_or(0));
                let rows = parts.iter().map(rows).fold(0, usize::saturating_add);
                if let Some(first) = shape.first_mut() {
                    *first = rows;
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
                let parts = parts.iter().map(|part| part.as_ref().map(Stored::values).transpose());
                let parts = parts.collect::<Result<Vec<_>>>()?;
                let size = parts.iter().flatten().next().map_or(0, Vec::len);
                Ok(parts.into_iter().flat_map(|part| part.unwrap_or_else(|| vec![0.0; size])).collect())
            }
        }
    }
}

/// Tensors that are not weights: sizes, counters, masks, index tables.
fn is_ballast(name: &str) -> bool {
    const WHOLE: [&str; 4] = ["input_resolution", "context_length", "vocab_size", "attn_mask"];
    const ENDS: [&str; 4] = [".num_batches_tracked", ".position_ids", ".attn_mask", ".cls_mask"];
    WHOLE.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Strips the prefix that training wrappers add to every name.
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

/// The tensors under canonical names; tensors that are not weights are skipped.
pub(crate) fn canonical(path: &Path, mut tensors: Vec<Stored>) -> Result<(Naming, BTreeMap<String, Recipe>)> {
    strip_wrappers(&mut tensors);
    let naming = detect(&tensors).ok_or_else(|| {
        let some: Vec<&str> = tensors.iter().take(3).map(|t| t.name.as_str()).collect();
        let found = if some.is_empty() { "no tensors".to_owned() } else { format!("`{}`", some.join("`, `")) };
        bad(path, format!("not a CLIP checkpoint: expected tensors such as `visual.conv1.weight` (OpenAI, open_clip) or `vision_model.embeddings.patch_embedding.weight` (Hugging Face), found {found}"))
    })?;
    tensors.retain(|t| !is_ballast(&t.name));
    // It has the names of the fixed-resolution model, but its patch embedding is not a convolution.
    if tensors.iter().any(|t| t.name == "vision_model.embeddings.patch_embedding.weight" && t.shape.len() == 2) {
        return Err(naflex(path));
    }
    let named = match naming {
        Naming::OpenAi => tensors.into_iter().map(|t| (t.name.clone(), Recipe::Plain(t))).collect(),
        Naming::OpenClipCustomText => renamed(path, tensors, open_clip_name, KEY_BIAS)?,
        Naming::BareImageTower => {
            tensors.into_iter().map(|t| (format!("visual.{}", t.name), Recipe::Plain(t))).collect()
        }
        Naming::HuggingFace => renamed(path, tensors, hugging_face_name, None)?,
    };
    Ok((naming, named))
}

/// timm's separate queries, keys and values have no bias of the keys.
const KEY_BIAS: Option<usize> = Some(1);

/// The tensors under the names that `rename` returns, with parts concatenated; `no_bias` is the part without a bias.
fn renamed(
    path: &Path,
    tensors: Vec<Stored>,
    rename: fn(&str) -> Renamed,
    no_bias: Option<usize>,
) -> Result<BTreeMap<String, Recipe>> {
    let mut named = BTreeMap::new();
    let mut stacks: BTreeMap<String, Stack> = BTreeMap::new();
    for mut tensor in tensors {
        match rename(&tensor.name) {
            Renamed::Plain(name) => drop(named.insert(name, Recipe::Plain(tensor))),
            Renamed::Transposed(name) => drop(named.insert(name, Recipe::Transposed(tensor))),
            Renamed::Flat(name, dims) => {
                drop_ones(&mut tensor, dims);
                named.insert(name, Recipe::Plain(tensor));
            }
            Renamed::Part(name, part, rows) => {
                let parts =
                    &mut stacks.entry(name).or_insert_with(|| Stack { rows, parts: vec![None; rows.len()] }).parts;
                if let Some(place) = parts.get_mut(part) {
                    *place = Some(tensor);
                }
            }
        }
    }
    for (name, stack) in stacks {
        stack.check(path, &name, no_bias.filter(|_| stack.rows == QKV && name.ends_with("in_proj_bias")))?;
        named.insert(name, Recipe::Stacked(stack.parts));
    }
    Ok(named)
}

/// Removes leading dimensions of one element, down to `dims`.
fn drop_ones(tensor: &mut Stored, dims: usize) {
    let ones = tensor.shape.iter().take_while(|&&size| size == 1).count().min(tensor.shape.len().saturating_sub(dims));
    tensor.shape.drain(..ones);
    if let Some(strides) = &mut tensor.strides {
        strides.drain(..ones);
    }
}

/// Tensors that are concatenated to one.
struct Stack {
    /// Rows of each part, in units of the first.
    rows: &'static [usize],
    parts: Vec<Option<Stored>>,
}

/// Queries, keys and values.
const QKV: &[usize] = &[1, 1, 1];
/// Queries, and keys with values.
const Q_KV: &[usize] = &[1, 2];
/// The halves of a gated MLP.
const HALVES: &[usize] = &[1, 1];

impl Stack {
    /// Every part except the optional one must be present, with consistent shapes.
    fn check(&self, path: &Path, name: &str, optional: Option<usize>) -> Result<()> {
        let absent = (0..self.parts.len()).find(|&part| self.parts[part].is_none() && optional != Some(part));
        let (None, Some(first)) = (absent, &self.parts[0]) else {
            return Err(bad(path, format!("the parts of `{name}` do not all exist; the file is incomplete")));
        };
        for (part, &rows) in self.parts.iter().zip(self.rows) {
            let Some(part) = part else { continue };
            let mut expected = first.shape.clone();
            if let Some(first) = expected.first_mut() {
                *first = first.saturating_mul(rows);
            }
            if part.shape != expected {
                let found = format!("`{}` has {:?}, expected {expected:?}", part.name, part.shape);
                return Err(bad(path, format!("the parts of `{name}` differ in shape: {found}")));
            }
        }
        Ok(())
    }
}

enum Renamed {
    Plain(String),
    Transposed(String),
    /// With leading dimensions of one element down to this number.
    Flat(String, usize),
    /// One of the parts of a [`Stack`] with these rows.
    Part(String, usize, &'static [usize]),
}

/// `CustomTextCLIP`: the text tower under `text.`, the image tower plain or timm's under `visual.trunk.`.
fn open_clip_name(name: &str) -> Renamed {
    if let Some(trunk) = name.strip_prefix("visual.trunk.") {
        return trunk_name(trunk).unwrap_or_else(|| Renamed::Plain(name.to_owned()));
    }
    match name.strip_prefix("text.").unwrap_or(name) {
        "text_projection.weight" => Renamed::Transposed("text_projection".into()),
        other => Renamed::Plain(other.to_owned()),
    }
}

/// The names of timm's vision transformers.
fn trunk_name(name: &str) -> Option<Renamed> {
    let fixed = match name {
        "patch_embed.proj.weight" => "visual.conv1.weight",
        "patch_embed.proj.bias" => "visual.conv1.bias",
        "cls_token" => return Some(Renamed::Flat("visual.class_embedding".into(), 1)),
        "pos_embed" => return Some(Renamed::Flat("visual.positional_embedding".into(), 2)),
        "attn_pool.latent" => return Some(Renamed::Flat("visual.attn_pool.latent".into(), 1)),
        "head.weight" => return Some(Renamed::Transposed("visual.proj".into())),
        "head.bias" => "visual.proj.bias",
        _ => return trunk_part(name),
    };
    Some(Renamed::Plain(fixed.to_owned()))
}

fn trunk_part(name: &str) -> Option<Renamed> {
    let (part, kind) = name.rsplit_once('.')?;
    if let Some(pool) = part.strip_prefix("attn_pool.") {
        let ours = match pool {
            "q" => return Some(Renamed::Part(format!("visual.attn_pool.in_proj_{kind}"), 0, Q_KV)),
            "kv" => return Some(Renamed::Part(format!("visual.attn_pool.in_proj_{kind}"), 1, Q_KV)),
            "proj" => "out_proj",
            "norm" => "ln_2",
            "mlp.fc1" => "mlp.c_fc",
            "mlp.fc2" => "mlp.c_proj",
            _ => return None,
        };
        return Some(Renamed::Plain(format!("visual.attn_pool.{ours}.{kind}")));
    }
    let Some((layer, part)) = part.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) else {
        let ours = match part {
            "norm_pre" => "ln_pre",
            "norm" => "ln_post",
            _ => return None,
        };
        return Some(Renamed::Plain(format!("visual.{ours}.{kind}")));
    };
    let block = format!("visual.transformer.resblocks.{layer}");
    let ours = match part {
        "norm1" => "ln_1",
        "norm2" => "ln_2",
        "attn.qkv" => return Some(Renamed::Plain(format!("{block}.attn.in_proj_{kind}"))),
        "attn.q_proj" => return Some(Renamed::Part(format!("{block}.attn.in_proj_{kind}"), 0, QKV)),
        "attn.k_proj" => return Some(Renamed::Part(format!("{block}.attn.in_proj_{kind}"), 1, QKV)),
        "attn.v_proj" => return Some(Renamed::Part(format!("{block}.attn.in_proj_{kind}"), 2, QKV)),
        "attn.norm" => "attn.ln_inner",
        "attn.proj" => "attn.out_proj",
        "mlp.fc1" => "mlp.c_fc",
        "mlp.fc1_g" => return Some(Renamed::Part(format!("{block}.mlp.c_fc.{kind}"), 0, HALVES)),
        "mlp.fc1_x" => return Some(Renamed::Part(format!("{block}.mlp.c_fc.{kind}"), 1, HALVES)),
        "mlp.norm" => "mlp.ln_inner",
        "mlp.fc2" => "mlp.c_proj",
        _ => return None,
    };
    Some(Renamed::Plain(format!("{block}.{ours}.{kind}")))
}

fn hugging_face_name(name: &str) -> Renamed {
    let fixed = match name {
        "text_model.embeddings.token_embedding.weight" => "token_embedding.weight",
        "text_model.embeddings.position_embedding.weight" => "positional_embedding",
        "text_model.final_layer_norm.weight" => "ln_final.weight",
        "text_model.final_layer_norm.bias" => "ln_final.bias",
        "vision_model.embeddings.patch_embedding.weight" => "visual.conv1.weight",
        "vision_model.embeddings.patch_embedding.bias" => "visual.conv1.bias",
        "vision_model.head.probe" => return Renamed::Flat("visual.attn_pool.latent".into(), 1),
        "vision_model.head.attention.in_proj_weight" => "visual.attn_pool.in_proj_weight",
        "vision_model.head.attention.in_proj_bias" => "visual.attn_pool.in_proj_bias",
        "text_model.head.weight" => return Renamed::Transposed("text_projection".into()),
        "text_model.head.bias" => "text_projection.bias",
        "vision_model.embeddings.class_embedding" => "visual.class_embedding",
        "vision_model.embeddings.position_embedding.weight" => "visual.positional_embedding",
        // The misspelling is in the published files.
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
    if let Some((part, kind)) = name.strip_prefix("vision_model.head.").and_then(|rest| rest.rsplit_once('.')) {
        let ours = match part {
            "attention.out_proj" => "out_proj",
            "layernorm" => "ln_2",
            "mlp.fc1" => "mlp.c_fc",
            "mlp.fc2" => "mlp.c_proj",
            _ => return None,
        };
        return Some(Renamed::Plain(format!("visual.attn_pool.{ours}.{kind}")));
    }
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
            return Some(Renamed::Part(format!("{tower}.{layer}.attn.in_proj_{kind}"), which, QKV));
        }
    };
    Some(Renamed::Plain(format!("{tower}.{layer}.{ours}.{kind}")))
}
