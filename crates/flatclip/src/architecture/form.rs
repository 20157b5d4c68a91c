//! What transformers of other families have in addition to their sizes: SigLIP, PE-Core, EVA-02, and open_clip's options.

use super::config::Activation;
use serde::{Deserialize, Serialize};

/// The parts of a vision transformer. [`VitForm::CLIP`] is OpenAI's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VitForm {
    /// A learned token before the patches.
    pub class_token: bool,
    /// The patch convolution has a bias.
    pub patch_bias: bool,
    /// A norm before the first block.
    pub pre_norm: bool,
    /// What every norm adds to the variance.
    pub epsilon: f32,
    /// How the positions of patches rotate queries and keys, in addition to the learned positions.
    pub rotary: Option<Rotary>,
    /// A norm after the attention, before its projection.
    pub attention_norm: bool,
    /// The MLP is gated: `silu(g) x` of two halves.
    pub gated: bool,
    /// A norm inside the MLP, before its second layer.
    pub mlp_norm: bool,
    /// What the feature is read from.
    pub pool: ImagePool,
    /// What maps it into the joint space.
    pub projection: Projection,
}

/// What an image feature is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImagePool {
    /// The class token.
    ClassToken,
    /// All tokens, class token included: a learned query attends to them, and an MLP follows (MAP head).
    Attention {
        /// Heads of this attention, not always those of the blocks.
        heads: usize,
        /// Hidden width of its MLP.
        mlp: usize,
    },
}

/// The map from a tower's width into the joint space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// None: the widths are equal.
    None,
    /// A matrix.
    Matrix,
    /// A matrix and a bias.
    Affine,
}

/// Rotary embedding over a grid of patches: half of the channels of a head follow one coordinate, half the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotary {
    /// Base of the wavelengths.
    pub temperature: f64,
    /// Added to both coordinates.
    pub offset: f64,
    /// Side of the grid that coordinates are scaled to; `None` is the tower's own.
    pub reference: Option<f64>,
    /// The column comes first (`xy`), not the row (`ij`).
    pub column_first: bool,
}

/// The parts of a text transformer. [`TextForm::CLIP`] is OpenAI's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextForm {
    /// A position sees itself and earlier ones. If not, it sees all, and every text fills all positions.
    pub causal: bool,
    /// Where the feature is read.
    pub pool: TextPool,
    /// The token behind the end of a text that fills all positions.
    pub padding: u32,
    /// What every norm adds to the variance.
    pub epsilon: f32,
    /// The projection has a bias.
    pub projection_bias: bool,
    /// The activation, where it is not the image tower's.
    pub activation: Option<Activation>,
}

/// Where a text feature is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextPool {
    /// The end of the text: the first of the largest token ids.
    End,
    /// The last position.
    Last,
}

impl VitForm {
    /// OpenAI's vision transformer.
    pub const CLIP: Self = Self {
        class_token: true,
        patch_bias: false,
        pre_norm: true,
        epsilon: 1e-5,
        rotary: None,
        attention_norm: false,
        gated: false,
        mlp_norm: false,
        pool: ImagePool::ClassToken,
        projection: Projection::Matrix,
    };

    /// SigLIP's, with these sizes of its MAP head.
    pub const fn siglip(heads: usize, mlp: usize) -> Self {
        Self {
            class_token: false,
            patch_bias: true,
            pre_norm: false,
            epsilon: 1e-6,
            pool: ImagePool::Attention { heads, mlp },
            projection: Projection::None,
            ..Self::CLIP
        }
    }

    /// PE-Core's: eight heads pool, whatever the blocks have.
    pub const fn pe_core(class_token: bool, mlp: usize) -> Self {
        let offset = if class_token { 1.0 } else { 0.0 };
        Self {
            class_token,
            rotary: Some(Rotary { temperature: 10_000.0, offset, reference: None, column_first: true }),
            pool: ImagePool::Attention { heads: 8, mlp },
            projection: Projection::Affine,
            ..Self::CLIP
        }
    }

    /// That of EVA-02-CLIP.
    pub const EVA02: Self = Self {
        patch_bias: true,
        pre_norm: false,
        epsilon: 1e-6,
        rotary: Some(Rotary { temperature: 10_000.0, offset: 0.0, reference: Some(16.0), column_first: false }),
        attention_norm: true,
        gated: true,
        mlp_norm: true,
        projection: Projection::Affine,
        ..Self::CLIP
    };

    /// Tokens before the patches.
    pub fn class_tokens(&self) -> usize {
        usize::from(self.class_token)
    }

    /// Why visual prompts, token statistics and norm gradients do not exist for this tower; `None` where they do.
    pub fn lacks_gradient(&self) -> Option<&'static str> {
        match self {
            Self { pool: ImagePool::Attention { .. }, .. } => Some("pools by attention (MAP head)"),
            Self { rotary: Some(_), .. } => Some("has rotary positions"),
            Self { gated: true, .. } | Self { attention_norm: true, .. } | Self { mlp_norm: true, .. } => {
                Some("has gated or normed inner layers")
            }
            Self { pre_norm: false, .. } => Some("has no norm before its blocks"),
            _ => None,
        }
    }
}

impl TextForm {
    /// OpenAI's text transformer.
    pub const CLIP: Self =
        Self { causal: true, pool: TextPool::End, padding: 0, epsilon: 1e-5, projection_bias: false, activation: None };

    /// SigLIP's. The padding is its end token; that of SigLIP 2 is 0.
    pub const SIGLIP: Self =
        Self { causal: false, pool: TextPool::Last, padding: 1, epsilon: 1e-6, projection_bias: true, ..Self::CLIP };

    /// What SigLIP pads with, by its vocabulary: Gemma's 256 000 tokens are those of SigLIP 2.
    pub fn siglip_padding(vocabulary: Option<u64>) -> u32 {
        u32::from(vocabulary != Some(256_000))
    }
}
