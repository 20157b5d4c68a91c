use super::forge::{
    Tensors, fixture, hugging_face, safetensors, safetensors_of, small, tensors, tiny_vit, torch_zip, written,
};
use crate::architecture::{Activation, ActivationSource, ClipConfig, ImageConfig, VitForm};
use crate::weights::{Checkpoint, Dtype, Naming, random, random_of, save_canonical};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn renamed(tensors: &Tensors, rename: impl Fn(&str) -> Option<String>) -> Tensors {
    tensors.iter().filter_map(|(name, tensor)| Some((rename(name)?, tensor.clone()))).collect()
}

fn assert_same(path: &Path, expected: &Tensors) -> Checkpoint {
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"));
    assert!(tensors(&checkpoint) == *expected, "{}: other tensors", path.display());
    checkpoint
}

/// The image tower of the tiny model.
fn tiny_image(heads: usize) -> ImageConfig {
    ImageConfig::Vit { width: 128, layers: 3, heads, patch: 8, mlp: 512, form: VitForm::CLIP }
}

/// Of the model as OpenAI-named safetensors: the folder here holds the archive only.
const TINY_VIT: &str = "543ac22df2a69435bee9a3104ac3b7455548cba9e4e64cc02a9fcf39de6f8650";

/// All files of a tiny model, here or in the folder that `FLATCLIP_GOLDEN` names, hold the same model.
#[test]
fn every_file_of_a_tiny_model_gives_the_same_tensors() {
    let cases = std::env::var_os("FLATCLIP_GOLDEN").map_or_else(|| fixture("golden"), PathBuf::from);
    let models = [cases.join("models"), cases.join("../models")].into_iter().find(|m| m.is_dir()).unwrap();
    let mut compared = 0;
    for stem in ["tiny-vit", "tiny-rn"] {
        let reference = models.join(format!("{stem}.openai.safetensors"));
        let hash = |path: &Path| Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}")).hash().unwrap();
        let expected = if reference.is_file() { hash(&reference) } else { TINY_VIT.to_owned() };
        for entry in std::fs::read_dir(&models).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let incomplete = path.is_dir() && !path.join("model.safetensors").is_file();
            if name.starts_with(stem) && !incomplete {
                assert_eq!(hash(&path), expected, "{name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "{}: no tiny model", models.display());
}

#[test]
fn tensors_and_sizes_of_a_torchscript_archive_are_inferred() {
    let vit = tiny_vit();
    assert_eq!(vit.dtype("visual.proj"), Some(Dtype::F16));
    // Its other numbers are no tensors of the model.
    assert!(!vit.names().any(|name| name == "input_resolution"));
    let config = vit.config();
    assert_eq!(config.image, tiny_image(2));
    assert_eq!((config.image_size, config.embed_dim), (32, 32));
    assert!((config.logit_scale - 100.0).abs() < 1e-3);
    // An archive as OpenAI writes them: their activation.
    assert_eq!((config.activation, config.activation_source), (Activation::QuickGelu, ActivationSource::Published));
    assert_eq!(vit.activation_doubt(), None);
    let text = config.text.clone().unwrap();
    assert_eq!((text.width, text.layers, text.heads, text.context_length, text.vocab), (128, 3, 2, 77, 512));
    let resnet = Checkpoint::embedded("pocket").unwrap().unwrap();
    assert_eq!(resnet.config().image, ImageConfig::ResNet { width: 16, blocks: [1; 4], heads: 8 });
    assert_eq!(resnet.config().image_size, 64);
}

#[test]
fn names_of_other_libraries_and_wrappers_give_the_same_tensors() {
    let (folder, ours) = (TempDir::new().unwrap(), tensors(&tiny_vit()));
    let custom = renamed(&ours, |name| {
        let visual = name.starts_with("visual.") || name == "logit_scale";
        Some(if visual { name.to_owned() } else { format!("text.{name}") })
    });
    let wrapped = renamed(&ours, |name| Some(format!("module.{name}")));
    for (theirs, naming) in
        [(hugging_face(&ours), Naming::HuggingFace), (custom, Naming::OpenClipCustomText), (wrapped, Naming::OpenAi)]
    {
        let path = written(&folder, "any.safetensors", safetensors(&theirs));
        assert_eq!(assert_same(&path, &ours).naming(), naming);
    }
}

#[test]
fn torch_state_dicts_plain_wrapped_and_deflated_give_the_same_tensors() {
    let (folder, ours) = (TempDir::new().unwrap(), tensors(&small()));
    for (name, prefix, wrap, deflate) in
        [("plain.pt", "", false, false), ("wrapped.pth", "module.", true, false), ("deflated.bin", "", false, true)]
    {
        assert_same(&written(&folder, name, torch_zip(&ours, prefix, wrap, deflate)), &ours);
    }
}

#[test]
fn an_image_tower_alone_loads_in_every_naming() {
    let (folder, ours) = (TempDir::new().unwrap(), tensors(&tiny_vit()));
    let visual = renamed(&ours, |name| name.starts_with("visual.").then(|| name.to_owned()));
    let bare = renamed(&ours, |name| name.strip_prefix("visual.").map(str::to_owned));
    let theirs = renamed(&hugging_face(&ours), |name| name.starts_with("vis").then(|| name.to_owned()));
    for (name, tensors) in [("visual", &visual), ("bare", &bare), ("hf", &theirs)] {
        let path = written(&folder, name, safetensors(tensors));
        let checkpoint = assert_same(&path, &visual);
        assert_eq!(checkpoint.config().text, None);
        assert!(checkpoint.config().describe().contains("no text tower"));
    }
}

#[test]
fn half_precisions_are_widened_exactly() {
    let (folder, ours) = (TempDir::new().unwrap(), tensors(&tiny_vit()));
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let checkpoint = Checkpoint::open(written(&folder, "half", safetensors_of(&ours, dtype))).unwrap();
        assert_eq!(checkpoint.dtype("visual.proj"), Some(dtype));
        let (_, values) = checkpoint.tensor("visual.proj").unwrap();
        let rounded = ours["visual.proj"].1.iter().map(|&v| match dtype {
            Dtype::Bf16 => half::bf16::from_f32(v).to_f32(),
            _ => half::f16::from_f32(v).to_f32(),
        });
        assert!(values.iter().copied().eq(rounded), "{dtype:?}");
    }
}

fn hf_folder(act: &str, heads: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    written(&folder, "model.safetensors", safetensors(&hugging_face(&tensors(&tiny_vit()))));
    let config = std::fs::read_to_string(fixture("golden/models/tiny-vit-hf/config.json")).unwrap();
    let config = config
        .replace("quick_gelu", act)
        .replace("\"num_attention_heads\": 2", &format!("\"num_attention_heads\": {heads}"));
    written(&folder, "config.json", config);
    folder
}

#[test]
fn a_hugging_face_folder_states_activation_heads_and_pixels() {
    let folder = hf_folder("gelu", 4);
    written(&folder, "preprocessor_config.json", br#"{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.5, 1]}"#);
    assert_eq!(Checkpoint::open(folder.path()).unwrap().tokenizer_dir(), None);
    // Any file of the tokenizer: missing ones are then reported, not replaced.
    written(&folder, "tokenizer.json", b"{}");
    let checkpoint = assert_same(folder.path(), &tensors(&tiny_vit()));
    let config = checkpoint.config();
    assert_eq!((config.activation, config.activation_source), (Activation::Gelu, ActivationSource::Stated));
    assert_eq!(config.image, tiny_image(4));
    assert_eq!(config.text.as_ref().unwrap().heads, 4);
    assert_eq!((config.preprocess.mean, config.preprocess.std), ([0.5; 3], [0.25, 0.5, 1.0]));
    assert_eq!(checkpoint.tokenizer_dir().as_deref(), Some(folder.path()));
    // The file alone takes the configuration beside it.
    let file = Checkpoint::open(folder.path().join("model.safetensors")).unwrap();
    assert_eq!(file.config().activation, Activation::Gelu);
    assert_eq!(file.with_activation(Activation::QuickGelu).config().activation_source, ActivationSource::Asked);
}

#[test]
fn a_bare_state_dict_is_decided_by_a_configuration_or_a_tag_and_is_in_doubt_without() {
    let (folder, ours) = (TempDir::new().unwrap(), tensors(&tiny_vit()));
    let bare = |name: &str| {
        let path = written(&folder, name, safetensors(&ours));
        Checkpoint::open(path).unwrap()
    };
    let found = |checkpoint: &Checkpoint| {
        let config = checkpoint.config();
        (config.activation, config.activation_source, checkpoint.activation_doubt().is_some())
    };
    let doubtful = bare("finetuned.pt");
    assert_eq!(found(&doubtful), (Activation::QuickGelu, ActivationSource::Assumed, true));
    let doubt = doubtful.activation_doubt().unwrap();
    for word in ["finetuned.pt", "quick_gelu is assumed", "quick-gelu (OpenAI", "gelu (open_clip"] {
        assert!(doubt.contains(word), "{doubt}");
    }
    let asked = bare("finetuned.pt").with_activation(Activation::Gelu);
    assert_eq!(found(&asked), (Activation::Gelu, ActivationSource::Asked, false));
    let tagged = bare("tiny-laion2b_s34b_b79k.pt");
    assert_eq!(found(&tagged), (Activation::Gelu, ActivationSource::Published, false));
    // A configuration of another model in the folder is ignored: it need not belong to this file.
    let config = std::fs::read_to_string(fixture("golden/models/tiny-vit-hf/config.json")).unwrap();
    let config = config.replace("quick_gelu", "gelu");
    written(&folder, "config.json", config.replace("\"hidden_size\": 128", "\"hidden_size\": 256"));
    assert_eq!(found(&bare("finetuned.pt")), (Activation::QuickGelu, ActivationSource::Assumed, true));
    written(&folder, "config.json", config);
    assert_eq!(found(&bare("finetuned.pt")), (Activation::Gelu, ActivationSource::Stated, false));
    assert_eq!(crate::weights::random("ViT-B-32", 0).unwrap().activation_doubt(), None);
}

#[test]
fn a_configuration_of_another_model_is_refused() {
    for (stated, other) in [("\"hidden_size\": 128", "\"hidden_size\": 256"), ("\"vocab_size\": ", "\"vocab_size\": 1")]
    {
        let folder = hf_folder("gelu", 2);
        let path = folder.path().join("config.json");
        let config = std::fs::read_to_string(&path).unwrap();
        assert!(config.contains(stated), "{config}");
        std::fs::write(&path, config.replace(stated, other)).unwrap();
        let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("belong to different models"), "{error}");
    }
}

#[test]
fn a_vision_folder_states_its_fields_at_top_level() {
    let folder = TempDir::new().unwrap();
    let ours = tensors(&tiny_vit());
    let theirs = renamed(&hugging_face(&ours), |name| name.starts_with("vis").then(|| name.to_owned()));
    written(&folder, "model.safetensors", safetensors(&theirs));
    let config = br#"{"model_type": "clip_vision_model", "hidden_act": "gelu", "num_attention_heads": 1, "layer_norm_eps": 1e-05}"#;
    written(&folder, "config.json", config);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.config().activation, Activation::Gelu);
    assert!(matches!(checkpoint.config().image, ImageConfig::Vit { heads: 1, .. }));
}

