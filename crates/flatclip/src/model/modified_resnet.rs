//! CLIP's modified ResNet: a three-convolution stem, anti-aliased bottlenecks, an attention pool.
//!
//! Channels last. BatchNorm runs on its stored statistics, so it is folded into the convolution before it; a convolution
//! is then a matrix product over pixels, gathered strip by strip. Early stages go image by image; in late ones, where
//! images are small and weights large, a few images share each product.

mod batch_norms;

pub(super) use batch_norms::BatchNormRun;
pub use batch_norms::BatchNorms;

use super::load::{Reader, in_parallel};
use crate::Result;
use flatclip_tensor::ops::attention::{self, Queries, Shape};
use flatclip_tensor::threads::on_this_thread;
use flatclip_tensor::{Activation, Linear, Matrix};
use rayon::prelude::*;
use std::cell::RefCell;

/// Output pixels that are gathered together for a 3x3 convolution.
const STRIP: usize = 512;
/// Most images that go through the late stages together.
const CHUNK_IMAGES: usize = 4;
/// Stages that go image by image.
const EARLY_STAGES: usize = 2;
const BATCH_NORM_EPSILON: f32 = 1e-5;

thread_local! {
    /// Buffers of a thread, stored from one chunk to the next.
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Images with channels last.
#[derive(Clone, Debug)]
struct Plane {
    images: usize,
    height: usize,
    width: usize,
    channels: usize,
    data: Vec<f32>,
}

/// How a chunk of images is worked on.
struct Work {
    /// Whether strips of a convolution go to all threads; otherwise the chunks do.
    spread: bool,
    /// Buffers of planes that are done with: fresh memory costs more than many of the products.
    free: Vec<Vec<f32>>,
}

impl Work {
    fn new(spread: bool) -> Self {
        Self { spread, free: Vec::new() }
    }

    /// A buffer with arbitrary content, the tightest of the free ones.
    fn take(&mut self, size: usize) -> Vec<f32> {
        let fits = self.free.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= size);
        let tightest = fits.min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at);
        let mut buffer = tightest.map(|at| self.free.swap_remove(at)).unwrap_or_default();
        buffer.resize(size, 0.0);
        buffer
    }

    fn give(&mut self, plane: Plane) {
        self.free.push(plane.data);
    }
}

/// A convolution without bias and the BatchNorm behind it.
#[derive(Debug)]
struct Conv {
    kernel: usize,
    stride: usize,
    channels: usize,
    linear: Linear,
    norm: StoredNorm,
}

/// What is kept of a folded BatchNorm, so that one with other statistics can stand in its place.
#[derive(Debug)]
struct StoredNorm {
    /// Its name in the checkpoint.
    name: String,
    gain: Vec<f32>,
    shift: Vec<f32>,
    /// What the convolution's rows were multiplied by.
    scale: Vec<f32>,
}

#[derive(Debug)]
struct Bottleneck {
    convs: [Conv; 3],
    pool: usize,
    shortcut: Option<Conv>,
}

#[derive(Debug)]
pub(crate) struct ModifiedResNet {
    image_size: usize,
    stem: [Conv; 3],
    stages: Vec<Vec<Bottleneck>>,
    heads: usize,
    positions: Vec<f32>,
    query: Linear,
    keys_values: Linear,
    projection: Linear,
}

impl ModifiedResNet {
    pub(super) fn load(
        reader: &Reader<'_>,
        width: usize,
        blocks: &[usize; 4],
        heads: usize,
        image_size: usize,
        embed_dim: usize,
    ) -> Result<Self> {
        let stem = [
            Conv::load(reader, "visual.conv1", "visual.bn1", width / 2, 3, 3, 2)?,
            Conv::load(reader, "visual.conv2", "visual.bn2", width / 2, width / 2, 3, 1)?,
            Conv::load(reader, "visual.conv3", "visual.bn3", width, width / 2, 3, 1)?,
        ];
        let mut stages = Vec::with_capacity(4);
        for (stage, &count) in blocks.iter().enumerate() {
            let planes = width << stage;
            let bottleneck = |block: usize| {
                let name = format!("visual.layer{}.{block}", stage + 1);
                let (pool, inputs) = match (stage, block) {
                    (0, 0) => (1, width),
                    (_, 0) => (2, 2 * planes),
                    _ => (1, 4 * planes),
                };
                Bottleneck::load(reader, &name, inputs, planes, pool)
            };
            stages.push(in_parallel(count, bottleneck)?);
        }
        // What the last stage gives: four times its planes.
        let inputs = 4 * (width << 3);
        let cells = (image_size / 32).pow(2);
        Ok(Self {
            image_size,
            stem,
            stages,
            heads,
            positions: reader.tensor("visual.attnpool.positional_embedding", &[cells + 1, inputs])?,
            query: reader.linear("visual.attnpool.q_proj", inputs, inputs)?,
            keys_values: keys_values(reader, inputs)?,
            projection: reader.linear("visual.attnpool.c_proj", embed_dim, inputs)?,
        })
    }

