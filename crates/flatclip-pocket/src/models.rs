//! The models trained on the pocket dataset, as the files of their folders.

/// Names of the embedded models.
pub const MODEL_NAMES: [&str; 2] = ["pocket", "pocket-vit"];

/// How many images per domain of the train world the embedded models have seen at most, in either stage of their training. To tune or test on images that
/// are new to them, take later ones, or another world.
pub const TRAINED_ON: u64 = 48_000;

/// A file of a model folder: name and content.
pub type ModelFile = (&'static str, &'static [u8]);

/// A CLIP ModifiedResNet of width 16 with a causal text tower of width 64, in open_clip's layout.
const POCKET: &[ModelFile] = &[
    ("open_clip_config.json", include_bytes!("../models/pocket/open_clip_config.json")),
    ("open_clip_model.safetensors", include_bytes!("../models/pocket/open_clip_model.safetensors")),
    ("vocab.json", include_bytes!("../models/pocket/vocab.json")),
    ("merges.txt", include_bytes!("../models/pocket/merges.txt")),
];

/// A CLIP ViT of width 128 with such a text tower of its own and the tokenizer of the other, in Hugging Face's layout.
const POCKET_VIT: &[ModelFile] = &[
    ("config.json", include_bytes!("../models/pocket-vit/config.json")),
    ("preprocessor_config.json", include_bytes!("../models/pocket-vit/preprocessor_config.json")),
    ("model.safetensors", include_bytes!("../models/pocket-vit/model.safetensors")),
    ("vocab.json", include_bytes!("../models/pocket-vit/vocab.json")),
    ("merges.txt", include_bytes!("../models/pocket-vit/merges.txt")),
];

/// The files of an embedded model, named as they would be in its folder.
pub fn model_files(name: &str) -> Option<&'static [ModelFile]> {
    match name {
        "pocket" => Some(POCKET),
        "pocket-vit" => Some(POCKET_VIT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_files_and_they_are_small() {
        let mut total = 0;
        for name in MODEL_NAMES {
            let files = model_files(name).unwrap();
            assert!(files.iter().all(|(_, bytes)| !bytes.is_empty()));
            total += files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        }
        assert!(total < 6_000_000, "{total}");
        assert!(model_files("ViT-B-16").is_none());
    }
}
