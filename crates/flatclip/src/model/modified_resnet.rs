//! CLIP's modified ResNet: a three-convolution stem, anti-aliased bottlenecks, an attention pool.
//!
//! Channels last. BatchNorm runs on its stored statistics, so it is folded into the convolution before it; a convolution
//! is then a matrix product over pixels, gathered strip by strip.

use super::load::Reader;
use crate::Result;
use flatclip_tensor::ops::activate;
use flatclip_tensor::ops::attention::{self, Queries, Shape};
use flatclip_tensor::{Activation, Linear, Matrix};
use rayon::prelude::*;

/// Output pixels that are gathered together for a 3x3 convolution.
const STRIP: usize = 512;
const BATCH_NORM_EPSILON: f32 = 1e-5;

/// A picture with channels last.
struct Plane {
    height: usize,
    width: usize,
    channels: usize,
    data: Vec<f32>,
}

/// A convolution without bias and the BatchNorm behind it.
#[derive(Debug)]
struct Conv {
    kernel: usize,
    stride: usize,
    channels: usize,
    linear: Linear,
}

#[derive(Debug)]
struct Bottleneck {
    convs: [Conv; 3],
    pool: usize,
    shortcut: Option<Conv>,
}

/// A frozen modified ResNet.
#[derive(Debug)]
pub(crate) struct ModifiedResNet {
    image_size: usize,
    stem: [Conv; 3],
    stages: Vec<Vec<Bottleneck>>,
    heads: usize,
    positions: Vec<f32>,
    qkv: Linear,
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
        let mut inputs = width;
        let mut stages = Vec::with_capacity(4);
        for (stage, &count) in blocks.iter().enumerate() {
            let planes = width << stage;
            let mut bottlenecks = Vec::with_capacity(count);
            for block in 0..count {
                let name = format!("visual.layer{}.{block}", stage + 1);
                let pool = if stage > 0 && block == 0 { 2 } else { 1 };
                bottlenecks.push(Bottleneck::load(reader, &name, inputs, planes, pool)?);
                inputs = 4 * planes;
            }
            stages.push(bottlenecks);
        }
        let cells = (image_size / 32).pow(2);
        Ok(Self {
            image_size,
            stem,
            stages,
            heads,
            positions: reader.tensor("visual.attnpool.positional_embedding", &[cells + 1, inputs])?,
            qkv: fused_qkv(reader, inputs)?,
            projection: reader.linear("visual.attnpool.c_proj", embed_dim, inputs)?,
        })
    }

    /// Values of one image.
    pub(super) fn pixels(&self) -> usize {
        3 * self.image_size * self.image_size
    }

    /// Raw features `[count, D]`, one image per task.
    pub(super) fn encode(&self, pixels: &[f32], count: usize) -> Matrix {
        let mut raw = Matrix::zeros(count, self.projection.outputs());
        let dim = raw.cols();
        raw.data_mut().par_chunks_mut(dim).zip(pixels.par_chunks(self.pixels())).for_each(|(raw, pixels)| {
            let plane = self.stages.iter().flatten().fold(self.stem(pixels), |plane, block| block.forward(plane));
            self.pool(&plane, raw);
        });
        raw
    }

    /// Every stage for debugging: `stem`, `layer1`.. `layer4`, each `[images * height * width, channels]`.
    pub(super) fn trace(&self, pixels: &[f32]) -> Vec<(String, Matrix)> {
        let mut planes: Vec<Plane> = pixels.chunks_exact(self.pixels()).map(|pixels| self.stem(pixels)).collect();
        let stacked = |name: String, planes: &[Plane]| {
            let channels = planes.first().map_or(1, |p| p.channels);
            let data: Vec<f32> = planes.iter().flat_map(|p| p.data.iter().copied()).collect();
            (name, Matrix::from_vec(data.len() / channels, channels, data))
        };
        let mut trace = vec![stacked("stem".to_owned(), &planes)];
        for (i, stage) in self.stages.iter().enumerate() {
            planes =
                planes.into_iter().map(|plane| stage.iter().fold(plane, |plane, block| block.forward(plane))).collect();
            trace.push(stacked(format!("layer{}", i + 1), &planes));
        }
        trace
    }

    fn stem(&self, pixels: &[f32]) -> Plane {
        let size = self.image_size;
        let mut data = vec![0.0; pixels.len()];
        for (channel, plane) in pixels.chunks_exact(size * size).enumerate() {
            plane.iter().enumerate().for_each(|(i, &x)| data[3 * i + channel] = x);
        }
        let plane = Plane { height: size, width: size, channels: 3, data };
        self.stem.iter().fold(plane, |plane, conv| conv.forward(&plane, Activation::Relu)).average(2)
    }

    /// Attention over all cells, asked by their mean.
    fn pool(&self, plane: &Plane, raw: &mut [f32]) {
        let (cells, width) = (plane.height * plane.width, plane.channels);
        let mut x = vec![0.0; (cells + 1) * width];
        x[width..].copy_from_slice(&plane.data);
        let (mean, rest) = x.split_at_mut(width);
        for cell in rest.chunks_exact(width) {
            mean.iter_mut().zip(cell).for_each(|(m, x)| *m += x / cells as f32);
        }
        x.iter_mut().zip(&self.positions).for_each(|(x, p)| *x += p);
        let mut qkv = vec![0.0; (cells + 1) * 3 * width];
        self.qkv.forward(&x, cells + 1, Activation::Identity, &mut qkv);
        let starts = [0, cells + 1];
        let shape =
            Shape { width, heads: self.heads, starts: &starts, causal: false, queries: Queries::First, prefix: None };
        let mut pooled = vec![0.0; width];
        attention::forward(&shape, &qkv, &mut pooled);
        self.projection.forward(&pooled, 1, Activation::Identity, raw);
    }
}

