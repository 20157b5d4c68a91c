//! Softmax and the losses on logits: cross-entropy, entropy, marginal entropy, each with its gradient.

use super::real::Real;

/// `x = softmax(x)` for each row of `width` values.
pub fn softmax<T: Real>(x: &mut [T], width: usize) {
    for row in x.chunks_exact_mut(width.max(1)) {
        let top = maximum(row);
        let mut total = T::ZERO;
        for x in row.iter_mut() {
            *x = (*x - top).exp();
            total += *x;
        }
        row.iter_mut().for_each(|x| *x = *x / total);
    }
}

/// `x = log softmax(x)` for each row of `width` values.
pub fn log_softmax<T: Real>(x: &mut [T], width: usize) {
    for row in x.chunks_exact_mut(width.max(1)) {
        let (top, log) = top_and_log_total(row);
        row.iter_mut().for_each(|x| *x = (*x - top) - log);
    }
}

/// The maximum and `log Σ exp(x - maximum)`. Returned separately, since their sum loses precision for large logits.
fn top_and_log_total<T: Real>(row: &[T]) -> (T, T) {
    let top = maximum(row);
    let mut total = T::ZERO;
    row.iter().for_each(|&x| total += (x - top).exp());
    (top, total.ln())
}

/// The backward pass of softmax for one row: `d = p ∘ (g - p·g)`, with `g` the gradient with respect to `p = softmax(x)`.
fn softmax_backward<T: Real>(p: &[T], g: &[T], d: &mut [T]) {
    let along = super::real::dot(p, g);
    for i in 0..p.len() {
        d[i] = p[i] * (g[i] - along);
    }
}

/// Entropy of `softmax(row)` in nats.
pub fn entropy<T: Real>(row: &[T]) -> T {
    let (top, log) = top_and_log_total(row);
    let mut h = T::ZERO;
    for &x in row {
        let l = (x - top) - log;
        h += -(l.exp() * l);
    }
    h
}

/// Entropy of `softmax(row)` and its gradient, `dH/dx_k = -p_k (log p_k + H)`.
pub fn entropy_gradient<T: Real>(row: &[T], d: &mut [T]) -> T {
    let ((top, log), h) = (top_and_log_total(row), entropy(row));
    for (d, &x) in d.iter_mut().zip(row) {
        let l = (x - top) - log;
        *d = -(l.exp() * (l + h));
    }
    h
}

/// `-log softmax(row)[label]` and its gradient, `p - onehot(label)`.
///
/// # Panics
/// If `label` is not below `row.len()`.
pub fn cross_entropy_gradient<T: Real>(row: &[T], label: usize, d: &mut [T]) -> T {
    let (top, log) = top_and_log_total(row);
    for (d, &x) in d.iter_mut().zip(row) {
        *d = ((x - top) - log).exp();
    }
    d[label] += -T::ONE;
    log - (row[label] - top)
}

/// Entropy of the mean softmax of the rows, `m = 1/V Σ_v softmax(x_v)`, `H(m) = -Σ m log m`, and its gradient with respect to
/// every logit: `dH/dm_k = -(log m_k + 1)`, then through each row's softmax.
pub fn marginal_entropy_gradient<T: Real>(x: &[T], width: usize, d: &mut [T]) -> T {
    let rows = T::of((x.len() / width.max(1)).max(1) as f64);
    // A floor far below any probability that matters, so that `0 log 0` is 0 and not NaN.
    let log = |p: T| p.max(T::of(1e-37)).ln();
    let logs: Vec<T> = mean_softmax(x, width).into_iter().map(log).collect();
    let g: Vec<T> = logs.iter().map(|&log| -(log + T::ONE) / rows).collect();
    let mut p = vec![T::ZERO; width];
    for (x, d) in x.chunks_exact(width.max(1)).zip(d.chunks_exact_mut(width.max(1))) {
        p.copy_from_slice(x);
        softmax(&mut p, width);
        softmax_backward(&p, &g, d);
    }
    let mut h = T::ZERO;
    logs.iter().for_each(|&log| h += -(log.exp() * log));
    h
}

fn mean_softmax<T: Real>(x: &[T], width: usize) -> Vec<T> {
    let mut mean = vec![T::ZERO; width];
    let mut p = vec![T::ZERO; width];
    let rows = T::of((x.len() / width.max(1)).max(1) as f64);
    for x in x.chunks_exact(width.max(1)) {
        p.copy_from_slice(x);
        softmax(&mut p, width);
        super::real::axpy(T::ONE, &p, &mut mean);
    }
    mean.iter_mut().for_each(|m| *m = *m / rows);
    mean
}

fn maximum<T: Real>(row: &[T]) -> T {
    row.iter().fold(T::of(f64::NEG_INFINITY), |top, &x| top.max(x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    #[test]
    fn softmax_sums_to_one_and_survives_large_logits() {
        let mut x = vec![1000.0f32, 999.0, -1000.0, 0.0, 0.0, 0.0];
        softmax(&mut x, 3);
        assert!((x[..3].iter().sum::<f32>() - 1.0).abs() < 1e-6 && (x[3] - 1.0 / 3.0).abs() < 1e-7);
        let mut l = vec![1000.0f32, 999.0, -1000.0];
        log_softmax(&mut l, 3);
        assert!((l[0].exp() - x[0]).abs() < 1e-6 && l[2] < -1999.0);
    }

    #[test]
    fn softmax_gradient_is_the_derivative() {
        let (x, g) = (values(1, 7), values(2, 7));
        let mut p = x.clone();
        softmax(&mut p, 7);
        let mut d = vec![0.0; 7];
        softmax_backward(&p, &g, &mut d);
        assert_gradient(&x, &d, 1e-6, |x| {
            let mut p = x.to_vec();
            softmax(&mut p, 7);
            p.iter().zip(&g).map(|(p, g)| p * g).sum()
        });
    }

    #[test]
    fn entropy_gradient_is_the_derivative() {
        let x: Vec<f64> = values(3, 9).iter().map(|x| 4.0 * x).collect();
        let mut d = vec![0.0; 9];
        assert_eq!(entropy_gradient(&x, &mut d), entropy(&x));
        assert_gradient(&x, &d, 1e-6, entropy);
        assert!((entropy(&[0.0f64; 10]) - 10f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn cross_entropy_gradient_is_the_derivative() {
        let x = values(3, 9);
        let mut d = vec![0.0; 9];
        cross_entropy_gradient(&x, 4, &mut d);
        assert_gradient(&x, &d, 1e-6, |x| cross_entropy_gradient(x, 4, &mut [0.0; 9]));
    }

    #[test]
    fn marginal_entropy_gradient_is_the_derivative() {
        let x: Vec<f64> = values(3, 24).iter().map(|x| 3.0 * x).collect();
        let mut d = vec![0.0; 24];
        marginal_entropy_gradient(&x, 6, &mut d);
        assert_gradient(&x, &d, 1e-6, |x| marginal_entropy_gradient(x, 6, &mut [0.0; 24]));
    }

    #[test]
    fn a_certain_answer_has_no_entropy_and_no_nan() {
        let x = [500.0f32, 0.0, -500.0, 400.0, 0.0, 0.0];
        let mut d = [0.0; 6];
        assert!(marginal_entropy_gradient(&x, 3, &mut d).abs() < 1e-30);
        assert!(d.iter().all(|d| d.is_finite()));
    }
}
