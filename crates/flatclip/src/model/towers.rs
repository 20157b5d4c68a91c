//! The interface of a model's towers. Our kernels implement it (`text.rs`, `image.rs`), and so does any other program that
//! computes them, such as PyTorch through the Python package.
//!
//! Methods, evaluation, tuning and landscapes use these traits only. What an implementation lacks is in
//! [`Passes`]; a method that needs it is refused before any work.

use super::norms::NormAffine;
use super::vision_pass::{VisionGradient, VisionInput};
use super::{BatchNorms, ClassTokens, Context};
use crate::text::Tokenizer;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::fmt::Debug;

/// What towers can compute beyond features of images and of plain texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Text features of contexts.
    pub contexts: bool,
    /// Gradients with respect to contexts.
    pub context_gradient: bool,
    /// Deep prompts of the text tower, with gradients.
    pub deep: bool,
    /// Visual prompts and token records of a vision transformer, with gradients.
    pub vision: bool,
    /// Other norm parameters of the image tower, with gradients.
    pub norms: bool,
}

impl Passes {
    /// All of them.
    pub const ALL: Self = Self { contexts: true, context_gradient: true, deep: true, vision: true, norms: true };
}

/// Where towers run that are not our kernels, for records: results differ between devices.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Device {
    /// The program and the device: `torch cuda (NVIDIA A100)`.
    pub name: String,
    /// What it multiplies in: `float32`, `bfloat16`, ...
    pub dtype: String,
    /// Versions of the libraries that compute.
    pub versions: String,
    /// The lowest cosine of the check against our f32 kernels; `None` where there was nothing to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_cosine: Option<f64>,
}

impl Device {
    /// What results depend on, in one line.
    pub fn arithmetic(&self) -> String {
        [&self.name, &self.dtype, &self.versions].map(|part| part.replace('\n', " ")).join(" ")
    }
}

/// The image tower.
pub trait ImageTower: Debug + Send + Sync {
    /// Raw features `[count, D]` of normalised pixels `[count, 3, size, size]`.
    fn encode(&self, pixels: &[f32], count: usize) -> Result<Matrix>;

    /// Views that make a full call: those of several images go together.
    fn batch_views(&self) -> usize {
        64
    }

    /// Whether it normalises pixels itself, so that bytes are enough.
    fn takes_bytes(&self) -> bool {
        false
    }

    /// The same from bytes `[count, 3, size, size]` of RGB planes in several parts, for a tower that takes them.
    fn encode_bytes(&self, _pixels: &[&[u8]], _count: usize) -> Result<Matrix> {
        Err(lacks("pixels as bytes"))
    }

    /// Which of the passes below there are.
    fn passes(&self) -> Passes;

    /// A pass with visual prompts or other LayerNorm parameters.
    fn pass<'a>(&'a self, _pixels: &[f32], _count: usize, _input: VisionInput<'_>) -> Result<Box<dyn VisionPass + 'a>> {
        Err(lacks("visual prompts"))
    }

    /// Channels of a token of a vision transformer, and so of a visual prompt.
    fn token_width(&self) -> Result<usize> {
        Err(lacks("visual prompts"))
    }

    /// The LayerNorm parameters of a vision transformer.
    fn norm_affine(&self) -> Result<NormAffine> {
        Err(lacks("LayerNorm parameters"))
    }

    /// The BatchNorm scales and shifts of a ResNet.
    fn batch_norms(&self) -> Result<BatchNorms> {
        Err(lacks("BatchNorm parameters"))
    }

    /// A pass through a ResNet whose BatchNorms have these scales and shifts and the statistics of the batch.
    fn batch_norm_pass<'a>(
        &'a self,
        _pixels: &[f32],
        _count: usize,
        _norms: &BatchNorms,
    ) -> Result<Box<dyn BatchNormPass + 'a>> {
        Err(lacks("BatchNorm parameters"))
    }

    /// Every step of the computation for debugging.
    fn trace(&self, _pixels: &[f32], _count: usize) -> Result<Vec<(String, Matrix)>> {
        Err(lacks("a trace"))
    }
}

/// The text tower.
pub trait TextTower: Debug + Send + Sync {
    /// Channels of a token, and so of a context.
    fn width(&self) -> usize;

    /// Positions, start and end included.
    fn context_length(&self) -> usize;

    /// Which of the passes below there are.
    fn passes(&self) -> Passes;

    /// Token embeddings without positions, `[ids, width]`.
    fn embed(&self, ids: &[u32]) -> Result<Matrix>;

    /// Raw features `[texts, D]` of token ids (start to end; padding after the end is ignored).
    fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Matrix>;

