use super::forge::{Precision, Tensors, hugging_face, safetensors, small, tensors};
use crate::architecture::{Activation, ActivationSource, ClipConfig, Preprocess};
use crate::weights::{KNOWN, Places, file_sha256, known, published_as, resolve};
use std::path::Path;
use tempfile::TempDir;

fn write(path: &Path, tensors: &Tensors) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, safetensors(tensors, Precision::F32)).unwrap();
}

#[test]
fn every_known_name_is_a_released_architecture_and_unique() {
    for (i, model) in KNOWN.iter().enumerate() {
        let (arch, tag) = model.name.split_once('/').unwrap();
        assert!(ClipConfig::named(arch).is_some() && !tag.is_empty(), "{}", model.name);
        assert!(!model.repositories.is_empty());
        assert_eq!(tag == "openai", model.openai_sha256.is_some());
        assert!(KNOWN[..i].iter().all(|other| other.name != model.name));
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
