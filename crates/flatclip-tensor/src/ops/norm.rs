//! LayerNorm over rows, its input gradient and the gradient of its affine parameters.

use super::real::{Real, sum};
use crate::isa::per_isa;
use crate::simd::{Available, Lanes};
use crate::threads::for_each_part;

/// Rows per parallel task: a few tens of microseconds of work.
const BLOCK: usize = 32;

/// `out = (x - mean) / sqrt(var + eps) * weight + bias` for each row of `weight.len()` values.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32, out: &mut [f32]) {
    let width = weight.len();
    assert!(x.len() == out.len() && bias.len() == width && x.len().is_multiple_of(width.max(1)));
    for_each_part(out, BLOCK * width.max(1), |at, out| norm_part(&x[at..at + out.len()], weight, bias, epsilon, out));
}

/// Adds the input gradient: `dx += J(x)ᵀ dy`. Accumulates because residual branches add up their gradients.
pub fn layer_norm_backward(x: &[f32], weight: &[f32], epsilon: f32, dy: &[f32], dx: &mut [f32]) {
    let width = weight.len();
    assert!(x.len() == dy.len() && x.len() == dx.len() && x.len().is_multiple_of(width.max(1)));
    for_each_part(dx, BLOCK * width.max(1), |at, dx| {
        let end = at + dx.len();
        gradient_part(&x[at..end], weight, epsilon, &dy[at..end], dx);
    });
}

per_isa! { fn norm_part(x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32, out: &mut [f32]) = norm_lanes; }
per_isa! { fn gradient_part(x: &[f32], weight: &[f32], epsilon: f32, dy: &[f32], dx: &mut [f32]) = gradient_lanes; }

#[inline(always)]
fn norm_lanes<L: Lanes>(lanes: Available<L>, x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32, out: &mut [f32]) {
    let width = weight.len();
    let (bias, whole) = (&bias[..width], width - width % L::WIDTH);
    for (x, out) in x.chunks_exact(width.max(1)).zip(out.chunks_exact_mut(width.max(1))) {
        let (mean, scale) = moments_lanes(lanes, x, epsilon);
        let (mean_lanes, scale_lanes) = (lanes.splat(mean), lanes.splat(scale));
        for i in (0..whole).step_by(L::WIDTH) {
            // SAFETY: a whole vector from `i` on in each row.
            unsafe {
                let normal = lanes.load(x.as_ptr().add(i)).sub(mean_lanes).mul(scale_lanes);
                let y = normal.mul_add(lanes.load(weight.as_ptr().add(i)), lanes.load(bias.as_ptr().add(i)));
                y.store(out.as_mut_ptr().add(i));
            }
        }
        for i in whole..width {
            out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
        }
    }
}

#[inline(always)]
fn gradient_lanes<L: Lanes>(lanes: Available<L>, x: &[f32], weight: &[f32], epsilon: f32, dy: &[f32], dx: &mut [f32]) {
    let width = weight.len();
    let whole = width - width % L::WIDTH;
    let rows = x.chunks_exact(width.max(1)).zip(dy.chunks_exact(width.max(1)));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(width.max(1))) {
        let (mean, scale) = moments_lanes(lanes, x, epsilon);
        let (mean_lanes, scale_lanes) = (lanes.splat(mean), lanes.splat(scale));
        let (mut sum, mut product) = (lanes.splat(0.0), lanes.splat(0.0));
        for i in (0..whole).step_by(L::WIDTH) {
            // SAFETY: a whole vector from `i` on in each row.
            unsafe {
                let normal = lanes.load(x.as_ptr().add(i)).sub(mean_lanes).mul(scale_lanes);
                let grad = lanes.load(dy.as_ptr().add(i)).mul(lanes.load(weight.as_ptr().add(i)));
                sum = sum.add(grad);
                product = grad.mul_add(normal, product);
            }
        }
        let (mut sum, mut product) = (sum.total(), product.total());
        for i in whole..width {
            sum += dy[i] * weight[i];
            product += dy[i] * weight[i] * ((x[i] - mean) * scale);
        }
        let (mean_grad, mean_product) = (sum / width as f32, product / width as f32);
        let (mean_grad_lanes, mean_product_lanes) = (lanes.splat(mean_grad), lanes.splat(mean_product));
        for i in (0..whole).step_by(L::WIDTH) {
            // SAFETY: a whole vector from `i` on in each row.
            unsafe {
                let normal = lanes.load(x.as_ptr().add(i)).sub(mean_lanes).mul(scale_lanes);
                let grad = lanes.load(dy.as_ptr().add(i)).mul(lanes.load(weight.as_ptr().add(i)));
                let d = grad.sub(mean_grad_lanes).sub(normal.mul(mean_product_lanes));
                d.mul_add(scale_lanes, lanes.load(dx.as_ptr().add(i))).store(dx.as_mut_ptr().add(i));
            }
        }
        for i in whole..width {
            let normal = (x[i] - mean) * scale;
            dx[i] += scale * (dy[i] * weight[i] - mean_grad - normal * mean_product);
        }
    }
}

