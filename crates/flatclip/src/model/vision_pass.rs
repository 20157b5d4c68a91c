//! A forward pass through a vision transformer with a backward pass to visual prompts, to LayerNorm parameters, and
//! from gradients on the tokens between blocks.
//!
//! Each image goes alone: gradients are wanted of a few views, which several at a time would share out unevenly, and what a
//! block keeps of one image is large. The backward pass computes each block again from its recorded input, and the inputs
//! too of images whose tokens were not recorded; images without any gradient are skipped.

use super::block::{Scratch, Side};
use super::norms::NormAffine;
use super::towers::VisionPass;
use super::vit::{Prompted, Vit};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::attention::Queries;
use flatclip_tensor::ops::{normalise, normalise_backward};
use rayon::prelude::*;
use std::cell::OnceCell;

/// What a vision pass computes with besides pixels.
#[derive(Clone, Copy, Debug, Default)]
pub struct VisionInput<'a> {
    /// Visual prompts `[L, width]`: the first is appended to the tokens before `ln_pre`, the i-th (from 1) overwrites the
    /// last `L` tokens before block `i`.
    pub prompts: &'a [Matrix],
    /// LayerNorm parameters in place of the checkpoint's.
    pub norms: Option<&'a NormAffine>,
    /// Images, from the first on, whose tokens between blocks are kept: all for `VisionPass::tokens`, and as many as
    /// memory allows for a faster gradient.
    pub recorded: usize,
}

/// Gradients with respect to what a [`VisionInput`] holds.
#[derive(Clone, Debug)]
pub struct VisionGradient {
    /// One per visual prompt.
    pub prompts: Vec<Matrix>,
    /// The LayerNorm parameters.
    pub norms: NormAffine,
}

/// The tokens of one image after each block: `[tokens, width]` each.
type Record = Vec<Vec<f32>>;

/// Image features, and what is needed for the gradient of anything computed from them.
#[derive(Debug)]
pub(super) struct VisionRun<'a> {
    vit: &'a Vit,
    pixels: Vec<f32>,
    prompts: Vec<Matrix>,
    norms: NormAffine,
    features: Matrix,
    lengths: Vec<f32>,
    /// Of the first images; the others are run forward again for a gradient.
    records: Vec<Record>,
}

impl<'a> VisionRun<'a> {
    pub(super) fn new(vit: &'a Vit, pixels: &[f32], count: usize, input: &VisionInput<'_>) -> Result<Self> {
        check(vit, input)?;
        let norms = input.norms.unwrap_or(&vit.norms).clone();
        let prompts = input.prompts.to_vec();
        let (kept, dim) = (input.recorded.min(count), vit.embed_dim());
        let (first, rest) = pixels.split_at(kept * vit.pixels());
        let tower = Prompted { vit, prompts: &prompts, norms: &norms };
        let recorded = first.par_chunks(vit.pixels()).map(|pixels| {
            let outputs = block_outputs(tower, &tower.embed(pixels));
            let mut raw = vec![0.0; dim];
            tower.head(&last_output(&outputs)[..vit.width], &mut raw);
            (raw, outputs)
        });
        let (raw, records): (Vec<Vec<f32>>, Vec<Record>) = recorded.unzip();
        let mut raw = raw.concat();
        raw.extend(tower.encode(rest, count - kept).data());
        let mut features = Matrix::from_vec(count, dim, raw);
        let lengths = normalise(features.data_mut(), dim);
        Ok(Self { vit, pixels: pixels.to_vec(), prompts, norms, features, lengths, records })
    }

    fn check_gradient(&self, d_features: &Matrix, d_tokens: &[(usize, Vec<f32>)]) -> Result<()> {
        let wrong = |reason: String| Err(Error::config("vision gradient", reason));
        let (rows, cols) = (self.features.rows(), self.features.cols());
        if (d_features.rows(), d_features.cols()) != (rows, cols) {
            let found = (d_features.rows(), d_features.cols());
            return wrong(format!("feature gradient {found:?}, expected {:?}", (rows, cols)));
        }
        let size = rows * self.tokens_per_image() * self.vit.width;
        for (block, d) in d_tokens {
            if *block >= self.vit.blocks.len() || d.len() != size {
                return wrong(format!(
                    "{} values for block {block}, expected {size} for a block below {}",
                    d.len(),
                    self.vit.blocks.len()
                ));
            }
        }
        Ok(())
    }

