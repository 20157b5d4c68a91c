//! Tensor names of CLIP checkpoints. flatclip uses OpenAI's names; this file converts all others.

use super::bytes::{Dtype, Stored, bad};
use super::towers::naflex;
use crate::Result;
use Change::{Flat, Part, Plain, Transposed};
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

/// The tensors of the file that make a canonical one, concatenated along the rows: usually one. Some files store queries, keys
/// and values or the halves of a gated MLP separately; a missing part is zero.
#[derive(Clone, Debug)]
pub(crate) struct Recipe(Vec<Option<Stored>>);

impl Recipe {
    /// The stored number type; f32 if parts have different types.
    pub(crate) fn dtype(&self) -> Dtype {
        let mut dtypes = self.0.iter().flatten().map(|part| part.dtype);
        let first = dtypes.next().unwrap_or(Dtype::F32);
        if dtypes.all(|dtype| dtype == first) { first } else { Dtype::F32 }
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        let mut shape = self.0.iter().flatten().next().map(|part| part.shape.clone()).unwrap_or_default();
        let own = shape.first().copied().unwrap_or(0);
        let rows = |part: &Option<Stored>| part.as_ref().map_or(own, |p| p.shape.first().copied().unwrap_or(0));
        let rows = self.0.iter().map(rows).fold(0, usize::saturating_add);
        if let Some(first) = shape.first_mut() {
            *first = rows;
        }
        shape
    }

    pub(crate) fn values(&self) -> Result<Vec<f32>> {
        if let [Some(whole)] = self.0.as_slice() {
            return whole.values();
        }
        let parts = self.0.iter().map(|part| part.as_ref().map(Stored::values).transpose());
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let size = parts.iter().flatten().next().map_or(0, Vec::len);
        Ok(parts.into_iter().flat_map(|part| part.unwrap_or_else(|| vec![0.0; size])).collect())
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
        Naming::OpenAi => renamed(path, tensors, |name| (name.to_owned(), Plain))?,
        Naming::OpenClipCustomText => renamed(path, tensors, open_clip_name)?,
        Naming::BareImageTower => renamed(path, tensors, |name| (format!("visual.{name}"), Plain))?,
        Naming::HuggingFace => renamed(path, tensors, hugging_face_name)?,
    };
    Ok((naming, named))
}

