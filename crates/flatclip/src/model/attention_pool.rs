//! Pooling by attention (MAP head): a learned query attends to all tokens, and an MLP follows.
//!
//! The query is frozen, so the keys and values of tokens need not be computed. With `u_h = K_hᵀ q_h / sqrt(size)`, folded once,
//! the scores of head `h` are `x u_h` (the bias of the keys adds the same to all, which softmax ignores), and its result is
//! `V_h (Σ p_j x_j) + b_h`: the values of one mean token per head. Exact up to rounding, at a hundredth of the cost.

use super::block::Norm;
use super::load::Reader;
use crate::Result;
use flatclip_tensor::gemm::product_nn;
use flatclip_tensor::ops::wide::softmax;
use flatclip_tensor::{Activation, Linear};

#[derive(Debug)]
pub(super) struct AttentionPool {
    heads: usize,
    /// `u_h`: from tokens to scores.
    scores: Linear,
    values: Linear,
    out: Linear,
    norm: Norm,
    fc: Linear,
    proj: Linear,
    activation: Activation,
}

impl AttentionPool {
    pub(super) fn load(
        reader: &Reader<'_>,
        width: usize,
        (heads, mlp): (usize, usize),
        epsilon: f32,
        activation: Activation,
    ) -> Result<Self> {
        let of = |part: &str| format!("visual.attn_pool.{part}");
        let latent = reader.tensor(&of("latent"), &[width])?;
        let weight = reader.tensor(&of("in_proj_weight"), &[3 * width, width])?;
        let bias = reader.tensor(&of("in_proj_bias"), &[3 * width])?;
        let [queries, keys, values] = [0, 1, 2].map(|part| &weight[part * width * width..(part + 1) * width * width]);
        let folded = folded_query(&latent, queries, &bias[..width], keys, heads);
        let mut norm = reader.norm(&of("ln_2"), width, epsilon)?;
        let fc = [of("mlp.c_fc.weight"), of("mlp.c_fc.bias")];
        Ok(Self {
            heads,
            scores: Linear::new(heads, width, &folded, None),
            values: Linear::with_precision(width, width, values, Some(&bias[2 * width..]), reader.precision),
            out: reader.linear(&of("out_proj"), width, width)?,
            fc: reader.linear_behind(&mut norm, &fc, mlp, width)?,
            proj: reader.linear(&of("mlp.c_proj"), width, mlp)?,
            norm,
            activation,
        })
    }

    /// One row for each of `count` images, from their tokens.
    pub(super) fn forward(&self, tokens: &[f32], count: usize) -> Vec<f32> {
        let (width, heads) = (self.values.inputs(), self.heads);
        let rows = tokens.len() / width.max(1);
        let mut scores = vec![0.0; rows * heads];
        self.scores.forward(tokens, rows, Activation::Identity, &mut scores);
        let length = rows / count.max(1);
        let mut means = vec![0.0; count * heads * width];
        for (image, mean) in means.chunks_exact_mut((heads * width).max(1)).enumerate() {
            let own = &scores[image * length * heads..(image + 1) * length * heads];
            let mut weights: Vec<f32> = (0..heads).flat_map(|h| own[h..].iter().step_by(heads).copied()).collect();
            softmax(&mut weights, length);
            product_nn(&weights, heads, &tokens[image * length * width..][..length * width], width, length, mean);
        }
        let mut values = vec![0.0; means.len()];
        self.values.forward(&means, count * heads, Activation::Identity, &mut values);
        // Of the values of head `h`'s mean token, those of head `h`.
        let size = width / heads;
        let own = values.chunks_exact(width.max(1)).enumerate();
        let attended: Vec<f32> = own.flat_map(|(row, x)| x[row % heads * size..][..size].iter().copied()).collect();
        let mut x = vec![0.0; count * width];
        self.out.forward(&attended, count, Activation::Identity, &mut x);
        let mut normal = vec![0.0; x.len()];
        self.norm.apply(&x, &mut normal);
        let mut hidden = vec![0.0; count * self.fc.outputs()];
        self.fc.forward(&normal, count, self.activation, &mut hidden);
        self.proj.forward_add(&hidden, count, &mut x);
        x
    }
}

/// `[heads, width]`: the query of the latent, through the keys of each head, scaled.
fn folded_query(latent: &[f32], queries: &[f32], bias: &[f32], keys: &[f32], heads: usize) -> Vec<f32> {
    let (width, size) = (latent.len(), latent.len() / heads);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let scale = (size as f64).sqrt().recip();
    let mut folded = vec![0.0f64; heads * width];
    for (channel, key) in keys.chunks_exact(width).enumerate() {
        let query = (dot(&queries[channel * width..][..width], latent) + f64::from(bias[channel])) * scale;
        let row = &mut folded[channel / size * width..][..width];
        row.iter_mut().zip(key).for_each(|(sum, &key)| *sum += query * f64::from(key));
    }
    folded.into_iter().map(|x| x as f32).collect()
}
