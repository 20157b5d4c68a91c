//! Settings of the towers in configuration files: sizes, heads, activations, and the parts in which other model families
//! differ from OpenAI's transformer.

use super::bytes::bad;
use super::pixels::{self, setting};
use crate::Result;
use crate::architecture::{
    Activation, ImagePool, Preprocess, Projection, Rotary, Size, Stated, TextForm, TextPool, VitForm,
};
use serde_json::{Value, json};
use std::path::Path;

/// transformers' `config.json`: CLIPModel, or SiglipModel (SigLIP, and SigLIP 2 of fixed resolution); both towers, or the
/// image tower at top level.
pub(super) fn hugging_face(path: &Path, json: &Value) -> Result<Stated> {
    let alone = !json["vision_config"].is_object();
    let (place, vision) = if alone { ("", json) } else { ("vision_config", &json["vision_config"]) };
    let text = if alone { &Value::Null } else { &json["text_config"] };
    let kind = json["model_type"].as_str().unwrap_or_default();
    if kind.starts_with("siglip2") {
        return Err(naflex(path));
    }
    let siglip = kind.starts_with("siglip");
    // transformers' defaults, which its files omit.
    let (usual_heads, usual_activation, usual_epsilon) = match siglip {
        true => (Some(12), Activation::GeluTanh, 1e-6),
        false => (None, Activation::QuickGelu, 1e-5),
    };
    let activation = |tower: &Value| {
        let expected = "one of quick_gelu, gelu, gelu_pytorch_tanh";
        setting(path, tower, "hidden_act", expected, |word| Activation::parse(word.as_str()?))
    };
    let (image, words) = (activation(vision)?, activation(text)?);
    let image = image.or(words.filter(|_| !siglip)).unwrap_or(usual_activation);
    let words = words.unwrap_or(if siglip { usual_activation } else { image });
    let image_heads = heads(path, vision, "num_attention_heads")?.or(usual_heads);
    let mut image_form = if siglip { VitForm::siglip(image_heads.unwrap_or(0), 0) } else { VitForm::CLIP };
    let mut text_form = if siglip { TextForm::SIGLIP } else { TextForm::CLIP };
    image_form.epsilon = epsilon(path, vision, "layer_norm_eps", usual_epsilon)?;
    text_form.epsilon = epsilon(path, text, "layer_norm_eps", usual_epsilon)?;
    text_form.activation = (words != image).then_some(words);
    if siglip {
        if vision["vision_use_head"].as_bool() == Some(false) {
            return Err(bad(path, "vision_use_head is false; flatclip computes SigLIP with its attention pool"));
        }
        let stated = text["pad_token_id"].as_u64().and_then(|id| u32::try_from(id).ok());
        text_form.padding = stated.unwrap_or_else(|| TextForm::siglip_padding(text["vocab_size"].as_u64()));
    }
    let mut stated = Stated {
        image_heads,
        text_heads: heads(path, text, "num_attention_heads")?.or(usual_heads),
        activation: Some(image),
        image_form: Some(image_form),
        text_form: Some(text_form),
        logit_bias: siglip && text.is_object(),
        // The default of transformers' processor without a preprocessor_config.json.
        preprocess: siglip.then_some(Preprocess::SIGLIP),
        sizes: Vec::new(),
    };
    stated.keep_sizes("", json, ["projection_dim"], [Size::EmbedDim]);
    stated.keep_sizes(place, vision, ["hidden_size", "num_hidden_layers", "patch_size", "image_size"], Size::IMAGE);
    let keys = ["hidden_size", "num_hidden_layers", "max_position_embeddings", "vocab_size"];
    stated.keep_sizes("text_config", text, keys, Size::TEXT);
    Ok(stated)
}

