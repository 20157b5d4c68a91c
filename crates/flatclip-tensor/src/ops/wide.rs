//! Sums of `f32` values in `f64`, and the entropy of logits, which adapters compute for every view of every image. Compiled
//! for each instruction set; the order of additions is the same on all.

use crate::isa::per_isa;
use crate::math;
use crate::simd::{Available, Lanes};

/// Number of partial sums: the `f64` lanes of an AVX-512 register.
const PARTS: usize = 8;

/// `Σ a b`.
///
/// # Panics
/// If the lengths differ.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sum = 0.0;
    sum_of_pairs(a, b, false, &mut sum);
    sum
}

/// `Σ (a - b)²`.
///
/// # Panics
/// If the lengths differ.
pub fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    let mut sum = 0.0;
    sum_of_pairs(a, b, true, &mut sum);
    sum
}

/// `sum += weight x`.
///
/// # Panics
/// If the lengths differ.
pub fn add_scaled(weight: f64, x: &[f32], sum: &mut [f64]) {
    assert_eq!(x.len(), sum.len());
    add_scaled_part(weight, x, sum);
}

/// `x = softmax(x)` for each row of `width` values, the divisor in `f64`.
pub fn softmax(x: &mut [f32], width: usize) {
    for row in x.chunks_exact_mut(width.max(1)) {
        let mut sums = (0.0, 0.0);
        let logits = row.to_vec();
        exponentials(&logits, row, &mut sums);
        let scale = (1.0 / sums.0) as f32;
        row.iter_mut().for_each(|x| *x *= scale);
    }
}

/// Entropy in nats of the softmax of each row of `width` logits: `ln S - M / S` with `S = Σ exp(z - top)` and
/// `M = Σ (z - top) exp(z - top)`.
pub fn entropies(logits: &[f32], width: usize) -> Vec<f32> {
    let mut scratch = vec![0.0; width];
    let entropy = |row: &[f32]| {
        let (mut sums, scratch) = ((0.0, 0.0), &mut scratch[..]);
        exponentials(row, scratch, &mut sums);
        (sums.0.ln() - sums.1 / sums.0) as f32
    };
    logits.chunks_exact(width.max(1)).map(entropy).collect()
}

per_isa! { fn sum_of_pairs(a: &[f32], b: &[f32], squares: bool, sum: &mut f64) = sum_of_pairs_lanes; }
per_isa! { fn add_scaled_part(weight: f64, x: &[f32], sum: &mut [f64]) = add_scaled_lanes; }
per_isa! { fn exponentials(row: &[f32], out: &mut [f32], sums: &mut (f64, f64)) = exponentials_lanes; }

#[inline(always)]
fn sum_of_pairs_lanes<L: Lanes>(_: Available<L>, a: &[f32], b: &[f32], squares: bool, sum: &mut f64) {
    assert_eq!(a.len(), b.len());
    *sum = if squares {
        summed(a, b, |a, b| {
            let difference = f64::from(a) - f64::from(b);
            difference * difference
        })
    } else {
        summed(a, b, |a, b| f64::from(a) * f64::from(b))
    };
}

#[inline(always)]
fn add_scaled_lanes<L: Lanes>(_: Available<L>, weight: f64, x: &[f32], sum: &mut [f64]) {
    for (sum, &x) in sum.iter_mut().zip(x) {
        *sum += weight * f64::from(x);
    }
}

/// `out = exp(row - top)` with `top` the largest value of the row; returns the sums of `out` and of `(row - top) out`. A NaN in
/// the row makes the second sum NaN.
#[inline(always)]
fn exponentials_lanes<L: Lanes>(lanes: Available<L>, row: &[f32], out: &mut [f32], sums: &mut (f64, f64)) {
    let top = largest(lanes, row);
    let shift = lanes.splat(-top);
    let (mut from, mut to) = (row.chunks_exact(L::WIDTH), out.chunks_exact_mut(L::WIDTH));
    for (from, to) in (&mut from).zip(&mut to) {
        // SAFETY: whole vectors.
        unsafe { math::exp(lanes.load(from.as_ptr()).add(shift)).store(to.as_mut_ptr()) };
    }
    let (from, to) = (from.remainder(), to.into_remainder());
    let mut padded = [0.0; 16];
    padded[..from.len()].copy_from_slice(from);
    // SAFETY: no vector has more than 16 lanes.
    let last = math::exp(unsafe { lanes.load(padded.as_ptr()) }.add(shift)).to_array();
    to.copy_from_slice(&last[..from.len()]);
    sums.0 = summed(out, out, |e, _| f64::from(e));
    sums.1 = summed(row, out, |z, e| f64::from(z - top) * f64::from(e));
}

