//! A pass through the ResNet with other BatchNorm scales and shifts, on the statistics of the batch, and its gradient with
//! respect to them: what SAR moves.
//!
//! The folded convolution gives `y = s c + b` of the plain one's `c`. Normalising takes `b` away and `s` out:
//! `(c - mean c) / sqrt(var c + e) = sign(s) (y - mean y) / sqrt(var y + e s^2)`, so the folded weights serve as they are. (Where a
//! checkpoint's scale is exactly 0 nothing is left of `c`: such a channel stays at its shift.)
//!
//! All images go together from norm to norm. Kept are the blocks' inputs; the backward pass computes each block again.

use super::{BATCH_NORM_EPSILON, Bottleneck, Conv, ModifiedResNet, Plane, STRIP, Work, channels_last};
use crate::model::towers::BatchNormPass;
use crate::{Error, Result};
use flatclip_tensor::ops::attention;
use flatclip_tensor::ops::{normalise, normalise_backward};
use flatclip_tensor::{Activation, Matrix};
use rayon::prelude::*;

/// Pixels whose sums are added up together: fixed, so that no byte depends on the number of threads.
const GROUP: usize = 4096;

/// Scales and shifts of all BatchNorms of the tower, or a gradient with respect to them.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorms {
    names: Vec<String>,
    /// Scale and shift in turns, as many as there are names.
    values: Vec<Vec<f32>>,
    /// How many of them are moved, from the first on.
    moved: usize,
}

impl BatchNorms {
    /// From named scales and shifts in turns, all of them moved.
    pub fn from_tensors(named: Vec<(String, Vec<f32>)>) -> Self {
        let moved = named.len();
        let (names, values) = named.into_iter().unzip();
        Self { names, values, moved }
    }

    /// All tensors, also those that are not moved.
    pub fn all(&self) -> Vec<&[f32]> {
        self.values.iter().map(Vec::as_slice).collect()
    }

    /// The same with other numbers, as [`BatchNorms::all`] orders them.
    pub fn with_values(&self, values: Vec<Vec<f32>>) -> Result<Self> {
        if values.iter().map(Vec::len).ne(self.values.iter().map(Vec::len)) {
            return Err(Error::config("batch norms", "expected the scales and shifts of this tower, found others"));
        }
        Ok(Self { values, ..self.clone() })
    }

    /// The same, of which the last stage (`layer4`) is moved or left as it is.
    #[must_use]
    pub fn with_last_stage(mut self, moved: bool) -> Self {
        let before = self.names.iter().position(|name| name.starts_with("visual.layer4."));
        self.moved = if moved { self.names.len() } else { before.unwrap_or(self.names.len()) };
        self
    }

    /// Names of the tensors that are moved: `visual.bn1.weight`, `visual.bn1.bias`, ..., `visual.layer1.0.downsample.1.bias`.
    pub fn names(&self) -> &[String] {
        &self.names[..self.moved]
    }

    /// The tensors that are moved.
    pub fn tensors(&self) -> Vec<&[f32]> {
        self.values[..self.moved].iter().map(Vec::as_slice).collect()
    }

    /// The same, to write.
    pub(crate) fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        self.values[..self.moved].iter_mut().map(Vec::as_mut_slice).collect()
    }

    fn affine(&self, norm: usize) -> [&[f32]; 2] {
        [&self.values[2 * norm], &self.values[2 * norm + 1]]
    }

    fn set(&mut self, norm: usize, [scale, shift]: [Vec<f32>; 2]) {
        self.values[2 * norm] = scale;
        self.values[2 * norm + 1] = shift;
    }
}

impl ModifiedResNet {
    /// The checkpoint's own.
    pub(in crate::model) fn batch_norms(&self) -> BatchNorms {
        let convs: Vec<&Conv> =
            self.stem.iter().chain(self.stages.iter().flatten().flat_map(Bottleneck::all)).collect();
        let names = convs.iter().flat_map(|c| ["weight", "bias"].map(|part| format!("{}.{part}", c.norm.name)));
        let values = convs.iter().flat_map(|c| [c.norm.gain.clone(), c.norm.shift.clone()]);
        BatchNorms { names: names.collect(), values: values.collect(), moved: 2 * convs.len() }
    }
}