/// SigLIP 2 for images of any size has the tensor names of the fixed-resolution model but computes something else.
pub(super) fn naflex(path: &Path) -> crate::Error {
    bad(
        path,
        "a NaFlex SigLIP 2 model (Siglip2Model), which flatclip does not compute; take the model of fixed resolution, such as \
         google/siglip2-base-patch16-224, or bring features",
    )
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
    let quick = model["quick_gelu"].as_bool().unwrap_or(false);
    let of_tower = |tower: &Value| match tower["act_kwargs"]["approximate"].as_str() {
        _ if quick => Activation::QuickGelu,
        Some("tanh") => Activation::GeluTanh,
        _ => Activation::Gelu,
    };
    let trunk = match vision["timm_model_name"].as_str() {
        Some(name) => Trunk::read(path, name, vision, &json["golden_trunk"])?,
        None => Trunk::plain(path, vision, of_tower(vision))?,
    };
    let words = of_tower(text);
    let causal = text["no_causal_mask"].as_bool() != Some(true);
    let pool = match text["pool_type"].as_str().unwrap_or("argmax") {
        "argmax" => TextPool::End,
        "last" if !causal => TextPool::Last,
        other => {
            let hint = "flatclip reads texts at argmax, or at last where no mask hides it";
            return Err(bad(path, format!("text_cfg.pool_type is {other}; {hint}")));
        }
    };
    let text_form = TextForm {
        causal,
        pool,
        padding: if pool == TextPool::Last { TextForm::siglip_padding(text["vocab_size"].as_u64()) } else { 0 },
        epsilon: epsilon(path, &text["norm_kwargs"], "eps", 1e-5)?,
        projection_bias: text["proj_bias"].as_bool() == Some(true),
        activation: (words != trunk.activation).then_some(words),
    };
    let mut stated = Stated {
        image_heads: trunk.heads,
        text_heads: heads(path, text, "heads")?,
        activation: Some(trunk.activation),
        image_form: Some(trunk.form),
        text_form: Some(text_form),
        logit_bias: !model["init_logit_bias"].is_null(),
        preprocess: pixels::open_clip(path, &json["preprocess_cfg"])?,
        sizes: Vec::new(),
    };
    stated.keep_sizes("model_cfg", model, ["embed_dim"], [Size::EmbedDim]);
    stated.keep_sizes("model_cfg.vision_cfg", vision, ["width", "layers", "patch_size", "image_size"], Size::IMAGE);
    stated.keep_sizes("model_cfg.text_cfg", text, ["width", "layers", "context_length", "vocab_size"], Size::TEXT);
    Ok(stated)
}

/// The epsilon of the norms: a small positive number.
fn epsilon(path: &Path, json: &Value, key: &str, usual: f32) -> Result<f32> {
    let read = |value: &Value| value.as_f64().filter(|epsilon| (1e-12..=1e-2).contains(epsilon));
    let found = setting(path, json, key, &format!("a number near {usual}, the epsilon of the norms"), read)?;
    Ok(found.map_or(usual, |epsilon| epsilon as f32))
}

fn heads(path: &Path, json: &Value, key: &str) -> Result<Option<usize>> {
    setting(path, json, key, "a number of attention heads", |value| {
        value.as_u64().filter(|heads| (1..=65_536).contains(heads)).map(|heads| heads as usize)
    })
}

/// Settings of an image tower that cannot be derived from its tensors.
struct Trunk {
    heads: Option<usize>,
    activation: Activation,
    form: VitForm,
}

impl Trunk {
    /// open_clip's own ViT or ModifiedResNet.
    fn plain(path: &Path, vision: &Value, activation: Activation) -> Result<Self> {
        if let Some(pool) = vision["pool_type"].as_str().filter(|pool| *pool != "tok") {
            return Err(bad(path, format!("vision_cfg.pool_type is {pool}; flatclip reads the class token (tok)")));
        }
        let head_width = vision["head_width"].as_u64().filter(|&width| width > 0);
        let stated = head_width.and_then(|head| Some(vision["width"].as_u64()? / head));
        let form = VitForm {
            epsilon: epsilon(path, &vision["norm_kwargs"], "eps", 1e-5)?,
            pre_norm: vision["no_ln_pre"].as_bool() != Some(true),
            ..VitForm::CLIP
        };
        Ok(Self { heads: heads(path, &json!({ "heads": stated }), "heads")?, activation, form })
    }