    /// Raw features `[texts, D]` of texts, for a tower with a tokenizer of its own; `None` for one that takes token ids.
    fn encode_strings(&self, _texts: &[String]) -> Option<Result<Matrix>> {
        None
    }

    /// Unit-norm text features `[K, D]` for every context.
    fn encode(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Vec<Matrix>>;

    /// The same, ready for [`ContextPass::gradient`].
    fn pass(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Box<dyn ContextPass>> {
        self.pass_through(usize::MAX, tokens, contexts)
    }

    /// The same with a cheaper gradient: rows of classes are differentiated through the last `blocks` blocks only. What
    /// reaches the context by keys and values of earlier blocks is ignored, so the gradient is biased.
    fn pass_through(
        &self,
        _blocks: usize,
        _tokens: &ClassTokens,
        _contexts: &[Context],
    ) -> Result<Box<dyn ContextPass>> {
        Err(lacks("gradients of contexts"))
    }

    /// MaPLe: before block `i` (from 1) the context's positions are overwritten by `deep[i - 1]`, `[n_ctx, width]`.
    fn deep_pass(&self, _tokens: &ClassTokens, _context: &Context, _deep: &[Matrix]) -> Result<Box<dyn DeepPass>> {
        Err(lacks("deep prompts"))
    }

    /// The unit-norm text features `[K, D]` of [`TextTower::deep_pass`] alone.
    fn encode_deep(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Matrix> {
        Ok(self.deep_pass(tokens, context, deep)?.features().clone())
    }

    /// Every step of the computation for debugging.
    fn trace(&self, _ids: &[u32], _length: usize) -> Result<Vec<(String, Matrix)>> {
        Err(lacks("a trace"))
    }

    /// Lets passes keep as much as a text tower that works alone may. It changes the time, never the result.
    fn keep_more_activations(&self) {}

    /// Lets passes keep at most so many bytes. It changes the time, never the result.
    fn limit_activations(&self, _bytes: usize) {}
}

impl dyn TextTower + '_ {
    /// Raw features `[texts, D]` of texts; `truncate` cuts what is too long instead of refusing it. A tower with a tokenizer
    /// of its own gets the texts as they are.
    pub fn encode_texts(&self, tokenizer: &Tokenizer, texts: &[String], truncate: bool) -> Result<Matrix> {
        if let Some(features) = self.encode_strings(texts) {
            return features;
        }
        let tokens = texts.iter().map(|text| tokenizer.sequence(text, self.context_length(), truncate));
        self.encode_tokens(&tokens.collect::<Result<Vec<_>>>()?)
    }
}

/// Text features of some contexts that can be differentiated.
pub trait ContextPass: Debug + Send + Sync {
    /// Unit-norm text features `[K, D]` of each context.
    fn features(&self) -> &[Matrix];

    /// The gradient with respect to each context, from those with respect to the unit-norm features.
    fn gradient(&self, d_features: &[Matrix]) -> Result<Vec<Context>>;
}

/// Text features of a context with deep prompts that can be differentiated.
pub trait DeepPass: Debug + Send + Sync {
    /// Unit-norm text features `[K, D]`.
    fn features(&self) -> &Matrix;

    /// The gradients with respect to the context and to each deep prompt.
    fn gradient(&self, d_features: &Matrix) -> Result<(Context, Vec<Matrix>)>;
}

/// Image features of a vision transformer that can be differentiated with respect to what a [`VisionInput`] holds.
pub trait VisionPass: Debug + Send + Sync {
    /// Unit-norm image features `[count, D]`.
    fn features(&self) -> &Matrix;

    /// Euclidean norms of the raw features.
    fn norms(&self) -> &[f32];

    /// Tokens of one image: class token, patches, visual prompts.
    fn tokens_per_image(&self) -> usize;

    /// The tokens that block `block` reads, visual prompts written in: `[count * tokens, width]`.
    fn tokens(&self, block: usize) -> Result<Matrix>;

    /// Gradients from those of the unit-norm features and, optionally, of the tokens that some blocks read.
    fn gradient(&self, d_features: &Matrix, d_tokens: &[(usize, Vec<f32>)]) -> Result<VisionGradient>;
}

/// Image features of a ResNet on batch statistics that can be differentiated.
pub trait BatchNormPass: Debug + Send + Sync {
    /// Unit-norm image features `[count, D]`.
    fn features(&self) -> &Matrix;

    /// The gradient with respect to scales and shifts from that of the unit-norm features.
    fn gradient(&self, d_features: &Matrix) -> Result<BatchNorms>;
}

/// Methods are refused before they come here; a program that calls a tower itself gets this.
fn lacks(what: &str) -> Error {
    Error::config("model", format!("its towers do not compute {what}; use a model whose towers do"))
}
