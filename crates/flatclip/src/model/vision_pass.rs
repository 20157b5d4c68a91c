//! A forward pass through a vision transformer with a backward pass to visual prompts, to LayerNorm parameters, and
//! from gradients on the tokens between blocks.
//!
//! Images go in small chunks. The backward pass computes each block again from its recorded input, and the inputs too of
//! images whose tokens were not recorded; images without any gradient are skipped.

use super::block::Side;
use super::norms::NormAffine;
use super::towers::VisionPass;
use super::vit::Vit;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::attention::Queries;
use flatclip_tensor::ops::{normalise, normalise_backward};
use rayon::prelude::*;

/// Images that go together: gradients are wanted of a few views, which several at a time would share out unevenly, and what
/// a block keeps of one image is large.
const CHUNK_IMAGES: usize = 1;

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
        let kept = input.recorded.min(count);
        let (first, rest) = pixels.split_at(kept * vit.pixels());
        let (mut raw, records) = recorded(vit, first, &prompts, &norms);
        raw.extend(vit.encode(rest, count - kept, &prompts, &norms).data());
        let dim = vit.embed_dim();
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

    fn image_size(&self) -> usize {
        self.tokens_per_image() * self.vit.width
    }

    fn is_active(&self, image: usize, d_raw: &[f32], d_tokens: &[(usize, Vec<f32>)]) -> bool {
        let (dim, size) = (self.features.cols(), self.image_size());
        let any = |d: &[f32]| d.iter().any(|&d| d != 0.0);
        any(&d_raw[image * dim..(image + 1) * dim])
            || d_tokens.iter().any(|(_, d)| any(&d[image * size..(image + 1) * size]))
    }

    fn no_gradient(&self) -> VisionGradient {
        VisionGradient {
            prompts: self.prompts.iter().map(|prompt| Matrix::zeros(prompt.rows(), prompt.cols())).collect(),
            norms: NormAffine::zeros_like(&self.norms),
        }
    }

    fn chunk_gradient(&self, images: &[usize], d_raw: &[f32], d_tokens: &[(usize, Vec<f32>)]) -> VisionGradient {
        let (vit, norms, size) = (self.vit, &self.norms, self.image_size());
        let mut gradient = self.no_gradient();
        let pixels = gather(&self.pixels, vit.pixels(), images);
        let embedded = vit.embed(&pixels, self.prompts.first());
        let records: Option<Vec<&Record>> = images.iter().map(|&image| self.records.get(image)).collect();
        let outputs = match records {
            Some(records) => {
                let block = |i: usize| records.iter().flat_map(|image| image[i].iter().copied()).collect();
                (0..vit.blocks.len()).map(block).collect()
            }
            None => block_outputs(vit, &embedded, images.len(), &self.prompts, norms),
        };
        let starts = vit.starts(images.len(), &self.prompts);
        let mut d = self.head_gradient(images, d_raw, outputs.last().map_or(&[][..], Vec::as_slice), &mut gradient);
        for (layer, block) in vit.blocks.iter().enumerate().rev() {
            let x = block_input(vit, &embedded, &outputs, &self.prompts, norms, layer);
            let shape = vit.shape(&starts, Queries::All);
            let tape = block.tape(&x, &shape, &norms.blocks[layer]);
            let side = Side { norms: Some(&mut gradient.norms.blocks[layer]), ..Side::default() };
            d = block.backward(&x, &tape, &shape, &norms.blocks[layer], d, side);
            for (_, d_tokens) in d_tokens.iter().filter(|(at, _)| *at == layer) {
                d.iter_mut().zip(gather(d_tokens, size, images)).for_each(|(d, t)| *d += t);
            }
            if layer > 0 {
                take_prompt_gradient(&mut d, size, gradient.prompts.get_mut(layer));
            }
        }
        let mut d_embedded = vec![0.0; d.len()];
        if let (Some(pre), Some(gradient)) = (&norms.pre, &mut gradient.norms.pre) {
            pre.backward(&embedded, &d, &mut d_embedded);
            gradient.add_gradient(&embedded, &d);
        }
        take_prompt_gradient(&mut d_embedded, size, gradient.prompts.first_mut());
        gradient
    }

    /// Through projection and `ln_post`, to the output of the last block: zero but for class tokens.
    fn head_gradient(&self, images: &[usize], d_raw: &[f32], last: &[f32], gradient: &mut VisionGradient) -> Vec<f32> {
        let (width, size) = (self.vit.width, self.image_size());
        let d_raw = gather(d_raw, self.features.cols(), images);
        let mut d_normal = vec![0.0; images.len() * width];
        match &self.vit.projection {
            Some(projection) => projection.backward(&d_raw, images.len(), &mut d_normal),
            None => d_normal.copy_from_slice(&d_raw),
        }
        let class_tokens = class_tokens(last, size, width);
        let mut d_class = vec![0.0; d_normal.len()];
        self.norms.post.backward(&class_tokens, &d_normal, &mut d_class);
        gradient.norms.post.add_gradient(&class_tokens, &d_normal);
        let mut d = vec![0.0; images.len() * size];
        for (d, d_class) in d.chunks_exact_mut(size).zip(d_class.chunks_exact(width)) {
            d[..width].copy_from_slice(d_class);
        }
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
        self.vit.tokens() + self.prompts.first().map_or(0, Matrix::rows)
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
                let embedded = self.vit.embed(&self.pixels, self.prompts.first());
                block_input(self.vit, &embedded, &[], &self.prompts, &self.norms, 0)
            }
            Some(below) => {
                let mut x: Vec<f32> = records.iter().flat_map(|image| image[below].iter().copied()).collect();
                self.vit.overwrite(&mut x, &self.prompts, block);
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
            active.par_chunks(CHUNK_IMAGES).map(|images| self.chunk_gradient(images, &d_raw, d_tokens)).collect();
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

/// Raw features and, per image and block, the tokens after it.
fn recorded(vit: &Vit, pixels: &[f32], prompts: &[Matrix], norms: &NormAffine) -> (Vec<f32>, Vec<Record>) {
    let dim = vit.embed_dim();
    let size = (vit.tokens() + prompts.first().map_or(0, Matrix::rows)) * vit.width;
    let chunks: Vec<(Vec<f32>, Vec<Record>)> = pixels
        .par_chunks(CHUNK_IMAGES * vit.pixels())
        .map(|pixels| {
            let images = pixels.len() / vit.pixels();
            let embedded = vit.embed(pixels, prompts.first());
            let outputs = block_outputs(vit, &embedded, images, prompts, norms);
            let last = outputs.last().map_or(&[][..], Vec::as_slice);
            let mut raw = vec![0.0; images * dim];
            vit.head(&class_tokens(last, size, vit.width), norms, &mut raw);
            let of_image = |i: usize| outputs.iter().map(|block| block[i * size..(i + 1) * size].to_vec()).collect();
            (raw, (0..images).map(of_image).collect())
        })
        .collect();
    let (raw, records): (Vec<Vec<f32>>, Vec<Vec<Record>>) = chunks.into_iter().unzip();
    (raw.concat(), records.into_iter().flatten().collect())
}

/// The output of every block, all tokens.
fn block_outputs(vit: &Vit, embedded: &[f32], count: usize, prompts: &[Matrix], norms: &NormAffine) -> Vec<Vec<f32>> {
    let starts = vit.starts(count, prompts);
    let shape = vit.shape(&starts, Queries::All);
    let mut scratch = super::block::Scratch::default();
    let mut outputs: Vec<Vec<f32>> = Vec::with_capacity(vit.blocks.len());
    for (layer, block) in vit.blocks.iter().enumerate() {
        let mut x = block_input(vit, embedded, &outputs, prompts, norms, layer);
        block.forward(&mut x, &shape, &norms.blocks[layer], &mut scratch);
        outputs.push(x);
    }
    outputs
}

/// What block `layer` reads: the output below it with the prompt of this layer written in.
fn block_input(
    vit: &Vit,
    embedded: &[f32],
    outputs: &[Vec<f32>],
    prompts: &[Matrix],
    norms: &NormAffine,
    layer: usize,
) -> Vec<f32> {
    let Some(below) = layer.checked_sub(1) else { return vit.first_input(embedded.to_vec(), norms) };
    let mut x = outputs[below].clone();
    vit.overwrite(&mut x, prompts, layer);
    x
}

/// Moves the gradient of the last rows of each image into that of the prompt that stood there, images in order.
fn take_prompt_gradient(d: &mut [f32], size: usize, prompt: Option<&mut Matrix>) {
    let Some(prompt) = prompt else { return };
    for image in d.chunks_exact_mut(size) {
        let rows = &mut image[size - prompt.data().len()..];
        prompt.data_mut().iter_mut().zip(rows.iter()).for_each(|(to, from)| *to += from);
        rows.fill(0.0);
    }
}

fn class_tokens(tokens: &[f32], size: usize, width: usize) -> Vec<f32> {
    tokens.chunks_exact(size).flat_map(|image| image[..width].iter().copied()).collect()
}

/// The listed pieces of `size` values, one after the other.
fn gather(data: &[f32], size: usize, pieces: &[usize]) -> Vec<f32> {
    pieces.iter().flat_map(|&i| data[i * size..(i + 1) * size].iter().copied()).collect()
}