    /// A timm tower: described by its name alone, or by an entry with the arguments of its class.
    fn read(path: &Path, name: &str, vision: &Value, arguments: &Value) -> Result<Self> {
        let trunk = match arguments {
            Value::Object(_) => Self::of_arguments(path, arguments)?,
            _ => Self::named(name).ok_or_else(|| {
                bad(path, format!("the image tower {name} of timm is not one that flatclip computes (ViTs of CLIP, SigLIP, PE-Core and EVA-02); bring features instead"))
            })?,
        };
        let projection = match vision["timm_proj"].as_str().unwrap_or_default() {
            "none" => Projection::None,
            "" => Projection::Affine,
            other => {
                let reason = format!("vision_cfg.timm_proj is {other}; flatclip computes none and the default");
                return Err(bad(path, reason));
            }
        };
        Ok(Self { form: VitForm { projection, ..trunk.form }, ..trunk })
    }

    /// The published models.
    fn named(name: &str) -> Option<Self> {
        use Activation::{Gelu, GeluTanh, QuickGelu};
        let (size, rest) = name.strip_prefix("vit_").unwrap_or(name).split_once("_patch")?;
        let patch: usize = rest.split('_').next()?.parse().ok()?;
        let heads = match size {
            "pe_core_tiny" => 3,
            "small" | "pe_core_small" => 6,
            "medium" => 8,
            "base" | "pe_core_base" | "eva02_base" => 12,
            "large" | "huge" | "giant" | "gigantic" | "so400m" | "giantopt" | "pe_core_large" | "pe_core_gigantic"
            | "eva02_large" => 16,
            _ => return None,
        };
        let (form, activation) = match () {
            () if size.starts_with("pe_core_") => (VitForm::pe_core(size != "pe_core_gigantic", 0), Gelu),
            () if size.starts_with("eva02_") && rest.contains("_clip_") => (VitForm::EVA02, Gelu),
            () if rest.contains("_siglip_gap") => return None,
            () if rest.contains("_siglip_") => {
                let tanh = matches!((size, patch), ("base", 32) | ("so400m", 16) | ("giantopt", _));
                (VitForm::siglip(heads, 0), if tanh { GeluTanh } else { Gelu })
            }
            () if rest.contains("_clip_quickgelu_") => (VitForm::CLIP, QuickGelu),
            () if rest.contains("_clip_") => (VitForm::CLIP, Gelu),
            () => return None,
        };
        Some(Self { heads: Some(heads), activation, form })
    }

    /// The arguments of timm's classes `VisionTransformer` and `Eva`, with their defaults.
    fn of_arguments(path: &Path, arguments: &Value) -> Result<Self> {
        let flag = |key: &str| arguments[key].as_bool().unwrap_or(false);
        let number = |key: &str, usual: f64| arguments[key].as_f64().unwrap_or(usual);
        let image_heads = heads(path, arguments, "num_heads")?;
        let pre_norm = flag("pre_norm") || flag("use_pre_transformer_norm");
        let class_token = arguments["class_token"].as_bool().unwrap_or(true);
        let pool = match arguments["global_pool"].as_str().unwrap_or("token") {
            "map" => {
                let own = heads(path, arguments, "attn_pool_num_heads")?;
                ImagePool::Attention { heads: own.or(image_heads).unwrap_or(0), mlp: 0 }
            }
            "token" if class_token => ImagePool::ClassToken,
            other => return Err(bad(path, format!("global_pool is {other}; flatclip computes token and map"))),
        };
        let rotary = flag("use_rot_pos_emb").then(|| rotary(path, arguments, &number)).transpose()?;
        let act = arguments["act_layer"].as_str().unwrap_or("gelu");
        let activation = match act {
            act if act.contains("tanh") => Activation::GeluTanh,
            act if act.contains("quick") => Activation::QuickGelu,
            act if act.starts_with("gelu") => Activation::Gelu,
            other => return Err(bad(path, format!("act_layer is {other}, expected a GELU"))),
        };
        let form = VitForm {
            class_token,
            // In timm, the patch convolution has no bias if a norm precedes the blocks.
            patch_bias: !pre_norm,
            pre_norm,
            epsilon: epsilon(path, arguments, "norm_eps", 1e-6)?,
            rotary,
            attention_norm: flag("scale_attn_inner"),
            gated: flag("swiglu_mlp"),
            mlp_norm: flag("scale_mlp"),
            pool,
            projection: Projection::Affine,
        };
        Ok(Self { heads: image_heads, activation, form })
    }
}

