use super::forge::{Tensors, hugging_face, safetensors, small, tensors};
use crate::architecture::{Activation, ActivationSource, ClipConfig, Preprocess};
use crate::weights::{KNOWN, Places, file_sha256, known, published_as, refusal, resolve};
use std::path::Path;
use tempfile::TempDir;

fn write(path: &Path, tensors: &Tensors) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, safetensors(tensors)).unwrap();
}

#[test]
fn every_known_name_is_unique_and_of_a_named_architecture() {
    for (i, model) in KNOWN.iter().enumerate() {
        let (arch, tag) = model.name.split_once('/').unwrap();
        let config = ClipConfig::named(arch).unwrap_or_else(|| panic!("{}", model.name));
        assert!(!tag.is_empty() && !model.repositories.is_empty());
        assert_eq!(tag == "openai", model.openai_sha256.is_some());
        assert!(KNOWN[..i].iter().all(|other| other.name != model.name), "{}", model.name);
        assert!(refusal(model.name).is_none() || model.name.starts_with("MobileCLIP2-L"), "{}", model.name);
        // Settings that files may omit are those of OpenAI's architecture.
        let plain = config.logit_bias.is_none() && !arch.starts_with("PE-") && !arch.starts_with("EVA02");
        let stated = arch.starts_with("TinyCLIP") || arch.starts_with("MobileCLIP2");
        assert_eq!(model.activation.is_some(), plain && !stated, "{}", model.name);
    }
}

/// Activation and crop go with the tag. The tags of QuickGELU and of other preprocessing, from open_clip's list.
#[test]
fn activation_and_preprocessing_follow_the_tag() {
    let quick = ["openai", "yfcc15m", "cc12m", "metaclip_400m", "metaclip_fullcc", "dfn2b", "dfn5b"];
    for model in KNOWN {
        let (arch, tag) = model.name.split_once('/').unwrap();
        if let Some(activation) = model.activation {
            let is_quick = quick.contains(&tag) || (arch == "ViT-B-32" && tag.starts_with("laion400m"));
            assert_eq!(activation == Activation::QuickGelu, is_quick, "{}", model.name);
        }
        let expected = match () {
            () if tag == "dfn5b" => Preprocess::SQUASH,
            () if arch.contains("SigLIP") => Preprocess::SIGLIP,
            () if arch.starts_with("PE-Core") => Preprocess::PE,
            () if model.name == "ViT-L-14/laion2b_s32b_b82k" => Preprocess::HALF,
            () => Preprocess::CLIP,
        };
        assert_eq!(model.preprocess, expected, "{}", model.name);
    }
}

