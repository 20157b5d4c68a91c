//! The vision transformer: patches, class token, positions, blocks, the class token projected.

use super::block::{Block, Scratch};
use super::load::Reader;
use super::norms::NormAffine;
use crate::Result;
use flatclip_tensor::ops::attention::{Queries, Shape};
use flatclip_tensor::{Activation, Linear, Matrix, threads};
use std::cell::RefCell;

/// Most images that go through the tower together: enough rows for the matrix products, few enough to stay in the cache.
const CHUNK_IMAGES: usize = 4;

thread_local! {
    /// Work space of a thread, kept from one batch to the next.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A frozen vision transformer.
#[derive(Debug)]
pub(crate) struct Vit {
    pub(super) width: usize,
    heads: usize,
    patch: usize,
    grid: usize,
    patches: Linear,
    class_embedding: Vec<f32>,
    positions: Vec<f32>,
    pub(super) norms: NormAffine,
    pub(super) blocks: Vec<Block>,
    pub(super) projection: Linear,
}

/// The sizes of a tower.
pub(super) struct Sizes {
    pub(super) width: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) patch: usize,
    pub(super) mlp: usize,
    pub(super) image_size: usize,
    pub(super) embed_dim: usize,
}

impl Vit {
    pub(super) fn load(reader: &Reader<'_>, sizes: &Sizes, activation: Activation) -> Result<Self> {
        let &Sizes { width, patch, .. } = sizes;
        let grid = sizes.image_size / patch.max(1);
        let block = |i| Block::load(reader, &format!("visual.transformer.resblocks.{i}"), width, sizes.mlp, activation);
        let (blocks, block_norms) = (0..sizes.layers).map(block).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let kernel = reader.tensor("visual.conv1.weight", &[width, 3, patch, patch])?;
        Ok(Self {
            width,
            heads: sizes.heads,
            patch,
            grid,
            patches: Linear::new(width, 3 * patch * patch, &kernel, None),
            class_embedding: reader.tensor("visual.class_embedding", &[width])?,
            positions: reader.tensor("visual.positional_embedding", &[grid * grid + 1, width])?,
            norms: NormAffine {
                pre: reader.norm("visual.ln_pre", width)?,
                blocks: block_norms,
                post: reader.norm("visual.ln_post", width)?,
            },
            blocks,
            projection: reader.projection("visual.proj", width, sizes.embed_dim)?,
        })
    }

    /// Values of one image.
    pub(super) fn pixels(&self) -> usize {
        3 * (self.grid * self.patch).pow(2)
    }

    /// Class token and patches.
    pub(super) fn tokens(&self) -> usize {
        self.grid * self.grid + 1
    }

