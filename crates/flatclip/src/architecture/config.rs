//! Sizes, activation and preprocessing of a model.

use super::form::{TextForm, VitForm};
use super::preprocess::Preprocess;
use serde::{Deserialize, Serialize};

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

/// Where the activation comes from. The tensors do not show it, and the wrong one costs several points of accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationSource {
    /// A configuration file next to the weights, or metadata inside the file.
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
    /// Of a kind that is defined by the program which computes it.
    Other,
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
    /// Where the activation comes from.
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

/// Channels of a head where nothing states another number: in most released models.
pub(crate) const HEAD_WIDTH: usize = 64;

impl ClipConfig {
    /// Tokens that the image tower attends over: patches and, if it has one, the class token (attention pool tokens for a ResNet).
    pub fn image_tokens(&self) -> usize {
        match &self.image {
            ImageConfig::Vit { patch, form, .. } => (self.image_size / patch).pow(2) + form.class_tokens(),
            ImageConfig::ResNet { .. } => (self.image_size / 32).pow(2) + 1,
            ImageConfig::Other => 0,
        }
    }

    /// One line for people: what was loaded, and which activation on whose word.
    pub fn describe(&self) -> String {
        let Self { image_size: side, embed_dim, activation, .. } = self;
        let (kind, image) = match &self.image {
            ImageConfig::Vit { width, layers, heads, patch, .. } => {
                ("ViT", format!("patch {patch}, width {width}, {layers} layers, {heads} heads"))
            }
            ImageConfig::ResNet { width, blocks, heads } => {
                ("ModifiedResNet", format!("width {width}, blocks {blocks:?}, {heads} heads"))
            }
            ImageConfig::Other => return format!("encoder (image {side}x{side}; features {embed_dim})"),
        };
        let name = self.released_name().unwrap_or(kind);
        let text = match &self.text {
            Some(TextConfig { width, layers, heads, context_length, vocab, .. }) => format!(
                "text width {width}, {layers} layers, {heads} heads, {context_length} positions, {vocab} tokens"
            ),
            None => "no text tower".to_owned(),
        };
        let who = match self.activation_source {
            ActivationSource::Stated => "stated by the checkpoint",
            ActivationSource::Published => "as published",
            ActivationSource::Assumed => "assumed from the checkpoint's family",
            ActivationSource::Asked => "as asked",
        };
        let other = self.text.as_ref().and_then(|text| text.form.activation);
        let other = other.map(|other| format!(" (text {})", other.name())).unwrap_or_default();
        let activation = activation.name();
        format!("{name} (image {side}x{side}, {image}; {text}; features {embed_dim}; {activation}{other} {who})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