impl Bottleneck {
    /// Its convolutions, the shortcut's last.
    fn all(&self) -> impl Iterator<Item = &Conv> {
        self.convs.iter().chain(&self.shortcut)
    }
}

/// The output of a convolution, and what its batch norm divides by.
struct Normed {
    raw: Plane,
    mean: Vec<f32>,
    /// `sign(s) / sqrt(var y + e s^2)`.
    inverse: Vec<f32>,
}

/// Sums over all pixels of a function of each pixel's row, one per channel.
fn channel_sums(data: &[f32], channels: usize, add: impl Fn(usize, &[f32], &mut [f64]) + Sync) -> Vec<f64> {
    let parts: Vec<Vec<f64>> = data
        .par_chunks(GROUP * channels)
        .enumerate()
        .map(|(group, rows)| {
            let mut sums = vec![0.0; channels];
            rows.chunks_exact(channels).enumerate().for_each(|(i, row)| add(group * GROUP + i, row, &mut sums));
            sums
        })
        .collect();
    let mut total = vec![0.0; channels];
    parts.iter().for_each(|part| total.iter_mut().zip(part).for_each(|(t, p)| *t += p));
    total
}

impl Normed {
    fn new(conv: &Conv, x: &Plane, work: &mut Work) -> Self {
        let raw = conv.forward(x, Activation::Identity, work);
        let (channels, count) = (raw.channels, raw.pixels() as f64);
        let sums = channel_sums(&raw.data, channels, |_, row, sums| {
            sums.iter_mut().zip(row).for_each(|(s, &y)| *s += f64::from(y));
        });
        let mean: Vec<f64> = sums.iter().map(|s| s / count).collect();
        let squares = channel_sums(&raw.data, channels, |_, row, sums| {
            for ((s, &y), m) in sums.iter_mut().zip(row).zip(&mean) {
                *s += (f64::from(y) - m).powi(2);
            }
        });
        let inverse = |(square, &scale): (&f64, &f32)| {
            let scale = f64::from(scale);
            let spread = (square / count + f64::from(BATCH_NORM_EPSILON) * scale * scale).sqrt();
            if spread > 0.0 { (1.0f64.copysign(scale) / spread) as f32 } else { 0.0 }
        };
        let inverse = squares.iter().zip(&conv.norm.scale).map(inverse).collect();
        Self { raw, mean: mean.iter().map(|&m| m as f32).collect(), inverse }
    }

    /// `scale * normalised + shift`.
    fn affine(&self, [scale, shift]: [&[f32]; 2]) -> Plane {
        let mut out = self.raw.clone();
        let channels = out.channels;
        out.data.par_chunks_mut(GROUP * channels).for_each(|rows| {
            for row in rows.chunks_exact_mut(channels) {
                for (c, y) in row.iter_mut().enumerate() {
                    *y = scale[c] * (*y - self.mean[c]) * self.inverse[c] + shift[c];
                }
            }
        });
        out
    }

    /// From the gradient on the affine output: that of scale and shift; `d` becomes that on the convolution's output.
    fn backward(&self, scale: &[f32], d: &mut [f32]) -> [Vec<f32>; 2] {
        let (channels, count) = (self.raw.channels, self.raw.pixels() as f64);
        let raw = &self.raw.data;
        let unit = |c: usize, y: f32| (y - self.mean[c]) * self.inverse[c];
        let d_shift = channel_sums(d, channels, |_, row, sums| {
            sums.iter_mut().zip(row).for_each(|(s, &d)| *s += f64::from(d));
        });
        let d_scale = channel_sums(d, channels, |at, row, sums| {
            let raw = &raw[at * channels..][..channels];
            for (c, s) in sums.iter_mut().enumerate() {
                *s += f64::from(row[c]) * f64::from(unit(c, raw[c]));
            }
        });
        let share = |sums: &[f64]| sums.iter().map(|s| (s / count) as f32).collect::<Vec<_>>();
        let (mean_d, mean_scaled) = (share(&d_shift), share(&d_scale));
        d.par_chunks_mut(GROUP * channels).zip(raw.par_chunks(GROUP * channels)).for_each(|(d, raw)| {
            for (d, raw) in d.chunks_exact_mut(channels).zip(raw.chunks_exact(channels)) {
                for c in 0..channels {
                    d[c] = scale[c] * self.inverse[c] * (d[c] - mean_d[c] - unit(c, raw[c]) * mean_scaled[c]);
                }
            }
        });
        let rounded = |sums: Vec<f64>| sums.into_iter().map(|s| s as f32).collect();
        [rounded(d_scale), rounded(d_shift)]
    }
}