    /// Values of one image.
    pub(super) fn pixels(&self) -> usize {
        3 * self.image_size * self.image_size
    }

    /// Raw features `[count, D]`.
    pub(super) fn encode(&self, pixels: &[f32], count: usize) -> Matrix {
        let mut raw = Matrix::zeros(count, self.projection.outputs());
        let (dim, threads) = (raw.cols(), rayon::current_num_threads());
        let images = count.div_ceil(threads).clamp(1, CHUNK_IMAGES);
        let chunks = pixels.chunks(images * self.pixels()).zip(raw.data_mut().chunks_mut(images * dim));
        if count.div_ceil(images) < threads {
            let mut work = Work::new(true);
            chunks.for_each(|(pixels, raw)| self.encode_chunk(pixels, &mut work, raw));
        } else {
            let chunks: Vec<_> = chunks.collect();
            chunks.into_par_iter().with_max_len(1).for_each(|(pixels, raw)| {
                let mut work = Work { spread: false, free: FREE.take() };
                on_this_thread(|| self.encode_chunk(pixels, &mut work, raw));
                FREE.set(work.free);
            });
        }
        raw
    }

    fn encode_chunk(&self, pixels: &[f32], work: &mut Work, raw: &mut [f32]) {
        let early: Vec<Plane> = pixels
            .chunks_exact(self.pixels())
            .map(|pixels| {
                let blocks = self.stages.iter().take(EARLY_STAGES).flatten();
                let stem = self.stem(pixels, work);
                blocks.fold(stem, |plane, block| block.forward(plane, work))
            })
            .collect();
        let late = self.stages.iter().skip(EARLY_STAGES).flatten();
        let stacked = stack(early, work);
        let plane = late.fold(stacked, |plane, block| block.forward(plane, work));
        self.pool(&plane, raw);
        work.give(plane);
    }

    /// Every stage for debugging: `stem`, `layer1`.. `layer4`, each `[images * height * width, channels]`.
    pub(super) fn trace(&self, pixels: &[f32]) -> Vec<(String, Matrix)> {
        let mut work = Work::new(true);
        let rows = |name: String, plane: &Plane| {
            (name, Matrix::from_vec(plane.data.len() / plane.channels, plane.channels, plane.data.clone()))
        };
        let stems = pixels.chunks_exact(self.pixels()).map(|pixels| self.stem(pixels, &mut work)).collect();
        let mut plane = stack(stems, &mut work);
        let mut trace = vec![rows("stem".to_owned(), &plane)];
        for (i, stage) in self.stages.iter().enumerate() {
            plane = stage.iter().fold(plane, |plane, block| block.forward(plane, &mut work));
            trace.push(rows(format!("layer{}", i + 1), &plane));
        }
        trace
    }

    fn stem(&self, pixels: &[f32], work: &mut Work) -> Plane {
        let size = self.image_size;
        let mut data = work.take(pixels.len());
        channels_last(pixels, &mut data);
        let mut plane = Plane { images: 1, height: size, width: size, channels: 3, data };
        for conv in &self.stem {
            let next = conv.forward(&plane, Activation::Relu, work);
            work.give(std::mem::replace(&mut plane, next));
        }
        plane.average(2, work)
    }

    /// Attention over all cells of an image, their mean the query.
    fn pool(&self, plane: &Plane, raw: &mut [f32]) {
        let qkv = self.pool_rows(plane);
        self.pool_attention(plane, |shape| {
            let mut pooled = vec![0.0; plane.images * plane.channels];
            attention::forward(shape, &qkv, &mut pooled);
            self.projection.forward(&pooled, plane.images, Activation::Identity, raw);
        });
    }