#[test]
fn sharded_folders_load_and_lost_shards_are_named() {
    let folder = hf_folder("quick_gelu", 2);
    let theirs = hugging_face(&tensors(&tiny_vit()));
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let half = theirs.len() / 2;
    let mut map = serde_json::Map::new();
    for (file, skip, take) in [("a.safetensors", 0, half), ("b.safetensors", half, theirs.len())] {
        let part: Tensors = theirs.iter().skip(skip).take(take).map(|(n, t)| (n.clone(), t.clone())).collect();
        written(&folder, file, safetensors(&part));
        map.extend(part.keys().map(|name| (name.clone(), file.into())));
    }
    let index = |map: &serde_json::Map<String, serde_json::Value>| serde_json::json!({ "weight_map": map }).to_string();
    written(&folder, "model.safetensors.index.json", index(&map));
    assert_same(folder.path(), &tensors(&tiny_vit()));
    std::fs::remove_file(folder.path().join("b.safetensors")).unwrap();
    assert!(Checkpoint::open(folder.path()).unwrap_err().to_string().contains("b.safetensors"));
    map.insert("logit_scale".into(), "../a.safetensors".into());
    written(&folder, "model.safetensors.index.json", index(&map));
    assert!(Checkpoint::open(folder.path()).unwrap_err().to_string().contains("not a file of this folder"));
}

