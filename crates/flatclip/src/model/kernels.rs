//! Our kernels as towers: the first implementation of the traits, and the reference for the others.

use super::context_pass::ContextRun;
use super::deep::DeepRun;
use super::image::ImageKernels;
use super::modified_resnet::BatchNormRun;
use super::norms::NormAffine;
use super::text::TextKernels;
use super::towers::{BatchNormPass, ContextPass, DeepPass, ImageTower, Passes, TextTower, VisionPass};
use super::vision_pass::{VisionGradient, VisionInput, VisionRun};
use super::{BatchNorms, ClassTokens, Context};
use crate::Result;
use flatclip_tensor::Matrix;
use std::sync::Arc;

impl ImageTower for ImageKernels {
    fn encode(&self, pixels: &[f32], count: usize) -> Result<Matrix> {
        self.encode(pixels, count)
    }

    fn passes(&self) -> Passes {
        let differentiable = self.lacks_gradient().is_none();
        Passes { vision: differentiable, norms: differentiable, ..Passes::ALL }
    }

    fn pass<'a>(&'a self, pixels: &[f32], count: usize, input: VisionInput<'_>) -> Result<Box<dyn VisionPass + 'a>> {
        Ok(Box::new(self.pass(pixels, count, input)?))
    }

    fn token_width(&self) -> Result<usize> {
        self.token_width()
    }

    fn norm_affine(&self) -> Result<NormAffine> {
        self.norm_affine()
    }

    fn batch_norms(&self) -> Result<BatchNorms> {
        self.batch_norms()
    }

    fn batch_norm_pass<'a>(
        &'a self,
        pixels: &[f32],
        count: usize,
        norms: &BatchNorms,
    ) -> Result<Box<dyn BatchNormPass + 'a>> {
        Ok(Box::new(self.batch_norm_pass(pixels, count, norms)?))
    }

    fn trace(&self, pixels: &[f32], count: usize) -> Result<Vec<(String, Matrix)>> {
        self.trace(pixels, count)
    }
}

/// Shared, since passes keep a handle on the tower for their gradient.
impl TextTower for Arc<TextKernels> {
    fn width(&self) -> usize {
        TextKernels::width(self)
    }

    fn context_length(&self) -> usize {
        TextKernels::context_length(self)
    }

    fn passes(&self) -> Passes {
        Passes { deep: self.config.form.causal, ..Passes::ALL }
    }

    fn embed(&self, ids: &[u32]) -> Result<Matrix> {
        TextKernels::embed(self, ids)
    }

    fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Matrix> {
        TextKernels::encode_tokens(self, texts)
    }

    fn encode(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Vec<Matrix>> {
        TextKernels::encode(self, tokens, contexts)
    }

    fn pass_through(&self, blocks: usize, tokens: &ClassTokens, contexts: &[Context]) -> Result<Box<dyn ContextPass>> {
        Ok(Box::new(TextKernels::pass_through(self, blocks, tokens, contexts)?))
    }

    fn deep_pass(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Box<dyn DeepPass>> {
        Ok(Box::new(TextKernels::deep_pass(self, tokens, context, deep)?))
    }

    fn encode_deep(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Matrix> {
        TextKernels::encode_deep(self, tokens, context, deep)
    }

    fn trace(&self, ids: &[u32], length: usize) -> Result<Vec<(String, Matrix)>> {
        TextKernels::trace(self, ids, length)
    }

    fn keep_more_activations(&self) {
        TextKernels::keep_more_activations(self);
    }

    fn limit_activations(&self, bytes: usize) {
        TextKernels::limit_activations(self, bytes);
    }
}

impl ContextPass for ContextRun {
    fn features(&self) -> &[Matrix] {
        self.features()
    }

    fn gradient(&self, d_features: &[Matrix]) -> Result<Vec<Context>> {
        self.gradient(d_features)
    }
}

impl DeepPass for DeepRun {
    fn features(&self) -> &Matrix {
        self.features()
    }

    fn gradient(&self, d_features: &Matrix) -> Result<(Context, Vec<Matrix>)> {
        self.gradient(d_features)
    }
}

impl VisionPass for VisionRun<'_> {
    fn features(&self) -> &Matrix {
        self.features()
    }

    fn norms(&self) -> &[f32] {
        self.norms()
    }

    fn tokens_per_image(&self) -> usize {
        self.tokens_per_image()
    }

    fn tokens(&self, block: usize) -> Result<Matrix> {
        self.tokens(block)
    }

    fn gradient(&self, d_features: &Matrix, d_tokens: &[(usize, Vec<f32>)]) -> Result<VisionGradient> {
        self.gradient(d_features, d_tokens)
    }
}

impl BatchNormPass for BatchNormRun<'_> {
    fn features(&self) -> &Matrix {
        self.features()
    }

    fn gradient(&self, d_features: &Matrix) -> Result<BatchNorms> {
        self.gradient(d_features)
    }
}