fn relu(mut plane: Plane) -> Plane {
    plane.data.par_iter_mut().for_each(|x| *x = x.max(0.0));
    plane
}

/// No gradient where the rectified value is 0.
fn mask(d: &mut [f32], rectified: &[f32]) {
    d.par_iter_mut().zip(rectified).for_each(|(d, &x)| {
        if x <= 0.0 {
            *d = 0.0;
        }
    });
}

/// The gradient on a plane from that on its means of `size` by `size` cells.
fn spread(d: &[f32], plane: &Plane, size: usize) -> Vec<f32> {
    let (height, width, channels) = (plane.height / size, plane.width / size, plane.channels);
    let share = 1.0 / (size * size) as f32;
    let mut out = vec![0.0; plane.data.len()];
    for (pixel, d) in d.chunks_exact(channels).enumerate() {
        let (line, left) = (pixel / width, pixel % width * size);
        let top = line / height * plane.height + line % height * size;
        for cell in 0..size * size {
            let at = ((top + cell / size) * plane.width + left + cell % size) * channels;
            out[at..at + channels].iter_mut().zip(d).for_each(|(o, d)| *o = d * share);
        }
    }
    out
}

impl Conv {
    /// The gradient on the input `x` from that on the output.
    fn backward(&self, x: &Plane, d: &[f32]) -> Vec<f32> {
        let (outputs, channels) = (self.linear.outputs(), self.channels);
        let mut out = vec![0.0; x.data.len()];
        if self.kernel == 1 {
            self.linear.backward(d, d.len() / outputs, &mut out);
            return out;
        }
        let (height, width) = (x.height.div_ceil(self.stride), x.width.div_ceil(self.stride));
        let mut cells = Vec::new();
        for (strip, d) in d.chunks(STRIP * outputs).enumerate() {
            let rows = d.len() / outputs;
            cells.resize(rows * 9 * channels, 0.0);
            self.linear.backward(d, rows, &mut cells);
            for (pixel, cells) in (strip * STRIP..).zip(cells.chunks_exact(9 * channels)) {
                let (line, left) = (pixel / width, pixel % width * self.stride);
                let (image, top) = (line / height, line % height * self.stride);
                for (cell, d) in cells.chunks_exact(channels).enumerate() {
                    let (y, x_at) = ((top + cell / 3).wrapping_sub(1), (left + cell % 3).wrapping_sub(1));
                    if y < x.height && x_at < x.width {
                        let at = ((image * x.height + y) * x.width + x_at) * channels;
                        out[at..at + channels].iter_mut().zip(d).for_each(|(o, d)| *o += d);
                    }
                }
            }
        }
        out
    }
}

/// Everything inside a block that its gradient needs.
struct BlockRecord<'a> {
    block: &'a Bottleneck,
    x: &'a Plane,
    norms: &'a BatchNorms,
    /// The first of the block's norms.
    norm: usize,
    first: Normed,
    narrow: Plane,
    second: Normed,
    inner: Plane,
    third: Normed,
    shortcut: Option<(Plane, Normed)>,
    out: Plane,
}

