//! The oracle: loops that say what a product is, summed in f64. The tests compare every path with them.

use super::Activation;

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
            out.push(activate(sum + bias.map_or(0.0, |bias| f64::from(bias[column])), activation));
        }
    }
    out
}

fn activate(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        // SAFETY: `erf` is a pure function of its argument.
        Activation::Gelu => 0.5 * x * (1.0 + unsafe { erf(x * std::f64::consts::FRAC_1_SQRT_2) }),
    }
}

unsafe extern "C" {
    fn erf(x: f64) -> f64;
}
