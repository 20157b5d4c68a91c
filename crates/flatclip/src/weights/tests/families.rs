//! Checkpoints of SigLIP and EVA-02, in the layouts of transformers and of open_clip with timm: settings are read correctly,
//! and damaged checkpoints are refused.

use super::forge::{Tensors, fixture, safetensors};
use crate::Error;
use crate::architecture::{Activation, ClipConfig, ImageConfig, ImagePool, TextForm, TextPool, VitForm};
use crate::weights::{Checkpoint, save_canonical};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const OPEN_CLIP: [&str; 2] = ["open_clip_model.safetensors", "open_clip_config.json"];
const HUGGING_FACE: [&str; 2] = ["model.safetensors", "config.json"];
const MODELS: [(&str, [&str; 2]); 3] =
    [("tiny-siglip", OPEN_CLIP), ("tiny-siglip-hf", HUGGING_FACE), ("tiny-eva02", OPEN_CLIP)];

/// A model folder that a test changes.
struct Folder {
    place: TempDir,
    files: [&'static str; 2],
    tensors: Tensors,
    config: Value,
}

impl Folder {
    fn of((model, files): (&str, [&'static str; 2])) -> Self {
        let from = fixture(&format!("golden/models/{model}"));
        let stored = crate::weights::safetensors::open(&from.join(files[0])).unwrap().tensors;
        let tensors = stored.iter().map(|t| (t.name.clone(), (t.shape.clone(), t.values().unwrap()))).collect();
        let config = serde_json::from_slice(&std::fs::read(from.join(files[1])).unwrap()).unwrap();
        Self { place: TempDir::new().unwrap(), files, tensors, config }
    }

    fn open(&self, tensors: &Tensors, config: &Value) -> crate::Result<Checkpoint> {
        let [weights, settings] = self.files.map(|file| self.place.path().join(file));
        std::fs::write(weights, safetensors(tensors)).unwrap();
        std::fs::write(settings, config.to_string()).unwrap();
        Checkpoint::open(self.place.path())
    }

    /// The message about this change of the configuration.
    fn refusal(&self, pointer: &str, value: Value) -> String {
        let mut config = self.config.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[key] = value;
        match self.open(&self.tensors, &config) {
            Ok(_) => panic!("{pointer} was not refused"),
            Err(error) => error.to_string(),
        }
    }
}

fn opened(model: &str) -> Checkpoint {
    Checkpoint::open(fixture(&format!("golden/models/{model}"))).unwrap()
}

fn form_of(config: &ClipConfig) -> (usize, VitForm) {
    match config.image {
        ImageConfig::Vit { heads, form, .. } => (heads, form),
        _ => panic!("expected a vision transformer"),
    }
}

#[test]
fn both_layouts_of_siglip_say_their_parts() {
    let (open_clip, transformers) = (opened("tiny-siglip"), opened("tiny-siglip-hf"));
    assert_eq!(form_of(open_clip.config()), (3, VitForm::siglip(3, 192)));
    assert_eq!(form_of(transformers.config()), (3, VitForm::siglip(3, 179)));
    for (checkpoint, activation, bias) in
        [(&open_clip, Activation::Gelu, -8.3), (&transformers, Activation::GeluTanh, -9.1)]
    {
        let config = checkpoint.config();
        let text = config.text.as_ref().unwrap();
        assert_eq!((config.activation, text.form, text.context_length), (activation, TextForm::SIGLIP, 16));
        assert!((config.logit_bias.unwrap() - bias).abs() < 1e-5);
        assert_eq!(config.image_tokens(), (config.image_size / 8).pow(2));
    }
}

#[test]
fn an_eva_has_rotary_positions_gated_layers_and_no_bias_of_keys() {
    let checkpoint = opened("tiny-eva02");
    let (heads, form) = form_of(checkpoint.config());
    let mut expected = VitForm::EVA02;
    expected.rotary.as_mut().unwrap().reference = Some(6.0);
    assert_eq!((heads, form), (4, expected));
    let (shape, bias) = checkpoint.tensor("visual.transformer.resblocks.0.attn.in_proj_bias").unwrap();
    assert_eq!(shape, [192]);
    assert!(bias[64..128].iter().all(|&x| x == 0.0) && bias[..64].iter().any(|&x| x != 0.0));
    assert_eq!(checkpoint.config().text.as_ref().unwrap().form.pool, TextPool::End);
    assert_eq!(checkpoint.config().logit_bias, None);
}

#[test]
fn the_canonical_form_keeps_the_parts() {
    for (model, _) in MODELS {
        let (source, folder) = (opened(model), TempDir::new().unwrap());
        let out = folder.path().join("out.safetensors");
        save_canonical(&source, &out).unwrap();
        let copy = Checkpoint::open(&out).unwrap();
        assert_eq!(copy.hash().unwrap(), source.hash().unwrap());
        let (ours, theirs) = (copy.config(), source.config());
        assert_eq!((&ours.image, &ours.text, ours.activation), (&theirs.image, &theirs.text, theirs.activation));
        assert_eq!((ours.logit_scale, ours.logit_bias), (theirs.logit_scale, theirs.logit_bias));
    }
}

#[test]
fn an_image_may_be_larger_than_its_patches_by_less_than_one() {
    let folder = Folder::of(MODELS[1]);
    let mut config = folder.config.clone();
    config["vision_config"]["image_size"] = json!(45);
    let checkpoint = folder.open(&folder.tensors, &config).unwrap();
    assert_eq!((checkpoint.config().image_size, checkpoint.config().image_tokens()), (45, 25));
    let out = folder.place.path().join("out.safetensors");
    save_canonical(&checkpoint, &out).unwrap();
    assert_eq!(Checkpoint::open(&out).unwrap().config().image_size, 45);
    config["vision_config"]["image_size"] = json!(48);
    let message = folder.open(&folder.tensors, &config).unwrap_err().to_string();
    assert!(message.contains("different models"), "{message}");
}

#[test]
fn a_missing_tensor_is_an_error_whichever_it_is() {
    for model in MODELS {
        let folder = Folder::of(model);
        for name in folder.tensors.keys() {
            let mut less = folder.tensors.clone();
            less.remove(name);
            match folder.open(&less, &folder.config) {
                Err(Error::Weights { .. } | Error::WeightShape { .. }) => {}
                Err(other) => panic!("{name}: {other:?}"),
                Ok(_) => panic!("{} without {name} was opened", model.0),
            }
        }
    }
}

#[test]
fn a_wrong_shape_is_an_error_whichever_tensor_has_it() {
    for model in MODELS {
        let folder = Folder::of(model);
        for (name, (shape, values)) in &folder.tensors {
            let mut wrong = folder.tensors.clone();
            // One row less, or a number for a scalar too many.
            let (shape, values) = match shape.split_first() {
                Some((&rows, rest)) if rows > 1 => {
                    let row: usize = rest.iter().product();
                    ([&[rows - 1], rest].concat(), values[row..].to_vec())
                }
                _ => ([&shape[..], &[2]].concat(), values.iter().flat_map(|&x| [x, x]).collect()),
            };
            wrong.insert(name.clone(), (shape, values));
            assert!(folder.open(&wrong, &folder.config).is_err(), "{}: {name}", model.0);
        }
    }
}

#[test]
fn configurations_that_contradict_the_weights_or_cannot_be_honoured_are_refused() {
    let [siglip, transformers, eva] = MODELS.map(Folder::of);
    for (folder, pointer, value, word) in [
        (&siglip, "/model_cfg/embed_dim", json!(40), "different models"),
        (&siglip, "/model_cfg/vision_cfg/image_size", json!(40), "different models"),
        (&siglip, "/model_cfg/text_cfg/context_length", json!(64), "different models"),
        (&siglip, "/model_cfg/text_cfg/proj_bias", json!(false), "text_projection.bias"),
        (&siglip, "/model_cfg/text_cfg/pool_type", json!("first"), "pool_type"),
        (&siglip, "/model_cfg/text_cfg/no_causal_mask", json!(false), "pool_type"),
        (&siglip, "/model_cfg/text_cfg/norm_kwargs", json!({ "eps": 3 }), "epsilon"),
        (&siglip, "/model_cfg/vision_cfg/timm_proj", json!("mlp"), "timm_proj"),
        (&siglip, "/golden_trunk/class_token", json!(true), "positional_embedding"),
        (&siglip, "/golden_trunk/global_pool", json!("avg"), "global_pool"),
        (&siglip, "/golden_trunk/num_heads", json!(5), "heads"),
        (&siglip, "/golden_trunk", Value::Null, "golden_siglip_a"),
        (&transformers, "/model_type", json!("siglip2"), "NaFlex"),
        (&transformers, "/model_type", json!("clip"), "positional_embedding"),
        (&transformers, "/vision_config/vision_use_head", json!(false), "vision_use_head"),
        (&transformers, "/vision_config/hidden_size", json!(64), "different models"),
        (&transformers, "/vision_config/num_attention_heads", json!(7), "heads"),
        (&transformers, "/text_config/vocab_size", json!(32000), "different models"),
        (&transformers, "/text_config/pad_token_id", json!(9999), "9999"),
        (&transformers, "/text_config/hidden_act", json!("relu"), "relu"),
        (&eva, "/golden_trunk/swiglu_mlp", json!(false), "c_fc"),
        (&eva, "/golden_trunk/scale_mlp", json!(false), "ln_inner"),
        (&eva, "/golden_trunk/scale_attn_inner", json!(false), "ln_inner"),
        (&eva, "/golden_trunk/rope_rotate_half", json!(true), "rope_rotate_half"),
        (&eva, "/golden_trunk/rope_grid_indexing", json!("yx"), "rope_grid_indexing"),
        (&eva, "/golden_trunk/ref_feat_shape", json!([6, 7]), "square"),
        (&eva, "/golden_trunk/num_heads", json!(32), "multiple of four"),
    ] {
        let message = folder.refusal(pointer, value);
        assert!(message.contains(word), "{pointer}: {message}");
    }
}

#[test]
fn without_its_configuration_a_model_of_another_family_is_refused() {
    for (model, files) in MODELS {
        let folder = TempDir::new().unwrap();
        let from = fixture(&format!("golden/models/{model}")).join(files[0]);
        std::fs::copy(from, folder.path().join(files[0])).unwrap();
        let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains("config.json"), "{message}");
    }
}

#[test]
fn patches_that_are_no_convolution_are_those_of_naflex() {
    let folder = Folder::of(MODELS[1]);
    let mut flat = folder.tensors.clone();
    flat.get_mut("vision_model.embeddings.patch_embedding.weight").unwrap().0 = vec![48, 192];
    let message = folder.open(&flat, &folder.config).unwrap_err().to_string();
    assert!(message.contains("NaFlex") && message.contains("fixed resolution"), "{message}");
}

#[test]
fn any_value_of_any_entry_of_a_configuration_is_no_panic() {
    fn entries(value: &Value, place: &str, found: &mut Vec<String>) {
        for (key, child) in value.as_object().into_iter().flatten() {
            let place = format!("{place}/{key}");
            entries(child, &place, found);
            found.push(place);
        }
    }
    for model in MODELS {
        let folder = Folder::of(model);
        let mut found = Vec::new();
        entries(&folder.config, "", &mut found);
        folder.open(&folder.tensors, &folder.config).unwrap();
        let settings = folder.place.path().join(folder.files[1]);
        for entry in found {
            for odd in [Value::Null, json!(-1), json!(0), json!(1e300), json!("x"), json!([]), json!({})] {
                let mut config = folder.config.clone();
                *config.pointer_mut(&entry).unwrap() = odd;
                std::fs::write(&settings, config.to_string()).unwrap();
                let _ = Checkpoint::open(folder.place.path() as &Path);
            }
        }
    }
}

#[test]
fn the_pool_of_a_family_may_have_other_heads_than_its_blocks() {
    let folder = Folder::of(MODELS[0]);
    let mut config = folder.config.clone();
    config["golden_trunk"]["attn_pool_num_heads"] = json!(8);
    let (_, form) = form_of(folder.open(&folder.tensors, &config).unwrap().config());
    assert_eq!(form.pool, ImagePool::Attention { heads: 8, mlp: 192 });
}