/// Mean and `1 / sqrt(var + eps)`; two passes, since a residual stream may have a large mean.
#[inline(always)]
fn moments_lanes<L: Lanes>(lanes: Available<L>, x: &[f32], epsilon: f32) -> (f32, f32) {
    let (n, whole) = (x.len() as f32, x.len() - x.len() % L::WIDTH);
    let mut sum = lanes.splat(0.0);
    for i in (0..whole).step_by(L::WIDTH) {
        // SAFETY: a whole vector from `i` on.
        sum = sum.add(unsafe { lanes.load(x.as_ptr().add(i)) });
    }
    let mean = (sum.total() + x[whole..].iter().sum::<f32>()) / n;
    let mut squares = lanes.splat(0.0);
    for i in (0..whole).step_by(L::WIDTH) {
        // SAFETY: a whole vector from `i` on.
        let d = unsafe { lanes.load(x.as_ptr().add(i)) }.sub(lanes.splat(mean));
        squares = d.mul_add(d, squares);
    }
    let rest: f32 = x[whole..].iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, 1.0 / ((squares.total() + rest) / n + epsilon).sqrt())
}

/// Adds the gradient of the affine parameters, rows in order: `d_weight += Σ dy x̂`, `d_bias += Σ dy`.
pub fn layer_norm_affine_gradient<T: Real>(x: &[T], epsilon: f32, dy: &[T], d_weight: &mut [T], d_bias: &mut [T]) {
    let width = d_weight.len();
    assert!(x.len() == dy.len() && d_bias.len() == width);
    for (x, dy) in x.chunks_exact(width.max(1)).zip(dy.chunks_exact(width.max(1))) {
        let (mean, scale) = moments(x, epsilon);
        for i in 0..width {
            d_weight[i] += dy[i] * ((x[i] - mean) * scale);
            d_bias[i] += dy[i];
        }
    }
}