/// How the tensor of a file becomes the canonical one.
#[derive(Clone, Copy)]
enum Change {
    Plain,
    /// Hugging Face stores projections as `Linear` weights.
    Transposed,
    /// Leading dimensions of one element are removed, down to this number.
    Flat(usize),
    /// One of the parts that are concatenated.
    Part(usize, &'static Parts),
}

/// Parts that are concatenated to one tensor.
struct Parts {
    /// Rows of each, in units of the first.
    rows: &'static [usize],
    /// The one that may lack a bias.
    no_bias: Option<usize>,
}

/// Queries, keys and values.
const QKV: &Parts = &Parts { rows: &[1, 1, 1], no_bias: None };
/// timm's have no bias of the keys.
const TIMM_QKV: &Parts = &Parts { rows: &[1, 1, 1], no_bias: Some(1) };
/// Queries, and keys with values.
const Q_KV: &Parts = &Parts { rows: &[1, 2], no_bias: None };
/// The halves of a gated MLP.
const HALVES: &Parts = &Parts { rows: &[1, 1], no_bias: None };

/// The tensors under the names that `rename` returns, with parts concatenated.
fn renamed(
    path: &Path,
    tensors: Vec<Stored>,
    rename: fn(&str) -> (String, Change),
) -> Result<BTreeMap<String, Recipe>> {
    let (mut named, mut stacks) = (BTreeMap::new(), BTreeMap::new());
    for tensor in tensors {
        let (name, change) = rename(&tensor.name);
        let tensor = match change {
            Plain => tensor,
            Transposed => tensor.transposed(),
            Flat(dims) => tensor.without_ones(dims),
            Part(part, parts) => {
                let (_, stack) = stacks.entry(name).or_insert_with(|| (parts, vec![None; parts.rows.len()]));
                stack[part] = Some(tensor);
                continue;
            }
        };
        named.insert(name, Recipe(vec![Some(tensor)]));
    }
    for (name, (parts, stack)) in stacks {
        check_stack(path, &name, parts, &stack)?;
        named.insert(name, Recipe(stack));
    }
    Ok(named)
}

/// Every part except the optional one must be present, with consistent shapes.
fn check_stack(path: &Path, name: &str, parts: &Parts, stack: &[Option<Stored>]) -> Result<()> {
    let optional = parts.no_bias.filter(|_| name.ends_with("in_proj_bias"));
    let absent = (0..stack.len()).find(|&part| stack[part].is_none() && optional != Some(part));
    let (None, Some(first)) = (absent, &stack[0]) else {
        return Err(bad(path, format!("the parts of `{name}` do not all exist; the file is incomplete")));
    };
    for (part, &rows) in stack.iter().zip(parts.rows) {
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

/// A name in the file, the canonical name, and what else changes. Each `*` stands for one part between dots: the number of
/// a block, `weight` or `bias`.
type Names = &'static [(&'static str, &'static str, Change)];

/// timm's vision transformers, below `visual.trunk.` in the file and `visual.` here.
const TRUNK: Names = &[
    ("patch_embed.proj.weight", "conv1.weight", Plain),
    ("patch_embed.proj.bias", "conv1.bias", Plain),
    ("cls_token", "class_embedding", Flat(1)),
    ("pos_embed", "positional_embedding", Flat(2)),
    ("head.weight", "proj", Transposed),
    ("head.bias", "proj.bias", Plain),
    ("norm_pre.*", "ln_pre.*", Plain),
    ("norm.*", "ln_post.*", Plain),
    ("attn_pool.latent", "attn_pool.latent", Flat(1)),
    ("attn_pool.q.*", "attn_pool.in_proj_*", Part(0, Q_KV)),
    ("attn_pool.kv.*", "attn_pool.in_proj_*", Part(1, Q_KV)),
    ("attn_pool.proj.*", "attn_pool.out_proj.*", Plain),
    ("attn_pool.norm.*", "attn_pool.ln_2.*", Plain),
    ("attn_pool.mlp.fc1.*", "attn_pool.mlp.c_fc.*", Plain),
    ("attn_pool.mlp.fc2.*", "attn_pool.mlp.c_proj.*", Plain),
    ("blocks.*.norm1.*", "transformer.resblocks.*.ln_1.*", Plain),
    ("blocks.*.norm2.*", "transformer.resblocks.*.ln_2.*", Plain),
    ("blocks.*.attn.qkv.*", "transformer.resblocks.*.attn.in_proj_*", Plain),
    ("blocks.*.attn.q_proj.*", "transformer.resblocks.*.attn.in_proj_*", Part(0, TIMM_QKV)),
    ("blocks.*.attn.k_proj.*", "transformer.resblocks.*.attn.in_proj_*", Part(1, TIMM_QKV)),
    ("blocks.*.attn.v_proj.*", "transformer.resblocks.*.attn.in_proj_*", Part(2, TIMM_QKV)),
    ("blocks.*.attn.norm.*", "transformer.resblocks.*.attn.ln_inner.*", Plain),
    ("blocks.*.attn.proj.*", "transformer.resblocks.*.attn.out_proj.*", Plain),
    ("blocks.*.mlp.fc1.*", "transformer.resblocks.*.mlp.c_fc.*", Plain),
    ("blocks.*.mlp.fc1_g.*", "transformer.resblocks.*.mlp.c_fc.*", Part(0, HALVES)),
    ("blocks.*.mlp.fc1_x.*", "transformer.resblocks.*.mlp.c_fc.*", Part(1, HALVES)),
    ("blocks.*.mlp.norm.*", "transformer.resblocks.*.mlp.ln_inner.*", Plain),
    ("blocks.*.mlp.fc2.*", "transformer.resblocks.*.mlp.c_proj.*", Plain),
];

const HUGGING_FACE: Names = &[
    ("text_model.embeddings.token_embedding.weight", "token_embedding.weight", Plain),
    ("text_model.embeddings.position_embedding.weight", "positional_embedding", Plain),
    ("text_model.final_layer_norm.*", "ln_final.*", Plain),
    ("text_model.head.weight", "text_projection", Transposed),
    ("text_model.head.bias", "text_projection.bias", Plain),
    ("text_projection.weight", "text_projection", Transposed),
    ("visual_projection.weight", "visual.proj", Transposed),
    ("vision_model.embeddings.patch_embedding.weight", "visual.conv1.weight", Plain),
    ("vision_model.embeddings.patch_embedding.bias", "visual.conv1.bias", Plain),
    ("vision_model.embeddings.class_embedding", "visual.class_embedding", Plain),
    ("vision_model.embeddings.position_embedding.weight", "visual.positional_embedding", Plain),
    // The misspelling is in the published files.
    ("vision_model.pre_layrnorm.weight", "visual.ln_pre.weight", Plain),
    ("vision_model.pre_layrnorm.bias", "visual.ln_pre.bias", Plain),
    ("vision_model.post_layernorm.weight", "visual.ln_post.weight", Plain),
    ("vision_model.post_layernorm.bias", "visual.ln_post.bias", Plain),
    ("vision_model.head.probe", "visual.attn_pool.latent", Flat(1)),
    ("vision_model.head.attention.in_proj_weight", "visual.attn_pool.in_proj_weight", Plain),
    ("vision_model.head.attention.in_proj_bias", "visual.attn_pool.in_proj_bias", Plain),
    ("vision_model.head.attention.out_proj.*", "visual.attn_pool.out_proj.*", Plain),
    ("vision_model.head.layernorm.*", "visual.attn_pool.ln_2.*", Plain),
    ("vision_model.head.mlp.fc1.*", "visual.attn_pool.mlp.c_fc.*", Plain),
    ("vision_model.head.mlp.fc2.*", "visual.attn_pool.mlp.c_proj.*", Plain),
];

/// The blocks of both towers of transformers, below `text_model.` and `vision_model.`.
const HUGGING_FACE_BLOCKS: Names = &[
    ("encoder.layers.*.layer_norm1.*", "transformer.resblocks.*.ln_1.*", Plain),
    ("encoder.layers.*.layer_norm2.*", "transformer.resblocks.*.ln_2.*", Plain),
    ("encoder.layers.*.mlp.fc1.*", "transformer.resblocks.*.mlp.c_fc.*", Plain),
    ("encoder.layers.*.mlp.fc2.*", "transformer.resblocks.*.mlp.c_proj.*", Plain),
    ("encoder.layers.*.self_attn.q_proj.*", "transformer.resblocks.*.attn.in_proj_*", Part(0, QKV)),
    ("encoder.layers.*.self_attn.k_proj.*", "transformer.resblocks.*.attn.in_proj_*", Part(1, QKV)),
    ("encoder.layers.*.self_attn.v_proj.*", "transformer.resblocks.*.attn.in_proj_*", Part(2, QKV)),
    ("encoder.layers.*.self_attn.out_proj.*", "transformer.resblocks.*.attn.out_proj.*", Plain),
];

/// The canonical form of a name of the table, behind `prefix`.
fn looked_up(names: Names, prefix: &str, name: &str) -> Option<(String, Change)> {
    names.iter().find_map(|&(theirs, ours, change)| {
        let pairs = || std::iter::zip(theirs.split('.'), name.split('.'));
        let is_long = theirs.split('.').count() == name.split('.').count();
        let is_same = is_long && pairs().all(|(pattern, part)| pattern == "*" || pattern == part);
        let parts = pairs().filter(|(pattern, _)| *pattern == "*");
        let ours = || parts.fold(format!("{prefix}{ours}"), |ours, (_, part)| ours.replacen('*', part, 1));
        is_same.then(|| (ours(), change))
    })
}

/// `CustomTextCLIP`: the text tower under `text.`, the image tower plain or timm's under `visual.trunk.`.
fn open_clip_name(name: &str) -> (String, Change) {
    if let Some(trunk) = name.strip_prefix("visual.trunk.") {
        return looked_up(TRUNK, "visual.", trunk).unwrap_or_else(|| (name.to_owned(), Plain));
    }
    match name.strip_prefix("text.").unwrap_or(name) {
        "text_projection.weight" => ("text_projection".to_owned(), Transposed),
        other => (other.to_owned(), Plain),
    }
}

fn hugging_face_name(name: &str) -> (String, Change) {
    let block = || match name.strip_prefix("text_model.") {
        Some(block) => looked_up(HUGGING_FACE_BLOCKS, "", block),
        None => looked_up(HUGGING_FACE_BLOCKS, "visual.", name.strip_prefix("vision_model.")?),
    };
    looked_up(HUGGING_FACE, "", name).or_else(block).unwrap_or_else(|| (name.to_owned(), Plain))
}
