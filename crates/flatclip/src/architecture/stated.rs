//! What a configuration file states about the weights next to it.

use super::config::{Activation, ClipConfig, ImageConfig};
use super::form::{TextForm, VitForm};
use super::preprocess::Preprocess;
use crate::Result;
use crate::error::unusable_weights as bad;
use serde_json::Value;
use std::path::Path;

/// What a configuration file may know better than the tensors, and what they must agree with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stated {
    pub(crate) image_heads: Option<usize>,
    pub(crate) text_heads: Option<usize>,
    pub(crate) activation: Option<Activation>,
    /// The parts of the towers; OpenAI's where nothing is stated.
    pub(crate) image_form: Option<VitForm>,
    pub(crate) text_form: Option<TextForm>,
    /// The model has a logit bias.
    pub(crate) logit_bias: bool,
    pub(crate) preprocess: Option<Preprocess>,
    /// With their keys in the configuration.
    pub(crate) sizes: Vec<(Size, String, u64)>,
}

/// Sizes that the tensors show.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    EmbedDim,
    Pixels,
    ImageWidth,
    ImageLayers,
    Patch,
    TextWidth,
    TextLayers,
    ContextLength,
    Vocabulary,
}

impl Size {
    /// Those of an image tower.
    pub(crate) const IMAGE: [Self; 4] = [Self::ImageWidth, Self::ImageLayers, Self::Patch, Self::Pixels];
    /// Those of a text tower.
    pub(crate) const TEXT: [Self; 4] = [Self::TextWidth, Self::TextLayers, Self::ContextLength, Self::Vocabulary];

    fn of(self, config: &ClipConfig) -> Option<usize> {
        let vit = match config.image {
            ImageConfig::Vit { width, layers, patch, .. } => Some((width, layers, patch)),
            ImageConfig::ResNet { .. } | ImageConfig::Other => None,
        };
        let text = config.text.as_ref();
        match self {
            Self::EmbedDim => Some(config.embed_dim),
            Self::Pixels => Some(config.image_size),
            Self::ImageWidth => vit.map(|(width, ..)| width),
            Self::ImageLayers => vit.map(|(_, layers, _)| layers),
            Self::Patch => vit.map(|(.., patch)| patch),
            Self::TextWidth => text.map(|text| text.width),
            Self::TextLayers => text.map(|text| text.layers),
            Self::ContextLength => text.map(|text| text.context_length),
            Self::Vocabulary => text.map(|text| text.vocab),
        }
    }
}

impl Stated {
    /// Keeps the sizes that `tower`, found under `place`, states as whole numbers under these keys.
    pub(crate) fn keep_sizes<const N: usize>(&mut self, place: &str, tower: &Value, keys: [&str; N], sizes: [Size; N]) {
        for (key, size) in std::iter::zip(keys, sizes) {
            if let Some(value) = tower[key].as_u64() {
                let key = if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
                self.sizes.push((size, key, value));
            }
        }
    }

    /// The side of the input in pixels.
    pub(super) fn pixels(&self) -> Option<usize> {
        let (.., pixels) = self.sizes.iter().find(|(size, ..)| matches!(size, Size::Pixels))?;
        usize::try_from(*pixels).ok()
    }

    /// Whether a configuration that merely lies in the same folder is of these weights: it states sizes, and all agree.
    pub(crate) fn fits(&self, path: &Path, config: &ClipConfig) -> bool {
        let (ImageConfig::Vit { heads, .. } | ImageConfig::ResNet { heads, .. }) = config.image else { return false };
        let text_heads = config.text.as_ref().map(|text| text.heads);
        !self.sizes.is_empty()
            && self.image_heads.is_none_or(|stated| stated == heads)
            && self.text_heads.is_none_or(|stated| text_heads.is_none_or(|heads| stated == heads))
            && self.check(path, config).is_ok()
    }

    /// A configuration of another model next to the weights is an error: its other values would be used for them.
    pub(crate) fn check(&self, path: &Path, config: &ClipConfig) -> Result<()> {
        for (size, key, value) in &self.sizes {
            if let Some(found) = size.of(config).filter(|&found| found as u64 != *value) {
                let reason = format!(
                    "the configuration beside it states {key} = {value}, the tensors have {found}; they belong to \
                     different models"
                );
                return Err(bad(path, reason));
            }
        }
        Ok(())
    }
}