    fn tower(&self) -> Prompted<'_> {
        Prompted { vit: self.vit, prompts: &self.prompts, norms: &self.norms }
    }

    /// Values of the tokens of one image.
    fn image_size(&self) -> usize {
        self.tower().tokens() * self.vit.width
    }

    fn is_active(&self, image: usize, d_raw: &[f32], d_tokens: &[(usize, Vec<f32>)]) -> bool {
        let any = |d: &[f32]| d.iter().any(|&d| d != 0.0);
        any(piece(d_raw, self.features.cols(), image))
            || d_tokens.iter().any(|(_, d)| any(piece(d, self.image_size(), image)))
    }

    fn no_gradient(&self) -> VisionGradient {
        VisionGradient {
            prompts: self.prompts.iter().map(|prompt| Matrix::zeros(prompt.rows(), prompt.cols())).collect(),
            norms: NormAffine::zeros_like(&self.norms),
        }
    }

    fn image_gradient(&self, image: usize, d_raw: &[f32], d_tokens: &[(usize, Vec<f32>)]) -> VisionGradient {
        let (vit, norms, tower) = (self.vit, &self.norms, self.tower());
        let mut gradient = self.no_gradient();
        let embedded = tower.embed(piece(&self.pixels, vit.pixels(), image));
        let again = OnceCell::new();
        let record = self.records.get(image);
        let outputs = record.unwrap_or_else(|| again.get_or_init(|| block_outputs(tower, &embedded)));
        let starts = tower.starts(1);
        let shape = vit.shape(&starts, Queries::All);
        let class_token = &last_output(outputs)[..vit.width];
        let mut d = self.head_gradient(piece(d_raw, self.features.cols(), image), class_token, &mut gradient);
        for (layer, block) in vit.blocks.iter().enumerate().rev() {
            let x = block_input(tower, &embedded, outputs, layer);
            let tape = block.tape(&x, &shape, &norms.blocks[layer]);
            let side = Side { norms: Some(&mut gradient.norms.blocks[layer]), ..Side::default() };
            d = block.backward(&x, &tape, &shape, &norms.blocks[layer], d, side);
            for (_, d_tokens) in d_tokens.iter().filter(|(at, _)| *at == layer) {
                d.iter_mut().zip(piece(d_tokens, self.image_size(), image)).for_each(|(d, t)| *d += t);
            }
            if layer > 0 {
                take_prompt_gradient(&mut d, gradient.prompts.get_mut(layer));
            }
        }
        let mut d_embedded = vec![0.0; d.len()];
        if let (Some(pre), Some(gradient)) = (&norms.pre, &mut gradient.norms.pre) {
            pre.backward(&embedded, &d, &mut d_embedded);
            gradient.add_gradient(&embedded, &d);
        }
        take_prompt_gradient(&mut d_embedded, gradient.prompts.first_mut());
        gradient
    }

    /// Through projection and `ln_post`, to the output of the last block: zero but for the class token.
    fn head_gradient(&self, d_raw: &[f32], class_token: &[f32], gradient: &mut VisionGradient) -> Vec<f32> {
        let width = self.vit.width;
        let mut d_normal = vec![0.0; width];
        match &self.vit.projection {
            Some(projection) => projection.backward(d_raw, 1, &mut d_normal),
            None => d_normal.copy_from_slice(d_raw),
        }
        let mut d = vec![0.0; self.image_size()];
        self.norms.post.backward(class_token, &d_normal, &mut d[..width]);
        gradient.norms.post.add_gradient(class_token, &d_normal);
        d
    }
}

