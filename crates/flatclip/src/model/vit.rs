//! The vision transformer: patches, class token, positions, blocks, the class token or all tokens pooled, projected.

use super::attention_pool::AttentionPool;
use super::block::{Block, BlockSpec, Scratch};
use super::load::{Reader, in_parallel};
use super::norms::NormAffine;
use crate::Result;
use crate::architecture::{ImagePool, Projection, Rotary, VitForm};
use flatclip_tensor::ops::Rotation;
use flatclip_tensor::ops::attention::{Queries, Shape};
use flatclip_tensor::{Activation, Linear, Matrix, threads};
use std::cell::RefCell;
use std::sync::Arc;

/// Most images that go through the tower together: enough rows for the matrix products, few enough to stay in the cache.
const CHUNK_IMAGES: usize = 4;

thread_local! {
    /// Work space of a thread, kept from one batch to the next.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Debug)]
pub(crate) struct Vit {
    pub(super) width: usize,
    heads: usize,
    patch: usize,
    grid: usize,
    /// Of the image in pixels. What is left over behind the last patch is not seen.
    side: usize,
    patches: Linear,
    /// Empty in towers without class token.
    class_embedding: Vec<f32>,
    positions: Vec<f32>,
    pub(super) norms: NormAffine,
    pub(super) blocks: Vec<Block>,
    /// In place of the class token.
    pool: Option<AttentionPool>,
    /// Absent where the width is that of the joint space.
    pub(super) projection: Option<Linear>,
    pub(super) form: VitForm,
}

pub(super) struct Sizes {
    pub(super) width: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) patch: usize,
    pub(super) mlp: usize,
    pub(super) image_size: usize,
    pub(super) embed_dim: usize,
    pub(super) form: VitForm,
}

/// A tower with visual prompts, and with norms that need not be the checkpoint's.
#[derive(Clone, Copy)]
pub(super) struct Prompted<'a> {
    pub(super) vit: &'a Vit,
    pub(super) prompts: &'a [Matrix],
    pub(super) norms: &'a NormAffine,
}

impl Vit {
    pub(super) fn load(reader: &Reader<'_>, sizes: &Sizes, activation: Activation) -> Result<Self> {
        let Sizes { width, patch, heads, embed_dim, form, .. } = *sizes;
        let grid = sizes.image_size / patch.max(1);
        let rotation = form.rotary.map(|rotary| Arc::new(rotation(&rotary, grid, form.class_tokens(), width / heads)));
        let spec = BlockSpec { width, mlp: sizes.mlp, activation, form: &form, rotation };
        let block = |i| Block::load(reader, &format!("visual.transformer.resblocks.{i}"), &spec);
        let (blocks, block_norms) = in_parallel(sizes.layers, block)?.into_iter().unzip();
        let kernel = reader.tensor("visual.conv1.weight", &[width, 3, patch, patch])?;
        let bias = form.patch_bias.then(|| reader.tensor("visual.conv1.bias", &[width])).transpose()?;
        let class = form.class_token.then(|| reader.tensor("visual.class_embedding", &[width])).transpose()?;
        let norm = |name| reader.norm(name, width, form.epsilon);
        let pool = match form.pool {
            ImagePool::ClassToken => None,
            ImagePool::Attention { heads, mlp } => {
                Some(AttentionPool::load(reader, width, (heads, mlp), form.epsilon, activation)?)
            }
        };
        let projection = |bias| reader.projection("visual.proj", width, embed_dim, bias).map(Some);
        Ok(Self {
            width,
            heads,
            patch,
            grid,
            side: sizes.image_size,
            patches: Linear::new(width, 3 * patch * patch, &kernel, bias.as_deref()),
            class_embedding: class.unwrap_or_default(),
            positions: reader.tensor("visual.positional_embedding", &[grid * grid + form.class_tokens(), width])?,
            norms: NormAffine {
                pre: form.pre_norm.then(|| norm("visual.ln_pre")).transpose()?,
                blocks: block_norms,
                post: norm("visual.ln_post")?,
            },
            blocks,
            pool,
            projection: match form.projection {
                Projection::None => None,
                Projection::Matrix => projection(false)?,
                Projection::Affine => projection(true)?,
            },
            form,
        })
    }