/// The pool's three projections in one.
fn fused_qkv(reader: &Reader<'_>, width: usize) -> Result<Linear> {
    let (mut weight, mut bias) = (Vec::with_capacity(3 * width * width), Vec::with_capacity(3 * width));
    for part in ["q_proj", "k_proj", "v_proj"] {
        weight.extend(reader.tensor(&format!("visual.attnpool.{part}.weight"), &[width, width])?);
        bias.extend(reader.tensor(&format!("visual.attnpool.{part}.bias"), &[width])?);
    }
    Ok(Linear::new(3 * width, width, &weight, Some(&bias)))
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

    fn forward(&self, x: Plane) -> Plane {
        let [first, second, third] = &self.convs;
        let inner = second.forward(&first.forward(&x, Activation::Relu), Activation::Relu).average(self.pool);
        let mut y = match &self.shortcut {
            Some(conv) => conv.forward(&x.average(self.pool), Activation::Identity),
            None => x,
        };
        third.linear.forward_add(&inner.data, inner.height * inner.width, &mut y.data);
        activate(Activation::Relu, &mut y.data);
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
        for o in 0..outputs {
            let scale = gain[o] / (var[o] + BATCH_NORM_EPSILON).sqrt();
            bias[o] = shift[o] - mean[o] * scale;
            for i in 0..inputs {
                for cell in 0..cells {
                    // Gathered pixels come cell by cell, channels innermost.
                    weight[(o * cells + cell) * inputs + i] = stored[(o * inputs + i) * cells + cell] * scale;
                }
            }
        }
        let linear = Linear::new(outputs, cells * inputs, &weight, Some(&bias));
        Ok(Self { kernel, stride, channels: inputs, linear })
    }

    fn forward(&self, x: &Plane, activation: Activation) -> Plane {
        let (height, width) = (x.height.div_ceil(self.stride), x.width.div_ceil(self.stride));
        let (pixels, channels) = (height * width, self.linear.outputs());
        let mut data = vec![0.0; pixels * channels];
        if self.kernel == 1 {
            self.linear.forward(&x.data, pixels, activation, &mut data);
        } else {
            data.par_chunks_mut(STRIP * channels).enumerate().for_each_init(Vec::new, |cells, (strip, out)| {
                let rows = out.len() / channels;
                self.gather(x, width, strip * STRIP, rows, cells);
                self.linear.forward(cells, rows, activation, out);
            });
        }
        Plane { height, width, channels, data }
    }

    /// The 3x3 neighbourhoods of output pixels `first..first + count`, zero outside the picture.
    fn gather(&self, x: &Plane, width: usize, first: usize, count: usize, cells: &mut Vec<f32>) {
        let channels = self.channels;
        cells.clear();
        cells.resize(count * 9 * channels, 0.0);
        for (pixel, out) in (first..first + count).zip(cells.chunks_exact_mut(9 * channels)) {
            let (top, left) = (pixel / width * self.stride, pixel % width * self.stride);
            for (cell, out) in out.chunks_exact_mut(channels).enumerate() {
                let (y, x_at) = ((top + cell / 3).wrapping_sub(1), (left + cell % 3).wrapping_sub(1));
                if y < x.height && x_at < x.width {
                    out.copy_from_slice(&x.data[(y * x.width + x_at) * channels..][..channels]);
                }
            }
        }
    }
}

impl Plane {
    /// Means of `size` by `size` cells.
    fn average(&self, size: usize) -> Self {
        let (height, width, channels) = (self.height / size, self.width / size, self.channels);
        let mut data = vec![0.0; height * width * channels];
        let share = 1.0 / (size * size) as f32;
        for (pixel, out) in data.chunks_exact_mut(channels).enumerate() {
            let (top, left) = (pixel / width * size, pixel % width * size);
            for cell in 0..size * size {
                let at = ((top + cell / size) * self.width + left + cell % size) * channels;
                out.iter_mut().zip(&self.data[at..at + channels]).for_each(|(o, x)| *o += x);
            }
            out.iter_mut().for_each(|o| *o *= share);
        }
        Self { height, width, channels, data }
    }
}