#[test]
fn open_clip_folders_mean_gelu_unless_they_say_quick() {
    let ours = tensors(&tiny_vit());
    for (quick, expected) in [("", Activation::Gelu), (r#""quick_gelu": true,"#, Activation::QuickGelu)] {
        let folder = TempDir::new().unwrap();
        written(&folder, "open_clip_pytorch_model.bin", torch_zip(&ours, "", false, false));
        let config = format!(
            r#"{{"model_cfg": {{{quick} "embed_dim": 32, "vision_cfg": {{"width": 128, "head_width": 32}}, "text_cfg": {{"heads": 2}}}},
                "preprocess_cfg": {{"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}}}}"#
        );
        written(&folder, "open_clip_config.json", config);
        let checkpoint = assert_same(folder.path(), &ours);
        assert_eq!(checkpoint.config().activation, expected);
        assert_eq!(checkpoint.config().preprocess.mean, [0.5; 3]);
        assert!(matches!(checkpoint.config().image, ImageConfig::Vit { heads: 4, .. }));
    }
}

#[test]
fn the_canonical_form_keeps_numbers_precision_activation_and_hash() {
    let folder = TempDir::new().unwrap();
    let source = tiny_vit().with_activation(Activation::Gelu);
    let out = folder.path().join("out.safetensors");
    save_canonical(&source, &out).unwrap();
    let copy = assert_same(&out, &tensors(&source));
    assert_eq!(copy.hash().unwrap(), source.hash().unwrap());
    let config = copy.config();
    assert_eq!((config.activation, config.activation_source), (Activation::Gelu, ActivationSource::Stated));
    assert_eq!((copy.dtype("visual.proj"), copy.dtype("logit_scale")), (Some(Dtype::F16), Some(Dtype::F32)));
    // Other readers of the format accept it, too.
    assert!(::safetensors::SafeTensors::deserialize(&std::fs::read(&out).unwrap()).is_ok());
}

#[test]
fn the_hash_sees_a_single_number_and_the_seed() {
    let folder = TempDir::new().unwrap();
    let mut ours = tensors(&tiny_vit());
    ours.get_mut("ln_final.bias").unwrap().1[5] += 1e-3;
    let other = Checkpoint::open(written(&folder, "x", safetensors(&ours))).unwrap();
    assert_ne!(other.hash().unwrap(), tiny_vit().hash().unwrap());
    let config = tiny_vit().config().clone();
    let hash = |seed| random_of(&config, seed).hash().unwrap();
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn random_checkpoints_have_the_released_shapes() {
    // Numbers of parameters as published, plus the running statistics of the ResNets' norms.
    for (name, expected) in [("ViT-B-32", 151_277_313), ("ViT-B-16", 149_620_737), ("ViT-L-14", 427_616_513)] {
        assert_eq!(random(name, 0).unwrap().parameters(), expected, "{name}");
    }
    for name in ClipConfig::names() {
        let checkpoint = random(&format!("random:{name}"), 0).unwrap();
        let (shape, values) = checkpoint.tensor("visual.conv1.weight").unwrap();
        assert_eq!(shape.iter().product::<usize>(), values.len());
        assert!(values.iter().any(|v| *v != values[0]));
    }
    assert!(random("random:ViT-Q", 0).unwrap_err().to_string().contains("ViT-B-16"));
}