    /// Values of one image.
    pub(super) fn pixels(&self) -> usize {
        3 * self.side * self.side
    }

    /// Class token, if any, and patches.
    fn tokens(&self) -> usize {
        self.grid * self.grid + self.form.class_tokens()
    }

    pub(super) fn embed_dim(&self) -> usize {
        self.projection.as_ref().map_or(self.width, Linear::outputs)
    }

    pub(super) fn shape<'a>(&self, starts: &'a [usize], queries: Queries) -> Shape<'a> {
        Shape { width: self.width, heads: self.heads, starts, causal: false, queries, prefix: None }
    }

    /// Without prompts, and with the norms of the checkpoint.
    pub(super) fn plain(&self) -> Prompted<'_> {
        Prompted { vit: self, prompts: &[], norms: &self.norms }
    }

    /// The patch convolution as a product: `[images * grid², width]`.
    fn patches(&self, pixels: &[f32]) -> Vec<f32> {
        let (p, side) = (self.patch, self.side);
        let mut cells = Vec::with_capacity(pixels.len());
        for image in pixels.chunks_exact(self.pixels()) {
            for cell in 0..self.grid * self.grid {
                let (top, left) = (cell / self.grid * p, cell % self.grid * p);
                for line in 0..3 * p {
                    let (channel, y) = (line / p, line % p);
                    let at = (channel * side + top + y) * side + left;
                    cells.extend_from_slice(&image[at..at + p]);
                }
            }
        }
        let rows = cells.len() / (3 * p * p);
        let mut out = vec![0.0; rows * self.width];
        self.patches.forward(&cells, rows, Activation::Identity, &mut out);
        out
    }

    /// Every step for debugging: `conv1` (`[images * grid², width]`), `ln_pre`, `block0`.., `norm` (all tokens),
    /// `ln_post` (class tokens), `pool`.
    pub(super) fn trace(&self, pixels: &[f32]) -> Vec<(String, Matrix)> {
        let matrix = |x: &[f32]| Matrix::from_vec(x.len() / self.width, self.width, x.to_vec());
        let count = pixels.len() / self.pixels();
        let mut trace = vec![("conv1".to_owned(), matrix(&self.patches(pixels)))];
        let mut x = self.plain().first_input(self.plain().embed(pixels));
        trace.push(("ln_pre".to_owned(), matrix(&x)));
        let (starts, mut scratch) = (self.plain().starts(count), Scratch::default());
        for (layer, block) in self.blocks.iter().enumerate() {
            block.forward(&mut x, &self.shape(&starts, Queries::All), &self.norms.blocks[layer], &mut scratch);
            trace.push((format!("block{layer}"), matrix(&x)));
        }
        let mut normal = vec![0.0; x.len()];
        self.norms.post.apply(&x, &mut normal);
        trace.push(("norm".to_owned(), matrix(&normal)));
        match &self.pool {
            Some(pool) => trace.push(("pool".to_owned(), matrix(&pool.forward(&normal, count)))),
            None => {
                let images = normal.chunks_exact(self.tokens() * self.width);
                let first: Vec<f32> = images.flat_map(|image| image[..self.width].iter().copied()).collect();
                trace.push(("ln_post".to_owned(), matrix(&first)));
            }
        }
        trace
    }
}