impl<'a> BlockRecord<'a> {
    fn new(block: &'a Bottleneck, x: &'a Plane, norms: &'a BatchNorms, norm: usize) -> Self {
        let mut work = Work::new(true);
        let [a, b, c] = &block.convs;
        let first = Normed::new(a, x, &mut work);
        let narrow = relu(first.affine(norms.affine(norm)));
        let second = Normed::new(b, &narrow, &mut work);
        let inner = relu(second.affine(norms.affine(norm + 1)));
        let pooled = inner.clone().average(block.pool, &mut work);
        let third = Normed::new(c, &pooled, &mut work);
        let mut out = third.affine(norms.affine(norm + 2));
        let shortcut = block.shortcut.as_ref().map(|conv| {
            let pooled = x.clone().average(block.pool, &mut work);
            let normed = Normed::new(conv, &pooled, &mut work);
            (pooled, normed)
        });
        let beside = shortcut.as_ref().map(|(_, normed)| normed.affine(norms.affine(norm + 3)));
        let beside = beside.as_ref().map_or(&x.data, |plane| &plane.data);
        out.data.iter_mut().zip(beside).for_each(|(y, b)| *y += b);
        Self { block, x, norms, norm, first, narrow, second, inner, third, shortcut, out: relu(out) }
    }

    /// From the gradient on the output to that on the input `x`; those of the norms go to `into`.
    fn backward(&self, mut d: Vec<f32>, into: &mut BatchNorms) -> Vec<f32> {
        let &Self { block, x, norms, norm, .. } = self;
        mask(&mut d, &self.out.data);
        let mut beside = d.clone();
        into.set(norm + 2, self.third.backward(norms.affine(norm + 2)[0], &mut d));
        let pooled = Plane {
            height: self.inner.height / block.pool,
            width: self.inner.width / block.pool,
            data: vec![0.0; self.inner.data.len() / (block.pool * block.pool)],
            ..self.inner
        };
        let mut d = spread(&block.convs[2].backward(&pooled, &d), &self.inner, block.pool);
        mask(&mut d, &self.inner.data);
        into.set(norm + 1, self.second.backward(norms.affine(norm + 1)[0], &mut d));
        let mut d = block.convs[1].backward(&self.narrow, &d);
        mask(&mut d, &self.narrow.data);
        into.set(norm, self.first.backward(norms.affine(norm)[0], &mut d));
        let mut d = block.convs[0].backward(x, &d);
        if let (Some((pooled, normed)), Some(conv)) = (&self.shortcut, &block.shortcut) {
            into.set(norm + 3, normed.backward(norms.affine(norm + 3)[0], &mut beside));
            beside = spread(&conv.backward(pooled, &beside), x, block.pool);
        }
        d.iter_mut().zip(&beside).for_each(|(d, b)| *d += b);
        d
    }
}

/// Image features on batch statistics, and what is needed for the gradient of anything computed from them.
#[derive(Debug)]
pub(crate) struct BatchNormRun<'a> {
    net: &'a ModifiedResNet,
    norms: BatchNorms,
    pixels: Plane,
    /// What every block reads, and what the pool reads at the end.
    inputs: Vec<Plane>,
    qkv: Vec<f32>,
    features: Matrix,
    lengths: Vec<f32>,
}

impl<'a> BatchNormRun<'a> {
    pub(in crate::model) fn new(
        net: &'a ModifiedResNet,
        pixels: &[f32],
        count: usize,
        norms: &BatchNorms,
    ) -> Result<Self> {
        let own = net.batch_norms();
        if own.values.iter().map(Vec::len).ne(norms.values.iter().map(Vec::len)) {
            return Err(Error::config("batch norms", "expected the scales and shifts of this tower, found others"));
        }
        let (mut data, size) = (vec![0.0; pixels.len()], net.image_size);
        let images = pixels.chunks_exact(net.pixels()).zip(data.chunks_exact_mut(net.pixels()));
        images.for_each(|(pixels, out)| channels_last(pixels, out));
        let pixels = Plane { images: count, height: size, width: size, channels: 3, data };
        let mut inputs = vec![stem(net, &pixels, norms).2];
        let mut norm = net.stem.len();
        for block in net.stages.iter().flatten() {
            let next = BlockRecord::new(block, &inputs[inputs.len() - 1], norms, norm).out;
            norm += block.all().count();
            inputs.push(next);
        }
        let last = &inputs[inputs.len() - 1];
        let mut features = Matrix::zeros(count, net.projection.outputs());
        net.pool(last, features.data_mut());
        let qkv = net.pool_rows(last);
        let dim = features.cols();
        let lengths = normalise(features.data_mut(), dim);
        Ok(Self { net, norms: norms.clone(), pixels, inputs, qkv, features, lengths })
    }