    /// Who attends to whom in the pool.
    fn pool_attention<R>(&self, plane: &Plane, run: impl FnOnce(&Shape<'_>) -> R) -> R {
        let tokens = plane.height * plane.width + 1;
        let starts: Vec<usize> = (0..=plane.images).map(|i| i * tokens).collect();
        run(&Shape {
            width: plane.channels,
            heads: self.heads,
            starts: &starts,
            causal: false,
            queries: Queries::First,
            prefix: None,
        })
    }

    /// Queries, keys and values of the pool: `[images * tokens, 3 channels]`.
    fn pool_rows(&self, plane: &Plane) -> Vec<f32> {
        let (images, cells, width) = (plane.images, plane.height * plane.width, plane.channels);
        let tokens = cells + 1;
        let mut x = vec![0.0; images * tokens * width];
        for (x, cells_of) in x.chunks_exact_mut(tokens * width).zip(plane.data.chunks_exact(cells * width)) {
            let (mean, rest) = x.split_at_mut(width);
            rest.copy_from_slice(cells_of);
            for cell in rest.chunks_exact(width) {
                mean.iter_mut().zip(cell).for_each(|(m, x)| *m += x / cells as f32);
            }
            x.iter_mut().zip(&self.positions).for_each(|(x, p)| *x += p);
        }
        let means: Vec<f32> = x.chunks_exact(tokens * width).flat_map(|x| x[..width].iter().copied()).collect();
        let mut queries = vec![0.0; images * width];
        self.query.forward(&means, images, Activation::Identity, &mut queries);
        let mut keys_values = vec![0.0; images * tokens * 2 * width];
        self.keys_values.forward(&x, images * tokens, Activation::Identity, &mut keys_values);
        // Only the first row of an image is a query row.
        let mut qkv = vec![0.0; images * tokens * 3 * width];
        for (row, (qkv, keys_values)) in
            qkv.chunks_exact_mut(3 * width).zip(keys_values.chunks_exact(2 * width)).enumerate()
        {
            qkv[width..].copy_from_slice(keys_values);
            if row % tokens == 0 {
                qkv[..width].copy_from_slice(&queries[row / tokens * width..][..width]);
            }
        }
        qkv
    }
}

/// The pool's key and value projections in one.
fn keys_values(reader: &Reader<'_>, width: usize) -> Result<Linear> {
    let (mut weight, mut bias) = (Vec::with_capacity(2 * width * width), Vec::with_capacity(2 * width));
    for part in ["k_proj", "v_proj"] {
        weight.extend(reader.tensor(&format!("visual.attnpool.{part}.weight"), &[width, width])?);
        bias.extend(reader.tensor(&format!("visual.attnpool.{part}.bias"), &[width])?);
    }
    Ok(Linear::new(2 * width, width, &weight, Some(&bias)))
}

/// One image of three planes.
fn channels_last(pixels: &[f32], out: &mut [f32]) {
    for (channel, plane) in pixels.chunks_exact(pixels.len() / 3).enumerate() {
        plane.iter().enumerate().for_each(|(i, &x)| out[3 * i + channel] = x);
    }
}

/// Planes of single images as one plane.
fn stack(mut planes: Vec<Plane>, work: &mut Work) -> Plane {
    if planes.len() == 1 {
        return planes.swap_remove(0);
    }
    let (height, width, channels) = planes.first().map_or((0, 0, 1), |p| (p.height, p.width, p.channels));
    let mut data = work.take(planes.iter().map(|p| p.data.len()).sum());
    let images = planes.len();
    let mut at = 0;
    for plane in planes {
        data[at..at + plane.data.len()].copy_from_slice(&plane.data);
        at += plane.data.len();
        work.give(plane);
    }
    Plane { images, height, width, channels, data }
}

impl Bottleneck {
    fn load(reader: &Reader<'_>, name: &str, inputs: usize, planes: usize, pool: usize) -> Result<Self> {
        let conv = |i: usize, outputs, inputs, kernel| {
            Conv::load(reader, &format!("{name}.conv{i}"), &format!("{name}.bn{i}"), outputs, inputs, kernel, 1)
        };
        let shortcut = (pool > 1 || inputs != 4 * planes).then(|| {
            let (conv, norm) = (format!("{name}.downsample.0"), format!("{name}.downsample.1"));
            Conv::load(reader, &conv, &norm, 4 * planes, inputs, 1, 1)
        });
        Ok(Self {
            convs: [conv(1, planes, inputs, 1)?, conv(2, planes, planes, 3)?, conv(3, 4 * planes, planes, 1)?],
            pool,
            shortcut: shortcut.transpose()?,
        })
    }

    fn forward(&self, x: Plane, work: &mut Work) -> Plane {
        let [first, second, third] = &self.convs;
        let narrow = first.forward(&x, Activation::Relu, work);
        let inner = second.forward(&narrow, Activation::Relu, work).average(self.pool, work);
        work.give(narrow);
        let mut y = match &self.shortcut {
            Some(conv) => {
                let pooled = x.average(self.pool, work);
                let y = conv.forward(&pooled, Activation::Identity, work);
                work.give(pooled);
                y
            }
            None => x,
        };
        third.linear.forward_onto(&inner.data, inner.pixels(), Activation::Relu, &mut y.data);
        work.give(inner);
        y
    }
}

impl Conv {
    fn load(
        reader: &Reader<'_>,
        conv: &str,
        norm: &str,
        outputs: usize,
        inputs: usize,
        kernel: usize,
        stride: usize,
    ) -> Result<Self> {
        let stored = reader.tensor(&format!("{conv}.weight"), &[outputs, inputs, kernel, kernel])?;
        let part = |part: &str| reader.tensor(&format!("{norm}.{part}"), &[outputs]);
        let (gain, shift) = (part("weight")?, part("bias")?);
        let (mean, var) = (part("running_mean")?, part("running_var")?);
        let cells = kernel * kernel;
        let mut weight = vec![0.0; stored.len()];
        let mut bias = vec![0.0; outputs];
        let mut scales = vec![0.0; outputs];
        for o in 0..outputs {
            let scale = gain[o] / (var[o] + BATCH_NORM_EPSILON).sqrt();
            scales[o] = scale;
            bias[o] = shift[o] - mean[o] * scale;
            for i in 0..inputs {
                for cell in 0..cells {
                    // Gathered pixels come cell by cell, channels innermost.
                    weight[(o * cells + cell) * inputs + i] = stored[(o * inputs + i) * cells + cell] * scale;
                }
            }
        }
        let linear = Linear::with_precision(outputs, cells * inputs, &weight, Some(&bias), reader.precision);
        let norm = StoredNorm { name: norm.to_owned(), gain, shift, scale: scales };
        Ok(Self { kernel, stride, channels: inputs, linear, norm })
    }