impl VisionPass for VisionRun<'_> {
    fn features(&self) -> &Matrix {
        &self.features
    }

    fn norms(&self) -> &[f32] {
        &self.lengths
    }

    fn tokens_per_image(&self) -> usize {
        self.tower().tokens()
    }

    fn tokens(&self, block: usize) -> Result<Matrix> {
        let records = &self.records;
        if records.len() < self.features.rows() {
            return Err(Error::config("vision pass", "the tokens of some images were not recorded; set `recorded`"));
        }
        if block >= self.vit.blocks.len() {
            let reason = format!("block {block}, but the tower has {}", self.vit.blocks.len());
            return Err(Error::config("vision pass", reason));
        }
        let data = match block.checked_sub(1) {
            None => {
                let tower = self.tower();
                tower.first_input(tower.embed(&self.pixels))
            }
            Some(below) => {
                let mut x: Vec<f32> = records.iter().flat_map(|image| image[below].iter().copied()).collect();
                self.tower().overwrite(&mut x, block);
                x
            }
        };
        Ok(Matrix::from_vec(data.len() / self.vit.width, self.vit.width, data))
    }

    fn gradient(&self, d_features: &Matrix, d_tokens: &[(usize, Vec<f32>)]) -> Result<VisionGradient> {
        self.check_gradient(d_features, d_tokens)?;
        let mut d_raw = vec![0.0; d_features.data().len()];
        normalise_backward(self.features.data(), &self.lengths, d_features.data(), &mut d_raw);
        let active: Vec<usize> =
            (0..self.features.rows()).filter(|&image| self.is_active(image, &d_raw, d_tokens)).collect();
        let parts: Vec<VisionGradient> =
            active.into_par_iter().map(|image| self.image_gradient(image, &d_raw, d_tokens)).collect();
        let mut total = self.no_gradient();
        for part in parts {
            total.norms.add(&part.norms);
            for (to, from) in total.prompts.iter_mut().zip(&part.prompts) {
                to.data_mut().iter_mut().zip(from.data()).for_each(|(to, from)| *to += from);
            }
        }
        Ok(total)
    }
}

fn check(vit: &Vit, input: &VisionInput<'_>) -> Result<()> {
    if let Some(reason) = vit.form.lacks_gradient() {
        let reason =
            format!("visual prompts, token records and norm gradients: this image tower {reason}, expected a CLIP ViT");
        return Err(Error::config("model", reason));
    }
    let wrong = |reason: String| Err(Error::config("visual prompts", reason));
    if input.prompts.len() > vit.blocks.len() {
        return wrong(format!("{} prompts, but only {} blocks", input.prompts.len(), vit.blocks.len()));
    }
    if let Some(first) = input.prompts.first() {
        let expected = (first.rows(), vit.width);
        if let Some(odd) = input.prompts.iter().find(|p| (p.rows(), p.cols()) != expected) {
            return wrong(format!("shape {:?}, expected {expected:?}", (odd.rows(), odd.cols())));
        }
    }
    match input.norms {
        Some(norms) if !norms.same_shape(&vit.norms) => {
            Err(Error::config("LayerNorm parameters", "they belong to another architecture than this image tower"))
        }
        _ => Ok(()),
    }
}

/// The output of every block for one image, all tokens.
fn block_outputs(tower: Prompted<'_>, embedded: &[f32]) -> Record {
    let starts = tower.starts(1);
    let shape = tower.vit.shape(&starts, Queries::All);
    let mut scratch = Scratch::default();
    let mut outputs = Record::with_capacity(tower.vit.blocks.len());
    for (layer, block) in tower.vit.blocks.iter().enumerate() {
        let mut x = block_input(tower, embedded, &outputs, layer);
        block.forward(&mut x, &shape, &tower.norms.blocks[layer], &mut scratch);
        outputs.push(x);
    }
    outputs
}

fn last_output(outputs: &Record) -> &[f32] {
    outputs.last().map_or(&[], Vec::as_slice)
}

/// What block `layer` reads: the output below it with the prompt of this layer written in.
fn block_input(tower: Prompted<'_>, embedded: &[f32], outputs: &[Vec<f32>], layer: usize) -> Vec<f32> {
    let Some(below) = layer.checked_sub(1) else { return tower.first_input(embedded.to_vec()) };
    let mut x = outputs[below].clone();
    tower.overwrite(&mut x, layer);
    x
}

/// Moves the gradient of the last rows of an image into that of the prompt that stood there.
fn take_prompt_gradient(d: &mut [f32], prompt: Option<&mut Matrix>) {
    let Some(prompt) = prompt else { return };
    let (_, rows) = d.split_at_mut(d.len() - prompt.data().len());
    prompt.data_mut().iter_mut().zip(rows.iter()).for_each(|(to, from)| *to += from);
    rows.fill(0.0);
}

/// Piece `index` of pieces of `size` values.
fn piece(data: &[f32], size: usize, index: usize) -> &[f32] {
    &data[index * size..][..size]
}