/// Mean and `1 / sqrt(var + eps)`; two passes, since a residual stream may have a large mean.
fn moments<T: Real>(x: &[T], epsilon: f32) -> (T, T) {
    let n = T::of(x.len() as f64);
    let mean = sum(x) / n;
    let mut sums = [T::ZERO; 8];
    for x in x.chunks(8) {
        for (s, &x) in sums.iter_mut().zip(x) {
            *s += (x - mean) * (x - mean);
        }
    }
    (mean, T::ONE / (sum(&sums) / n + T::of(f64::from(epsilon))).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    const EPSILON: f32 = 1e-5;

    /// The definition.
    fn plain<T: Real>(x: &[T], weight: &[T], bias: &[T]) -> Vec<T> {
        let width = weight.len();
        let row = |x: &[T]| {
            let (mean, scale) = moments(x, EPSILON);
            (0..width).map(|i| (x[i] - mean) * scale * weight[i] + bias[i]).collect::<Vec<T>>()
        };
        x.chunks_exact(width).flat_map(row).collect()
    }

    /// Its input gradient.
    fn plain_backward<T: Real>(x: &[T], weight: &[T], dy: &[T]) -> Vec<T> {
        let width = weight.len();
        let row = |(x, dy): (&[T], &[T])| {
            let (mean, scale) = moments(x, EPSILON);
            let normal: Vec<T> = x.iter().map(|&x| (x - mean) * scale).collect();
            let grad: Vec<T> = dy.iter().zip(weight).map(|(&d, &w)| d * w).collect();
            let n = T::of(width as f64);
            let (mean_grad, mean_product) = (sum(&grad) / n, crate::ops::real::dot(&grad, &normal) / n);
            (0..width).map(|i| scale * (grad[i] - mean_grad - normal[i] * mean_product)).collect::<Vec<T>>()
        };
        x.chunks_exact(width).zip(dy.chunks_exact(width)).flat_map(row).collect()
    }

    #[test]
    fn vectors_agree_with_the_plain_form() {
        for (rows, width) in [(1, 1), (3, 5), (40, 8), (70, 33), (2, 768)] {
            let [x, dy] = [1, 4].map(|seed| values(seed, rows * width));
            let [w, b] = [2, 3].map(|seed| values(seed, width));
            let floats = |v: &[f64]| v.iter().map(|&x| x as f32).collect::<Vec<_>>();
            let (mut y, mut dx) = (vec![0.0; x.len()], vec![1.0; x.len()]);
            layer_norm(&floats(&x), &floats(&w), &floats(&b), EPSILON, &mut y);
            layer_norm_backward(&floats(&x), &floats(&w), EPSILON, &floats(&dy), &mut dx);
            // One value per row has no variance: both forms divide by sqrt(eps), which magnifies rounding.
            let allowed = if width == 1 { 1e-3 } else { 1e-5 };
            let (want, want_dx) = (plain(&x, &w, &b), plain_backward(&x, &w, &dy));
            y.iter().zip(&want).for_each(|(y, w)| assert!((f64::from(*y) - w).abs() < allowed, "{y} {w}"));
            dx.iter().zip(&want_dx).for_each(|(d, w)| {
                assert!((f64::from(*d) - 1.0 - w).abs() < allowed * w.abs().max(1.0), "{d} {w}");
            });
        }
    }

    #[test]
    fn input_gradient_is_the_derivative() {
        for width in [1, 5, 16, 33] {
            let (x, w, b) = (values(1, 3 * width), values(2, width), values(3, width));
            let dy = values(4, 3 * width);
            assert_gradient(&x, &plain_backward(&x, &w, &dy), 1e-4, |x| {
                plain(x, &w, &b).iter().zip(&dy).map(|(y, d)| y * d).sum()
            });
        }
    }

    #[test]
    fn affine_gradient_is_the_derivative() {
        let (x, w, b, dy) = (values(1, 35), values(2, 7), values(3, 7), values(4, 35));
        let (mut dw, mut db) = (vec![0.0; 7], vec![0.0; 7]);
        layer_norm_affine_gradient(&x, EPSILON, &dy, &mut dw, &mut db);
        let loss = |w: &[f64], b: &[f64]| plain(&x, w, b).iter().zip(&dy).map(|(y, d)| y * d).sum::<f64>();
        assert_gradient(&w, &dw, 1e-6, |w| loss(w, &b));
        assert_gradient(&b, &db, 1e-6, |b| loss(&w, b));
    }

    #[test]
    fn epsilon_is_added_to_the_variance() {
        // Mean 0, variance 1e-6: an epsilon of the same size halves the square of the result.
        let x = [1e-3f32, -1e-3];
        let mut y = [0.0; 2];
        layer_norm(&x, &[1.0; 2], &[0.0; 2], 1e-6, &mut y);
        assert!((y[0] - 0.5f32.sqrt()).abs() < 1e-4 && y[1] == -y[0], "{y:?}");
    }
}