    fn forward(&self, x: &Plane, activation: Activation, work: &mut Work) -> Plane {
        let (height, width) = (x.height.div_ceil(self.stride), x.width.div_ceil(self.stride));
        let (pixels, channels) = (x.images * height * width, self.linear.outputs());
        let mut data = work.take(pixels * channels);
        let strip = |cells: &mut Vec<f32>, (strip, out): (usize, &mut [f32])| {
            let rows = out.len() / channels;
            self.gather(x, (height, width), strip * STRIP, rows, cells);
            self.linear.forward(cells, rows, activation, out);
        };
        if self.kernel == 1 {
            self.linear.forward(&x.data, pixels, activation, &mut data);
        } else if work.spread {
            data.par_chunks_mut(STRIP * channels).enumerate().for_each_init(Vec::new, strip);
        } else {
            let mut cells = work.take(STRIP.min(pixels) * 9 * self.channels);
            data.chunks_mut(STRIP * channels).enumerate().for_each(|part| strip(&mut cells, part));
            work.free.push(cells);
        }
        Plane { images: x.images, height, width, channels, data }
    }

    /// The 3x3 neighbourhoods of output pixels `first..first + count`, zero outside the image.
    fn gather(&self, x: &Plane, (height, width): (usize, usize), first: usize, count: usize, cells: &mut Vec<f32>) {
        let channels = self.channels;
        cells.resize(count * 9 * channels, 0.0);
        for (pixel, out) in (first..first + count).zip(cells.chunks_exact_mut(9 * channels)) {
            let (line, left) = (pixel / width, pixel % width * self.stride);
            let (image, top) = (line / height, line % height * self.stride);
            for (row, out) in out.chunks_exact_mut(3 * channels).enumerate() {
                let y = (top + row).wrapping_sub(1);
                if y >= x.height {
                    out.fill(0.0);
                    continue;
                }
                // Neighbours in a line of pixels lie side by side: one copy, except at the edges.
                let from = &x.data[(image * x.height + y) * x.width * channels..][..x.width * channels];
                if left > 0 && left + 1 < x.width {
                    out.copy_from_slice(&from[(left - 1) * channels..(left + 2) * channels]);
                    continue;
                }
                for (cell, out) in out.chunks_exact_mut(channels).enumerate() {
                    match from.chunks_exact(channels).nth((left + cell).wrapping_sub(1)) {
                        Some(pixel) => out.copy_from_slice(pixel),
                        None => out.fill(0.0),
                    }
                }
            }
        }
    }
}

impl Plane {
    /// Pixels of all images.
    fn pixels(&self) -> usize {
        self.images * self.height * self.width
    }

    /// Means of `size` by `size` cells. The plane itself, or its buffer, goes back to `work`.
    fn average(self, size: usize, work: &mut Work) -> Self {
        if size == 1 {
            return self;
        }
        let means = self.averaged(size, work);
        work.give(self);
        means
    }

    fn averaged(&self, size: usize, work: &mut Work) -> Self {
        let (height, width, channels) = (self.height / size, self.width / size, self.channels);
        let mut data = work.take(self.images * height * width * channels);
        let share = 1.0 / (size * size) as f32;
        for (pixel, out) in data.chunks_exact_mut(channels).enumerate() {
            let (line, left) = (pixel / width, pixel % width * size);
            let top = line / height * self.height + line % height * size;
            out.fill(0.0);
            for cell in 0..size * size {
                let at = ((top + cell / size) * self.width + left + cell % size) * channels;
                out.iter_mut().zip(&self.data[at..at + channels]).for_each(|(o, x)| *o += x);
            }
            out.iter_mut().for_each(|o| *o *= share);
        }
        Self { images: self.images, height, width, channels, data }
    }
}
