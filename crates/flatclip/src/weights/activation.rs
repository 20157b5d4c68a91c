//! The activation of weights that do not specify it: derived from neighbouring files or from the name; otherwise uncertain.

use super::bytes::Stored;
use super::checkpoint::Checkpoint;
use super::folder;
use super::known::{KnownModel, plain};
use super::known_table::KNOWN;
use crate::architecture::{Activation, ActivationSource, ClipConfig, ImageConfig, Preprocess};
use std::path::Path;

/// Folders above a file whose names may hold a tag: `models--ORG--NAME/snapshots/REVISION` in the hub cache.
const FOLDERS: usize = 3;

/// Whether the file has the tensors that only OpenAI's own archives contain in addition to the weights.
pub(super) fn is_openai_archive(tensors: &[Stored]) -> bool {
    let has = |name: &str| tensors.iter().any(|tensor| tensor.name == name);
    ["input_resolution", "context_length", "vocab_size"].into_iter().all(has)
}

/// Decides an assumed activation: that of OpenAI's own archives, a configuration in the same folder whose sizes agree, else
/// the tag of a published model in the name of the file or its folders.
pub(super) fn decide(path: &Path, is_openai_archive: bool, config: &mut ClipConfig) {
    if config.activation_source != ActivationSource::Assumed {
        return;
    }
    if is_openai_archive {
        config.activation_source = ActivationSource::Published;
        return;
    }
    if let Some((stated, activation)) = folder::stated_nearby(path).and_then(|s| s.activation.map(|a| (s, a)))
        && stated.fits(path, config)
    {
        (config.activation, config.activation_source) = (activation, ActivationSource::Stated);
        config.preprocess = stated.preprocess.unwrap_or(config.preprocess);
        return;
    }
    let parts = path.ancestors().take(1 + FOLDERS).filter_map(Path::file_name);
    let names: Vec<String> = parts.map(|name| plain(&name.to_string_lossy())).collect();
    if let Some((activation, preprocess)) = tagged(&names, config.released_name()) {
        (config.activation, config.activation_source) = (activation, ActivationSource::Published);
        config.preprocess = preprocess;
    }
}

/// The activation of the published models whose tag or repository occurs in a name; `None` if they disagree.
fn tagged(names: &[String], architecture: Option<&str>) -> Option<(Activation, Preprocess)> {
    // open_clip's own names of architectures with OpenAI's activation.
    if names.iter().any(|name| name.contains("quickgelu") || name.contains("quick-gelu")) {
        return Some((Activation::QuickGelu, Preprocess::CLIP));
    }
    let named = |model: &&KnownModel| {
        let (arch, tag) = model.parts();
        let repositories = model.repositories.iter().filter_map(|repository| repository.split('/').next_back());
        let mut words = repositories.chain([tag]).map(plain);
        architecture.is_none_or(|found| found == arch) && words.any(|word| names.iter().any(|n| has_word(n, &word)))
    };
    let mut found = KNOWN.iter().filter(named).filter_map(|model| Some((model.activation?, model.preprocess)));
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}

/// Whether `word` occurs in `name` with no letter or digit before or after it.
fn has_word(name: &str, word: &str) -> bool {
    let free = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    name.match_indices(word)
        .any(|(at, _)| free(name[..at].chars().next_back()) && free(name[at + word.len()..].chars().next()))
}

impl Checkpoint {
    /// A warning that the activation may be wrong, with the choices, if it is uncertain. The tensors do not show it, and with the
    /// wrong activation every feature is slightly wrong without an error.
    pub fn activation_doubt(&self) -> Option<String> {
        let config = self.config();
        let unused = config.text.is_none() && matches!(config.image, ImageConfig::ResNet { .. });
        if config.activation_source != ActivationSource::Assumed || unused || !self.is_from_file() {
            return None;
        }
        Some(format!(
            "{}: the weights do not state their activation, so {} is assumed; with the wrong one every feature is \
             slightly wrong. Set the activation to quick-gelu (OpenAI's weights and models fine-tuned from them) or to \
             gelu (open_clip's default, most LAION and DataComp weights)",
            self.path().display(),
            config.activation.name()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_or_repository_in_a_name_decides_and_a_tag_of_two_activations_needs_its_architecture() {
        let activation = |name: &str, arch| tagged(&[plain(name)], arch).map(|(activation, _)| activation);
        use Activation::{Gelu, QuickGelu};
        assert_eq!(activation("ViT-B-32-laion2b_s34b_b79k.pt", Some("ViT-B-32")), Some(Gelu));
        assert_eq!(activation("models--laion--CLIP-ViT-B-16-laion2B-s34B-b88K", None), Some(Gelu));
        assert_eq!(activation("ViT-B-16-openai.pt", Some("ViT-B-16")), Some(QuickGelu));
        assert_eq!(activation("epoch_32-ViT-B-32-quickgelu.pt", None), Some(QuickGelu));
        assert_eq!(activation("laion400m_e32.pt", Some("ViT-B-32")), Some(QuickGelu));
        assert_eq!(activation("laion400m_e32.pt", Some("ViT-B-16")), Some(Gelu));
        assert_eq!(activation("laion400m_e32.pt", None), None);
        let squash = |name: &str, arch| tagged(&[plain(name)], arch).map(|(_, how)| how == Preprocess::SQUASH);
        assert_eq!(squash("DFN5B-CLIP-ViT-H-14-378", Some("ViT-H-14-378")), Some(true));
        assert_eq!(squash("DFN2B-CLIP-ViT-L-14", Some("ViT-L-14")), Some(false));
        assert_eq!(activation("my-model.pt", Some("ViT-B-16")), None);
        assert_eq!(activation("openaiish.pt", Some("ViT-B-16")), None);
    }
}