/// Published configurations omit both, and their defaults are wrong: the tag decides.
#[test]
fn a_tag_overrules_the_configuration_beside_its_weights() {
    let models = TempDir::new().unwrap();
    let places = Places { model_dir: Some(models.path().to_path_buf()), hub_cache: None };
    for model in KNOWN.iter().filter(|model| model.activation.is_some() && model.name.starts_with("ViT")) {
        let folder = model.folder(models.path());
        write(&folder.join("open_clip_model.safetensors"), &tensors(&small()));
        let config = r#"{"model_cfg":{"vision_cfg":{},"text_cfg":{}},"preprocess_cfg":{"resize_mode":"longest"}}"#;
        std::fs::write(folder.join("open_clip_config.json"), config).unwrap();
        let opened = resolve(model.name, &places).unwrap();
        assert_eq!(Some(opened.config().activation), model.activation, "{}", model.name);
        assert_eq!(opened.config().preprocess, model.preprocess, "{}", model.name);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn what_is_not_computed_is_refused_by_name_with_what_to_take_instead() {
    for (name, word) in [
        ("MobileCLIP-S1/datacompdr", "convolutional"),
        ("MobileCLIP-B/datacompdr_lt", "MobileCLIP2-L-14"),
        ("convnext_base_w/laion2b_s13b_b82k", "ConvNeXt"),
        ("ViT-L-14-CLIPA/datacomp1b", "WordPiece"),
        ("ViT-H-14-worldwide/metaclip2_worldwide", "901 629"),
        ("facebook/metaclip-2-worldwide-huge-378", "901 629"),
        ("ViT-B-16-SigLIP2-naflex/webli", "fixed resolution"),
        ("google/siglip2-base-patch16-naflex", "fixed resolution"),
        ("ViT-SO400M-14-SigLIP-378/webli", "ViT-SO400M-14-SigLIP-384"),
        ("coca_ViT-B-32/laion2b_s13b_b90k", "caption"),
        ("xlm-roberta-base-ViT-B-32/laion5b_s13b_b90k", "RoBERTa"),
        ("EVA02-E-14/laion2b_s4b_b115k", "EVA-02 E"),
    ] {
        let error = resolve(name, &Places::default()).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("PyTorch"), "{error}");
    }
    // A name that is computed is not refused, and every advice is a known name.
    assert_eq!(known("MobileCLIP2-L-14/dfndr2b").unwrap().name, "MobileCLIP2-L-14/dfndr2b");
    for &(part, _, instead) in crate::weights::known_table::REFUSED {
        let advised = instead.split([' ', ',']).find(|word| word.contains('/'));
        assert!(part == "clap" || advised.is_some_and(|name| known(name).is_some()), "{instead}");
    }
}

#[test]
fn names_resolve_in_the_model_folder_before_the_hub_cache() {
    let (models, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let places = Places { model_dir: Some(models.path().to_path_buf()), hub_cache: Some(cache.path().to_path_buf()) };
    let model = known("vit-b-16/openai").unwrap();
    assert_eq!(model.find(&places), None);
    let error = resolve("ViT-B-16/openai", &places).unwrap_err().to_string();
    assert!(error.contains("not on disk") && error.contains(&models.path().display().to_string()), "{error}");

    let repository = cache.path().join("models--openai--clip-vit-base-patch16");
    let theirs = hugging_face(&tensors(&small()));
    write(&repository.join("snapshots/aaaa/model.safetensors"), &theirs);
    assert_eq!(model.find(&places), Some(repository.join("snapshots/aaaa")));
    // A snapshot without weights does not count; the current one comes first.
    std::fs::create_dir_all(repository.join("snapshots/zzzz")).unwrap();
    assert_eq!(model.find(&places), Some(repository.join("snapshots/aaaa")));
    write(&repository.join("snapshots/bbbb/model.safetensors"), &theirs);
    assert_eq!(model.find(&places), Some(repository.join("snapshots/bbbb")));
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), "aaaa\n").unwrap();
    assert_eq!(model.find(&places), Some(repository.join("snapshots/aaaa")));

    write(&models.path().join("ViT-B-16.pt"), &tensors(&small()));
    assert_eq!(model.find(&places), Some(models.path().join("ViT-B-16.pt")));
    write(&models.path().join("ViT-B-16/openai/open_clip_model.safetensors"), &tensors(&small()));
    assert_eq!(model.find(&places), Some(models.path().join("ViT-B-16/openai")));
    assert!(resolve("ViT-B-16/openai", &places).is_ok());
}

#[test]
fn a_known_name_settles_the_activation_that_a_bare_file_leaves_open() {
    let models = TempDir::new().unwrap();
    let places = Places { model_dir: Some(models.path().to_path_buf()), hub_cache: None };
    write(&models.path().join("ViT-L-14-laion2b_s32b_b82k.safetensors"), &tensors(&small()));
    let checkpoint = resolve("ViT-L-14/laion2b_s32b_b82k", &places).unwrap();
    let config = checkpoint.config();
    assert_eq!((config.activation, config.activation_source), (Activation::Gelu, ActivationSource::Published));
    assert_eq!(config.preprocess, Preprocess::HALF);
}

#[test]
fn paths_and_random_names_open_and_nonsense_is_explained() {
    let (folder, places) = (TempDir::new().unwrap(), Places::default());
    let file = folder.path().join("mine.safetensors");
    write(&file, &tensors(&small()));
    assert!(resolve(&file.display().to_string(), &places).is_ok());
    assert_eq!(resolve("pocket", &places).unwrap().path(), Path::new("pocket"));
    assert_eq!(resolve("random:RN50", &places).unwrap().config().released_name(), Some("RN50"));
    let error = resolve("ViT-B-17/openai", &places).unwrap_err().to_string();
    assert!(error.contains("ViT-B-16/openai") && error.contains("random:"), "{error}");
}

#[test]
fn published_files_are_recognised_by_their_digest() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("abc"), "abc").unwrap();
    let digest = file_sha256(&folder.path().join("abc")).unwrap();
    assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert!(published_as(&digest).is_none());
    assert_eq!(published_as(known("RN50/openai").unwrap().openai_sha256.unwrap()).unwrap().name, "RN50/openai");
}
