//! The oracle: loops that say what a product is.

use super::Activation;
use rayon::prelude::*;

pub(super) fn product_nt(a: &[f32], m: usize, b: &[f32], n: usize, k: usize, out: &mut [f32]) {
    assert!(a.len() >= m * k && b.len() >= n * k && out.len() >= m * n);
    out[..m * n].par_chunks_mut(n.max(1)).zip(a.par_chunks(k.max(1))).for_each(|(out, a)| {
        for (out, b) in out.iter_mut().zip(b.chunks_exact(k.max(1))) {
            *out = dot(a, b);
        }
    });
}

pub(super) fn product_nn(a: &[f32], m: usize, b: &[f32], n: usize, k: usize, out: &mut [f32]) {
    assert!(a.len() >= m * k && b.len() >= k * n && out.len() >= m * n);
    out[..m * n].par_chunks_mut(n.max(1)).zip(a.par_chunks(k.max(1))).for_each(|(out, a)| {
        out.fill(0.0);
        for (a, b) in a.iter().zip(b.chunks_exact(n.max(1))) {
            out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
        }
    });
}

/// Eight partial sums, so that the compiler may use vectors and rounding stays small.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}

pub(super) fn finish(out: &mut [f32], width: usize, bias: Option<&[f32]>, activation: Activation) {
    for row in out.chunks_exact_mut(width.max(1)) {
        if let Some(bias) = bias {
            row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        }
        match activation {
            Activation::Identity => {}
            Activation::Relu => row.iter_mut().for_each(|y| *y = y.max(0.0)),
            Activation::QuickGelu => row.iter_mut().for_each(|y| *y /= 1.0 + (-1.702 * *y).exp()),
            Activation::Gelu => row.iter_mut().for_each(|y| *y = gelu(*y)),
        }
    }
}

fn gelu(x: f32) -> f32 {
    // SAFETY: `erff` is a pure function of its argument.
    0.5 * x * (1.0 + unsafe { erff(x * std::f32::consts::FRAC_1_SQRT_2) })
}

unsafe extern "C" {
    fn erff(x: f32) -> f32;
}
