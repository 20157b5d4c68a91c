//! LayerNorm over rows, its input gradient and the gradient of its affine parameters.

use super::real::{Real, sum};
use rayon::prelude::*;

/// The epsilon of every CLIP checkpoint.
pub const LAYER_NORM_EPSILON: f64 = 1e-5;

/// Rows per parallel task: a few tens of microseconds of work.
const BLOCK: usize = 32;

/// `out = (x - mean) / sqrt(var + eps) * weight + bias` for each row of `weight.len()` values.
pub fn layer_norm<T: Real>(x: &[T], weight: &[T], bias: &[T], out: &mut [T]) {
    let width = weight.len();
    assert!(x.len() == out.len() && bias.len() == width && x.len().is_multiple_of(width.max(1)));
    let chunk = BLOCK * width.max(1);
    out.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(out, x)| {
        for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let (mean, scale) = moments(x);
            for i in 0..width {
                out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
            }
        }
    });
}

/// Adds the input gradient: `dx += J(x)ᵀ dy`. Accumulating is what a residual branch needs.
pub fn layer_norm_backward<T: Real>(x: &[T], weight: &[T], dy: &[T], dx: &mut [T]) {
    let width = weight.len();
    assert!(x.len() == dy.len() && x.len() == dx.len() && x.len().is_multiple_of(width.max(1)));
    let chunk = BLOCK * width.max(1);
    dx.par_chunks_mut(chunk).zip(x.par_chunks(chunk).zip(dy.par_chunks(chunk))).for_each(|(dx, (x, dy))| {
        let mut normal = vec![T::ZERO; width];
        let mut grad = vec![T::ZERO; width];
        for ((dx, x), dy) in dx.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(dy.chunks_exact(width)) {
            let (mean, scale) = moments(x);
            for i in 0..width {
                normal[i] = (x[i] - mean) * scale;
                grad[i] = dy[i] * weight[i];
            }
            let n = T::of(width as f64);
            let mean_grad = sum(&grad) / n;
            let mean_product = super::real::dot(&grad, &normal) / n;
            for i in 0..width {
                dx[i] += scale * (grad[i] - mean_grad - normal[i] * mean_product);
            }
        }
    });
}

/// Adds the gradient of the affine parameters, rows in order: `d_weight += Σ dy x̂`, `d_bias += Σ dy`.
pub fn layer_norm_affine_gradient<T: Real>(x: &[T], dy: &[T], d_weight: &mut [T], d_bias: &mut [T]) {
    let width = d_weight.len();
    assert!(x.len() == dy.len() && d_bias.len() == width);
    for (x, dy) in x.chunks_exact(width.max(1)).zip(dy.chunks_exact(width.max(1))) {
        let (mean, scale) = moments(x);
        for i in 0..width {
            d_weight[i] += dy[i] * ((x[i] - mean) * scale);
            d_bias[i] += dy[i];
        }
    }
}

/// Mean and `1 / sqrt(var + eps)`; two passes, since a residual stream may have a large mean.
fn moments<T: Real>(x: &[T]) -> (T, T) {
    let n = T::of(x.len() as f64);
    let mean = sum(x) / n;
    let mut sums = [T::ZERO; 8];
    for x in x.chunks(8) {
        for (s, &x) in sums.iter_mut().zip(x) {
            *s += (x - mean) * (x - mean);
        }
    }
    (mean, T::ONE / (sum(&sums) / n + T::of(LAYER_NORM_EPSILON)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    #[test]
    fn input_gradient_is_the_derivative() {
        for width in [1, 5, 16, 33] {
            let (x, w, b) = (values(1, 3 * width), values(2, width), values(3, width));
            let dy = values(4, 3 * width);
            let mut dx = vec![0.0; x.len()];
            layer_norm_backward(&x, &w, &dy, &mut dx);
            assert_gradient(&x, &dx, 1e-4, |x| {
                let mut y = vec![0.0; x.len()];
                layer_norm(x, &w, &b, &mut y);
                y.iter().zip(&dy).map(|(y, d)| y * d).sum()
            });
        }
    }

    #[test]
    fn affine_gradient_is_the_derivative() {
        let (x, w, b, dy) = (values(1, 35), values(2, 7), values(3, 7), values(4, 35));
        let (mut dw, mut db) = (vec![0.0; 7], vec![0.0; 7]);
        layer_norm_affine_gradient(&x, &dy, &mut dw, &mut db);
        let loss = |w: &[f64], b: &[f64]| {
            let mut y = vec![0.0; x.len()];
            layer_norm(&x, w, b, &mut y);
            y.iter().zip(&dy).map(|(y, d)| y * d).sum::<f64>()
        };
        assert_gradient(&w, &dw, 1e-6, |w| loss(w, &b));
        assert_gradient(&b, &db, 1e-6, |b| loss(&w, b));
    }

    #[test]
    fn backward_accumulates() {
        let (x, w, dy) = (values(1, 8), values(2, 8), values(4, 8));
        let (mut once, mut twice) = (vec![0.0; 8], vec![1.0; 8]);
        layer_norm_backward(&x, &w, &dy, &mut once);
        layer_norm_backward(&x, &w, &dy, &mut twice);
        once.iter().zip(&twice).for_each(|(a, b)| assert!((a + 1.0 - b).abs() < 1e-12));
    }
}