    pub(super) fn shape<'a>(&self, starts: &'a [usize], queries: Queries) -> Shape<'a> {
        Shape { width: self.width, heads: self.heads, starts, causal: false, queries, prefix: None }
    }

    /// Raw features `[count, D]`.
    pub(super) fn encode(&self, pixels: &[f32], count: usize, prompts: &[Matrix], norms: &NormAffine) -> Matrix {
        let mut raw = Matrix::zeros(count, self.projection.outputs());
        let dim = raw.cols();
        let images = count.div_ceil(rayon::current_num_threads()).clamp(1, CHUNK_IMAGES);
        let chunks = raw.data_mut().chunks_mut(images * dim).zip(pixels.chunks(images * self.pixels()));
        threads::map(chunks.collect(), |(raw, pixels)| {
            let mut scratch = SCRATCH.take();
            self.encode_chunk(pixels, prompts, norms, &mut scratch, raw);
            SCRATCH.set(scratch);
        });
        raw
    }

    fn encode_chunk(
        &self,
        pixels: &[f32],
        prompts: &[Matrix],
        norms: &NormAffine,
        scratch: &mut Scratch,
        raw: &mut [f32],
    ) {
        let count = pixels.len() / self.pixels();
        let embedded = self.embed(pixels, prompts.first());
        let mut x = vec![0.0; embedded.len()];
        norms.pre.apply(&embedded, &mut x);
        let starts = self.starts(count, prompts);
        for (layer, block) in self.blocks.iter().enumerate() {
            self.overwrite(&mut x, prompts, layer);
            // After the last block only the class token is read.
            let queries = if layer + 1 == self.blocks.len() { Queries::First } else { Queries::All };
            block.forward(&mut x, &self.shape(&starts, queries), &norms.blocks[layer], scratch);
        }
        self.head(&x, norms, raw);
    }

    /// `ln_post` and projection of class tokens.
    pub(super) fn head(&self, class_tokens: &[f32], norms: &NormAffine, raw: &mut [f32]) {
        let mut normal = vec![0.0; class_tokens.len()];
        norms.post.apply(class_tokens, &mut normal);
        self.projection.forward(&normal, class_tokens.len() / self.width, Activation::Identity, raw);
    }

    /// First rows of the images of a chunk.
    pub(super) fn starts(&self, count: usize, prompts: &[Matrix]) -> Vec<usize> {
        let tokens = self.tokens() + prompts.first().map_or(0, Matrix::rows);
        (0..=count).map(|i| i * tokens).collect()
    }

    /// Before block `layer` (from 1) the last tokens of each image are overwritten by `prompts[layer]`.
    pub(super) fn overwrite(&self, x: &mut [f32], prompts: &[Matrix], layer: usize) {
        let Some(prompt) = prompts.get(layer).filter(|_| layer > 0) else { return };
        let size = (self.tokens() + prompt.rows()) * self.width;
        for image in x.chunks_exact_mut(size) {
            image[size - prompt.data().len()..].copy_from_slice(prompt.data());
        }
    }

    /// Tokens before `ln_pre`: class token and patches with positions, then the first visual prompt without.
    pub(super) fn embed(&self, pixels: &[f32], prompt: Option<&Matrix>) -> Vec<f32> {
        let (width, cells) = (self.width, self.grid * self.grid);
        let patches = self.patches(pixels);
        let prompt = prompt.map_or(&[][..], Matrix::data);
        let mut x = Vec::with_capacity(patches.len() / cells * self.tokens() + prompt.len());
        for image in patches.chunks_exact(cells * width) {
            let tokens = self.class_embedding.iter().chain(image);
            x.extend(tokens.zip(&self.positions).map(|(x, p)| x + p));
            x.extend_from_slice(prompt);
        }
        x
    }

    /// The patch convolution as a product: `[images * grid², width]`.
    pub(super) fn patches(&self, pixels: &[f32]) -> Vec<f32> {
        let (p, side) = (self.patch, self.grid * self.patch);
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

    /// Every step for debugging: `conv1` (`[images * grid², width]`), `ln_pre`, `block0`.., `ln_post`.
    pub(super) fn trace(&self, pixels: &[f32]) -> Vec<(String, Matrix)> {
        let matrix = |x: &[f32]| Matrix::from_vec(x.len() / self.width, self.width, x.to_vec());
        let count = pixels.len() / self.pixels();
        let mut trace = vec![("conv1".to_owned(), matrix(&self.patches(pixels)))];
        let embedded = self.embed(pixels, None);
        let mut x = vec![0.0; embedded.len()];
        self.norms.pre.apply(&embedded, &mut x);
        trace.push(("ln_pre".to_owned(), matrix(&x)));
        let starts = self.starts(count, &[]);
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.forward_taped(&x, &self.shape(&starts, Queries::All), &self.norms.blocks[layer]).0;
            trace.push((format!("block{layer}"), matrix(&x)));
        }
        let first: Vec<f32> =
            x.chunks_exact(self.tokens() * self.width).flat_map(|image| image[..self.width].to_vec()).collect();
        let mut normal = vec![0.0; first.len()];
        self.norms.post.apply(&first, &mut normal);
        trace.push(("ln_post".to_owned(), matrix(&normal)));
        trace
    }
}