fn rotary(path: &Path, arguments: &Value, number: &dyn Fn(&str, f64) -> f64) -> Result<Rotary> {
    let column_first = match arguments["rope_grid_indexing"].as_str().unwrap_or("ij") {
        "ij" => false,
        "xy" => true,
        other => return Err(bad(path, format!("rope_grid_indexing is {other}, expected ij or xy"))),
    };
    if arguments["rope_rotate_half"].as_bool() == Some(true) {
        return Err(bad(path, "rope_rotate_half is true; flatclip turns neighbouring channels"));
    }
    let shape = &arguments["ref_feat_shape"];
    let reference = match shape.as_array().map(|sides| sides.iter().map(Value::as_f64).collect::<Vec<_>>()).as_deref() {
        None if shape.is_null() => None,
        None => return Err(bad(path, format!("ref_feat_shape is {shape}, expected two numbers"))),
        Some(&[Some(rows), Some(columns)]) if rows == columns && rows > 0.0 => Some(rows),
        _ => return Err(bad(path, format!("ref_feat_shape is {shape}, expected a square"))),
    };
    let temperature = number("rope_temperature", 10_000.0);
    if temperature.is_nan() || temperature <= 1.0 {
        return Err(bad(path, format!("rope_temperature is {temperature}, expected about 10000")));
    }
    Ok(Rotary { temperature, offset: number("rope_grid_offset", 0.0), reference, column_first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timm_names_say_heads_activation_and_parts() {
        use Activation::{Gelu, GeluTanh, QuickGelu};
        let of = |name: &str| Trunk::named(name).map(|trunk| (trunk.heads, trunk.activation, trunk.form));
        let siglip = |heads| VitForm::siglip(heads, 0);
        for (name, heads, activation, form) in [
            ("vit_base_patch16_siglip_224", 12, Gelu, siglip(12)),
            ("vit_base_patch32_siglip_256", 12, GeluTanh, siglip(12)),
            ("vit_so400m_patch14_siglip_378", 16, Gelu, siglip(16)),
            ("vit_so400m_patch16_siglip_384", 16, GeluTanh, siglip(16)),
            ("vit_giantopt_patch16_siglip_256", 16, GeluTanh, siglip(16)),
            ("vit_pe_core_base_patch16_224", 12, Gelu, VitForm::pe_core(true, 0)),
            ("vit_pe_core_gigantic_patch14_448", 16, Gelu, VitForm::pe_core(false, 0)),
            ("eva02_large_patch14_clip_336", 16, Gelu, VitForm::EVA02),
            ("vit_large_patch14_clip_224", 16, Gelu, VitForm::CLIP),
            ("vit_base_patch16_clip_quickgelu_224", 12, QuickGelu, VitForm::CLIP),
        ] {
            assert_eq!(of(name), Some((Some(heads), activation, form)), "{name}");
        }
        for other in [
            "vit_base_mci_224",
            "fastvit_mci2",
            "vit_base_patch16_siglip_gap_224",
            "eva02_enormous_patch14_clip_224",
            "eva_giant_patch14_clip_224",
            "vit_base_patch16_224",
        ] {
            assert!(of(other).is_none(), "{other}");
        }
    }
}