    /// The gradient on what the attention pool reads.
    fn pool_backward(&self, d_raw: &[f32]) -> Vec<f32> {
        let (net, plane) = (self.net, &self.inputs[self.inputs.len() - 1]);
        let (images, cells, width) = (plane.images, plane.height * plane.width, plane.channels);
        let mut d_pooled = vec![0.0; images * width];
        net.projection.backward(d_raw, images, &mut d_pooled);
        let mut d_qkv = vec![0.0; self.qkv.len()];
        net.pool_attention(plane, |shape| attention::backward(shape, &self.qkv, &d_pooled, &mut d_qkv, None));
        let rows: Vec<&[f32]> = d_qkv.chunks_exact(3 * width).collect();
        let d_queries: Vec<f32> = rows.iter().step_by(cells + 1).flat_map(|row| row[..width].iter().copied()).collect();
        let d_keys_values: Vec<f32> = rows.iter().flat_map(|row| row[width..].iter().copied()).collect();
        let (mut d_means, mut d_tokens) = (vec![0.0; images * width], vec![0.0; images * (cells + 1) * width]);
        net.query.backward(&d_queries, images, &mut d_means);
        net.keys_values.backward(&d_keys_values, images * (cells + 1), &mut d_tokens);
        let mut d = Vec::with_capacity(plane.data.len());
        for (tokens, mean) in d_tokens.chunks_exact((cells + 1) * width).zip(d_means.chunks_exact(width)) {
            // The first token is the mean of the cells.
            let (first, rest) = tokens.split_at(width);
            for cell in rest.chunks_exact(width) {
                d.extend(cell.iter().zip(first.iter().zip(mean)).map(|(c, (f, m))| c + (f + m) / cells as f32));
            }
        }
        d
    }

    fn stem_backward(&self, d: &[f32], gradient: &mut BatchNorms) {
        let (normed, outputs, _) = stem(self.net, &self.pixels, &self.norms);
        let mut d = spread(d, &outputs[outputs.len() - 1], 2);
        for i in (0..self.net.stem.len()).rev() {
            mask(&mut d, &outputs[i].data);
            gradient.set(i, normed[i].backward(self.norms.affine(i)[0], &mut d));
            // The gradient on the pixels is not needed.
            if i > 0 {
                d = self.net.stem[i].backward(&outputs[i - 1], &d);
            }
        }
    }
}

impl BatchNormPass for BatchNormRun<'_> {
    fn features(&self) -> &Matrix {
        &self.features
    }

    fn gradient(&self, d_features: &Matrix) -> Result<BatchNorms> {
        if (d_features.rows(), d_features.cols()) != (self.features.rows(), self.features.cols()) {
            return Err(Error::config("batch norms", "expected one gradient row for each image"));
        }
        let mut gradient = self.norms.clone();
        let mut d_raw = vec![0.0; d_features.data().len()];
        normalise_backward(self.features.data(), &self.lengths, d_features.data(), &mut d_raw);
        let mut d = self.pool_backward(&d_raw);
        let blocks: Vec<&Bottleneck> = self.net.stages.iter().flatten().collect();
        let mut norm = self.norms.values.len() / 2;
        for (block, x) in blocks.iter().zip(&self.inputs).rev() {
            norm -= block.all().count();
            d = BlockRecord::new(block, x, &self.norms, norm).backward(d, &mut gradient);
        }
        self.stem_backward(&d, &mut gradient);
        Ok(gradient)
    }
}

/// The stem: its normed convolutions, their rectified outputs, and what the first block reads.
fn stem(net: &ModifiedResNet, pixels: &Plane, norms: &BatchNorms) -> (Vec<Normed>, Vec<Plane>, Plane) {
    let mut work = Work::new(true);
    let (mut normed, mut outputs): (Vec<Normed>, Vec<Plane>) = (Vec::new(), Vec::new());
    for (i, conv) in net.stem.iter().enumerate() {
        let next = Normed::new(conv, outputs.last().unwrap_or(pixels), &mut work);
        outputs.push(relu(next.affine(norms.affine(i))));
        normed.push(next);
    }
    let last = outputs[outputs.len() - 1].averaged(2, &mut work);
    (normed, outputs, last)
}
