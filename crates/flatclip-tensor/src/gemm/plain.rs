//! The reference implementation of products: plain loops, summed in f64. The tests compare every path with it.

use super::Activation;
use crate::ops::activation::tests::value;

/// `act(x Wᵀ + b)`, in the precision of the machine's largest float.
pub(crate) fn linear(
    x: &[f32],
    rows: usize,
    weight: &[f32],
    n: usize,
    k: usize,
    bias: Option<&[f32]>,
    activation: Activation,
) -> Vec<f64> {
    let mut out = Vec::with_capacity(rows * n);
    for row in 0..rows {
        for column in 0..n {
            let sum: f64 = (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(weight[column * k + i])).sum();
            out.push(value(activation, sum + bias.map_or(0.0, |bias| f64::from(bias[column]))));
        }
    }
    out
}
