//! Sizes, activation and preprocessing of a model.

use super::form::{TextForm, VitForm};
use super::preprocess::Preprocess;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The non-linearity inside every MLP of both towers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x * sigmoid(1.702 x)`: OpenAI's weights, and those fine-tuned from them.
    QuickGelu,
    /// The exact, erf-based GELU: most LAION and DataComp weights.
    Gelu,
    /// GELU with `tanh`: SigLIP in transformers.
    GeluTanh,
}

impl Activation {
    /// From the words that configurations and users write.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "quick_gelu" | "quickgelu" | "quick-gelu" => Some(Self::QuickGelu),
            "gelu" => Some(Self::Gelu),
            "gelu_tanh" | "gelu-tanh" | "gelu_pytorch_tanh" => Some(Self::GeluTanh),
            _ => None,
        }
    }

    /// The word that [`Activation::parse`] reads back.
    pub fn name(self) -> &'static str {
        match self {
            Self::QuickGelu => "quick_gelu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
        }
    }
}

/// Who said which activation it is. The tensors cannot tell, and the wrong one costs several points of accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationSource {
    /// A configuration file beside the weights, or metadata inside the file.
    Stated,
    /// A published model: its tag in the name of the file or folder, or the layout of OpenAI's own archives.
    Published,
    /// Nobody: what the family of the checkpoint (its tensor names) uses.
    Assumed,
    /// The user.
    Asked,
}

/// The image tower.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ImageConfig {
    /// Vision transformer.
    Vit {
        /// Channels of a token.
        width: usize,
        /// Blocks.
        layers: usize,
        /// Attention heads.
        heads: usize,
        /// Side of a patch in pixels.
        patch: usize,
        /// Hidden width of the MLP, 4 x width in OpenAI's models.
        mlp: usize,
        /// Its parts.
        form: VitForm,
    },
    /// CLIP's modified ResNet with attention pooling.
    ResNet {
        /// Channels after the stem.
        width: usize,
        /// Bottlenecks of the four stages.
        blocks: [usize; 4],
        /// Heads of the attention pool.
        heads: usize,
    },
}

/// The text tower.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextConfig {
    /// Channels of a token.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Positions: 77 in CLIP, 64 in SigLIP, 32 in PE-Core.
    pub context_length: usize,
    /// Rows of the token embedding.
    pub vocab: usize,
    /// Hidden width of the MLP.
    pub mlp: usize,
    /// Its parts.
    pub form: TextForm,
}

/// A checkpoint's architecture and how images are prepared for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClipConfig {
    /// Width of the joint space, D.
    pub embed_dim: usize,
    /// Side of the square input in pixels.
    pub image_size: usize,
    /// Non-linearity of the MLPs.
    pub activation: Activation,
    /// Who said so.
    pub activation_source: ActivationSource,
    /// The image tower.
    pub image: ImageConfig,
    /// The text tower; `None` when the checkpoint holds an image tower only.
    pub text: Option<TextConfig>,
    /// The factor on cosines, tau: `exp` of the number in the file (100 when the file has none).
    pub logit_scale: f32,
    /// Added to scaled cosines where a pair of image and text is scored by itself (sigmoid); `None` for models without.
    pub logit_bias: Option<f32>,
    /// How an image becomes the tower's input.
    pub preprocess: Preprocess,
}

/// Released sizes: name, embed_dim, image size, image tower, text width.
const RELEASED: &[(&str, usize, usize, Tower, usize)] = &[
    ("RN50", 1024, 224, Tower::Rn(64, [3, 4, 6, 3]), 512),
    ("RN101", 512, 224, Tower::Rn(64, [3, 4, 23, 3]), 512),
    ("RN50x4", 640, 288, Tower::Rn(80, [4, 6, 10, 6]), 640),
    ("RN50x16", 768, 384, Tower::Rn(96, [6, 8, 18, 8]), 768),
    ("RN50x64", 1024, 448, Tower::Rn(128, [3, 15, 36, 10]), 1024),
    ("ViT-B-32", 512, 224, Tower::Vit(768, 12, 32), 512),
    ("ViT-B-16", 512, 224, Tower::Vit(768, 12, 16), 512),
    ("ViT-L-14", 768, 224, Tower::Vit(1024, 24, 14), 768),
    ("ViT-L-14-336", 768, 336, Tower::Vit(1024, 24, 14), 768),
    ("ViT-H-14", 1024, 224, Tower::Wide(1280, 32, 16), 1024),
    ("ViT-B-16-SigLIP", 768, 224, Tower::SigLip(768, 12), 768),
    ("PE-Core-B-16", 1024, 224, Tower::PeCore(768, 12), 1024),
    ("EVA02-B-16", 512, 224, Tower::Eva(768, 12), 512),
];

#[derive(Clone, Copy)]
enum Tower {
    Vit(usize, usize, usize),
    /// Width, layers, heads; patches of 14 pixels, 24 text layers.
    Wide(usize, usize, usize),
    /// Width, layers; patches of 16 pixels.
    SigLip(usize, usize),
    PeCore(usize, usize),
    Eva(usize, usize),
    Rn(usize, [usize; 4]),
}

/// Channels of a head where nothing states another number: in most released models.
pub(crate) const HEAD_WIDTH: usize = 64;

impl ClipConfig {
    /// The names that [`ClipConfig::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RELEASED.iter().map(|row| row.0)
    }

    /// A released architecture by name: `ViT-B-16` (or `ViT-B/16`), `RN50`, `ViT-L-14-336` (or `ViT-L/14@336px`), ...
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace(['/', '@'], "-").trim_end_matches("px").to_owned();
        let &(_, embed_dim, image_size, tower, width) =
            RELEASED.iter().find(|row| row.0.eq_ignore_ascii_case(&name))?;
        let vit = |width, layers, patch, mlp, form| {
            let heads = if let Tower::Wide(.., heads) = tower { heads } else { width / HEAD_WIDTH };
            ImageConfig::Vit { width, layers, heads, patch, mlp, form }
        };
        let mut text = TextConfig {
            width,
            layers: 12,
            heads: width / HEAD_WIDTH,
            context_length: 77,
            vocab: 49_408,
            mlp: 4 * width,
            form: TextForm::CLIP,
        };
        let (mut logit_bias, mut activation) = (None, Activation::QuickGelu);
        let image = match tower {
            Tower::Vit(width, layers, patch) => vit(width, layers, patch, 4 * width, VitForm::CLIP),
            Tower::Wide(width, layers, _) => {
                (text.layers, activation) = (24, Activation::Gelu);
                vit(width, layers, 14, 4 * width, VitForm::CLIP)
            }
            Tower::SigLip(width, layers) => {
                (text.context_length, text.vocab, text.form) = (64, 32_000, TextForm::SIGLIP);
                (logit_bias, activation) = (Some(-10.0), Activation::Gelu);
                vit(width, layers, 16, 4 * width, VitForm::siglip(width / HEAD_WIDTH, 4 * width))
            }
            Tower::PeCore(width, layers) => {
                (text.layers, text.context_length, activation) = (24, 32, Activation::Gelu);
                vit(width, layers, 16, 4 * width, VitForm::pe_core(true, 4 * width))
            }
            Tower::Eva(width, layers) => {
                activation = Activation::Gelu;
                vit(width, layers, 16, width * 8 / 3, VitForm::EVA02)
            }
            Tower::Rn(width, blocks) => ImageConfig::ResNet { width, blocks, heads: width * 32 / HEAD_WIDTH },
        };
        Some(Self {
            embed_dim,
            image_size,
            activation,
            activation_source: ActivationSource::Assumed,
            image,
            text: Some(text),
            logit_scale: 100.0,
            logit_bias,
            preprocess: Preprocess::CLIP,
        })
    }

    /// The released architecture with these sizes, if there is one (activation and preprocessing aside).
    pub fn released_name(&self) -> Option<&'static str> {
        Self::names().find(|name| {
            Self::named(name).is_some_and(|other| {
                other.image == self.image
                    && other.image_size == self.image_size
                    && other.embed_dim == self.embed_dim
                    && (self.text.is_none() || other.text == self.text)
            })
        })
    }

    /// Tokens that the image tower attends over: patches and, if it has one, the class token (attention pool tokens for a ResNet).
    pub fn image_tokens(&self) -> usize {
        match &self.image {
            ImageConfig::Vit { patch, form, .. } => (self.image_size / patch).pow(2) + form.class_tokens(),
            ImageConfig::ResNet { .. } => (self.image_size / 32).pow(2) + 1,
        }
    }

    /// One line for people: what was loaded, and which activation on whose word.
    pub fn describe(&self) -> String {
        let mut line = match (self.released_name(), &self.image) {
            (Some(name), _) => name.to_owned(),
            (None, ImageConfig::Vit { .. }) => "ViT".to_owned(),
            (None, ImageConfig::ResNet { .. }) => "ModifiedResNet".to_owned(),
        };
        match &self.image {
            ImageConfig::Vit { width, layers, heads, patch, .. } => {
                let _ = write!(
                    line,
                    " (image {0}x{0}, patch {patch}, width {width}, {layers} layers, {heads} heads",
                    self.image_size
                );
            }
            ImageConfig::ResNet { width, blocks, heads } => {
                let _ =
                    write!(line, " (image {0}x{0}, width {width}, blocks {blocks:?}, {heads} heads", self.image_size);
            }
        }
        match &self.text {
            Some(t) => {
                let _ = write!(
                    line,
                    "; text width {}, {} layers, {} heads, {} positions, {} tokens",
                    t.width, t.layers, t.heads, t.context_length, t.vocab
                );
            }
            None => line.push_str("; no text tower"),
        }
        let who = match self.activation_source {
            ActivationSource::Stated => "stated by the checkpoint",
            ActivationSource::Published => "as published",
            ActivationSource::Assumed => "assumed from the checkpoint's family",
            ActivationSource::Asked => "as asked",
        };
        let other = self.text.as_ref().and_then(|text| text.form.activation);
        let other = other.map(|other| format!(" (text {})", other.name())).unwrap_or_default();
        let _ = write!(line, "; features {}; {}{other} {who})", self.embed_dim, self.activation.name());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_names_are_found_by_either_spelling_and_back() {
        for name in ClipConfig::names() {
            let config = ClipConfig::named(name).unwrap();
            assert_eq!(config.released_name(), Some(name));
        }
        assert_eq!(ClipConfig::named("ViT-L/14@336px"), ClipConfig::named("ViT-L-14-336"));
        assert_eq!(ClipConfig::named("ViT-B/16").unwrap().image_tokens(), 197);
        assert!(ClipConfig::named("ViT-Z").is_none());
    }

    #[test]
    fn the_description_says_the_activation_and_who_said_so() {
        let mut config = ClipConfig::named("ViT-B-16").unwrap();
        assert!(config.describe().contains("quick_gelu assumed"), "{}", config.describe());
        (config.activation, config.activation_source) = (Activation::Gelu, ActivationSource::Stated);
        assert!(config.describe().contains("gelu stated"), "{}", config.describe());
        config.text = None;
        assert!(config.describe().contains("no text tower"));
    }
}