impl Prompted<'_> {
    /// Tokens of one image: class token, if any, patches, visual prompts.
    pub(super) fn tokens(self) -> usize {
        self.vit.tokens() + self.prompts.first().map_or(0, Matrix::rows)
    }

    /// Raw features `[count, D]`.
    pub(super) fn encode(self, pixels: &[f32], count: usize) -> Matrix {
        let mut raw = Matrix::zeros(count, self.vit.embed_dim());
        let dim = raw.cols();
        let images = count.div_ceil(rayon::current_num_threads()).clamp(1, CHUNK_IMAGES);
        let chunks = raw.data_mut().chunks_mut(images * dim).zip(pixels.chunks(images * self.vit.pixels()));
        threads::map(chunks.collect(), |(raw, pixels)| {
            let mut scratch = SCRATCH.take();
            self.encode_chunk(pixels, &mut scratch, raw);
            SCRATCH.set(scratch);
        });
        raw
    }

    fn encode_chunk(self, pixels: &[f32], scratch: &mut Scratch, raw: &mut [f32]) {
        let vit = self.vit;
        let mut x = self.first_input(self.embed(pixels));
        let starts = self.starts(pixels.len() / vit.pixels());
        for (layer, block) in vit.blocks.iter().enumerate() {
            self.overwrite(&mut x, layer);
            // After the last block only the class token is read, unless all tokens are pooled.
            let is_last = layer + 1 == vit.blocks.len() && vit.pool.is_none();
            let queries = if is_last { Queries::First } else { Queries::All };
            block.forward(&mut x, &vit.shape(&starts, queries), &self.norms.blocks[layer], scratch);
        }
        self.head(&x, raw);
    }

    /// What the first block reads.
    pub(super) fn first_input(self, embedded: Vec<f32>) -> Vec<f32> {
        let Some(pre) = &self.norms.pre else { return embedded };
        let mut x = vec![0.0; embedded.len()];
        pre.apply(&embedded, &mut x);
        x
    }

    /// Features of class tokens, or of all tokens where they are pooled: `ln_post`, pool, projection.
    pub(super) fn head(self, tokens: &[f32], raw: &mut [f32]) {
        let mut x = vec![0.0; tokens.len()];
        self.norms.post.apply(tokens, &mut x);
        let count = raw.len() / self.vit.embed_dim();
        if let Some(pool) = &self.vit.pool {
            x = pool.forward(&x, count);
        }
        match &self.vit.projection {
            Some(projection) => projection.forward(&x, count, Activation::Identity, raw),
            None => raw.copy_from_slice(&x),
        }
    }

    /// First rows of so many images.
    pub(super) fn starts(self, count: usize) -> Vec<usize> {
        (0..=count).map(|i| i * self.tokens()).collect()
    }

    /// Before block `layer` (from 1) the last tokens of each image are overwritten by `prompts[layer]`.
    pub(super) fn overwrite(self, x: &mut [f32], layer: usize) {
        let Some(prompt) = self.prompts.get(layer).filter(|_| layer > 0) else { return };
        let size = self.tokens() * self.vit.width;
        for image in x.chunks_exact_mut(size) {
            image[size - prompt.data().len()..].copy_from_slice(prompt.data());
        }
    }

    /// Tokens before `ln_pre`: class token and patches with positions, then the first visual prompt without.
    pub(super) fn embed(self, pixels: &[f32]) -> Vec<f32> {
        let Vit { width, grid, class_embedding, positions, .. } = self.vit;
        let patches = self.vit.patches(pixels);
        let prompt = self.prompts.first().map_or(&[][..], Matrix::data);
        let mut x = Vec::with_capacity(pixels.len() / self.vit.pixels() * self.tokens() * width);
        for image in patches.chunks_exact(grid * grid * width) {
            x.extend(class_embedding.iter().chain(image).zip(positions).map(|(x, p)| x + p));
            x.extend_from_slice(prompt);
        }
        x
    }
}

/// The angles of a grid of patches behind `class_tokens` tokens that do not turn, for heads of `size` channels.
fn rotation(rotary: &Rotary, grid: usize, class_tokens: usize, size: usize) -> Rotation {
    let bands: Vec<f64> = (0..size / 4).map(|j| rotary.temperature.powf(-(j as f64) / (size / 4) as f64)).collect();
    let scale = rotary.reference.map_or(1.0, |side| side / grid as f64);
    let mut angles = vec![0.0; class_tokens * size / 2];
    for cell in 0..grid * grid {
        let (row, column) = (cell / grid, cell % grid);
        let order = if rotary.column_first { [column, row] } else { [row, column] };
        for place in order {
            let place = (place as f64 + rotary.offset) * scale;
            angles.extend(bands.iter().map(|band| place * band));
        }
    }
    Rotation::new(&angles, size)
}