#[inline(always)]
fn largest<L: Lanes>(lanes: Available<L>, row: &[f32]) -> f32 {
    let mut most = lanes.splat(f32::NEG_INFINITY);
    let chunks = row.chunks_exact(L::WIDTH);
    let rest = chunks.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for chunk in chunks {
        // SAFETY: a whole vector.
        most = most.max(unsafe { lanes.load(chunk.as_ptr()) });
    }
    most.largest().max(rest)
}

/// `Σ term(a, b)`.
#[inline(always)]
fn summed(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f64) -> f64 {
    let (a, a_rest) = a.as_chunks::<PARTS>();
    let (b, b_rest) = b.as_chunks::<PARTS>();
    let mut sums = [0.0; PARTS];
    for (a, b) in a.iter().zip(b) {
        for i in 0..PARTS {
            sums[i] += term(a[i], b[i]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(&a, &b)| term(a, b)).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::values;

    fn row(length: usize, scale: f64) -> Vec<f32> {
        values(3, length).iter().map(|x| (x * scale) as f32).collect()
    }

    #[test]
    fn sums_of_any_length_are_those_of_a_plain_loop() {
        for length in [0, 1, 7, 8, 9, 31, 512, 513] {
            let (a, b) = (row(length, 1.0), row(length + 1, 2.0)[1..].to_vec());
            let pairs = || a.iter().zip(&b).map(|(&a, &b)| (f64::from(a), f64::from(b)));
            let product: f64 = pairs().map(|(a, b)| a * b).sum();
            let distance: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
            assert!((dot(&a, &b) - product).abs() < 1e-12 * (1.0 + product.abs()), "{length}");
            assert!((squared_distance(&a, &b) - distance).abs() < 1e-12 * (1.0 + distance), "{length}");
            let mut sum: Vec<f64> = b.iter().map(|&b| f64::from(b)).collect();
            add_scaled(0.25, &a, &mut sum);
            let expected: Vec<f64> = pairs().map(|(a, b)| b + 0.25 * a).collect();
            assert_eq!(sum, expected);
        }
    }

    #[test]
    fn entropies_and_softmax_are_those_in_f64() {
        for (width, scale) in [(1, 1.0), (5, 30.0), (16, 0.0), (17, 3.0), (1000, 8.0)] {
            let logits = row(3 * width, scale);
            let mut soft = logits.clone();
            softmax(&mut soft, width);
            for ((row, soft), found) in logits.chunks(width).zip(soft.chunks(width)).zip(entropies(&logits, width)) {
                let mut p: Vec<f64> = row.iter().map(|&z| f64::from(z)).collect();
                let expected = crate::ops::loss::entropy(&p);
                assert!((f64::from(found) - expected).abs() < 1e-6 * (1.0 + expected), "{width}: {found} {expected}");
                crate::ops::loss::softmax(&mut p, width);
                let far = p.iter().zip(soft).map(|(p, &s)| (p - f64::from(s)).abs()).fold(0.0, f64::max);
                assert!(far < 1e-6, "{width}: {far}");
            }
        }
    }

    #[test]
    fn a_logit_that_is_no_number_makes_the_entropy_none() {
        for at in [0, 5, 16] {
            let mut logits = row(17, 1.0);
            logits[at] = f32::NAN;
            assert!(entropies(&logits, 17)[0].is_nan(), "{at}");
        }
        assert!(entropies(&[], 0).is_empty());
    }
}
