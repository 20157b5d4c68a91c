//! The activation of the MLP as a separate operation, and its derivative.

use crate::gemm::Activation;
use crate::isa::per_isa;
use crate::math::{self, Unary};
use crate::simd::{Available, Lanes};
use crate::threads::for_each_part;

/// Values per parallel task.
const BLOCK: usize = 1 << 14;

/// `x = act(x)` in place. Bitwise equal to the activation fused into a product.
pub fn activate(activation: Activation, x: &mut [f32]) {
    for_each_part(x, BLOCK, |_, x| activate_part(activation, x));
}

/// `d *= act'(x)` with `x` the value before the activation.
pub fn activate_backward(activation: Activation, x: &[f32], d: &mut [f32]) {
    assert_eq!(x.len(), d.len());
    for_each_part(d, BLOCK, |at, d| slope_part(activation, &x[at..at + d.len()], d));
}

per_isa! { fn activate_part(activation: Activation, x: &mut [f32]) = activate_lanes; }
per_isa! { fn slope_part(activation: Activation, x: &[f32], d: &mut [f32]) = slope_lanes; }

#[inline(always)]
fn activate_lanes<L: Lanes>(lanes: Available<L>, activation: Activation, x: &mut [f32]) {
    match activation {
        Activation::Identity => {}
        Activation::Relu => each::<math::Relu, L>(lanes, x),
        Activation::QuickGelu => each::<math::QuickGelu, L>(lanes, x),
        Activation::Gelu => each::<math::Gelu, L>(lanes, x),
        Activation::GeluTanh => each::<math::GeluTanh, L>(lanes, x),
    }
}

#[inline(always)]
fn slope_lanes<L: Lanes>(lanes: Available<L>, activation: Activation, x: &[f32], d: &mut [f32]) {
    match activation {
        Activation::Identity => {}
        Activation::Relu => each_slope::<math::Relu, L>(lanes, x, d),
        Activation::QuickGelu => each_slope::<math::QuickGelu, L>(lanes, x, d),
        Activation::Gelu => each_slope::<math::Gelu, L>(lanes, x, d),
        Activation::GeluTanh => each_slope::<math::GeluTanh, L>(lanes, x, d),
    }
}

#[inline(always)]
fn each<A: Unary, L: Lanes>(lanes: Available<L>, x: &mut [f32]) {
    let mut chunks = x.chunks_exact_mut(L::WIDTH);
    for chunk in &mut chunks {
        // SAFETY: a whole vector.
        unsafe { A::of(lanes.load(chunk.as_ptr())).store(chunk.as_mut_ptr()) };
    }
    let rest = chunks.into_remainder();
    let mut padded = [0.0; 16];
    padded[..rest.len()].copy_from_slice(rest);
    // SAFETY: no vector has more than 16 lanes.
    let done = A::of(unsafe { lanes.load(padded.as_ptr()) }).to_array();
    rest.copy_from_slice(&done[..rest.len()]);
}

#[inline(always)]
fn each_slope<A: Unary, L: Lanes>(lanes: Available<L>, x: &[f32], d: &mut [f32]) {
    let (mut xs, mut ds) = (x.chunks_exact(L::WIDTH), d.chunks_exact_mut(L::WIDTH));
    for (x, d) in (&mut xs).zip(&mut ds) {
        // SAFETY: whole vectors.
        unsafe { A::slope(lanes.load(x.as_ptr())).mul(lanes.load(d.as_ptr())).store(d.as_mut_ptr()) };
    }
    let (x, d) = (xs.remainder(), ds.into_remainder());
    let mut padded = [0.0; 16];
    padded[..x.len()].copy_from_slice(x);
    // SAFETY: no vector has more than 16 lanes.
    let slopes = A::slope(unsafe { lanes.load(padded.as_ptr()) }).to_array();
    d.iter_mut().zip(slopes).for_each(|(d, slope)| *d *= slope);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, erf, values};
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, TAU};

    const ALL: [Activation; 5] =
        [Activation::Identity, Activation::Relu, Activation::QuickGelu, Activation::Gelu, Activation::GeluTanh];

    /// The definition of `act(x)`.
    pub(crate) fn value(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Identity => x,
            Activation::Relu => x.max(0.0),
            Activation::QuickGelu => x * sigmoid(1.702 * x),
            Activation::Gelu => x * normal_cdf(x),
            Activation::GeluTanh => x * sigmoid(tanh_argument(x)),
        }
    }

    /// The definition of `act'(x)`.
    fn slope(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Identity => 1.0,
            Activation::Relu => f64::from(x > 0.0),
            Activation::QuickGelu => {
                let s = sigmoid(1.702 * x);
                s * (1.0 + 1.702 * x * (1.0 - s))
            }
            Activation::Gelu => normal_cdf(x) + x * (-0.5 * x * x).exp() / TAU.sqrt(),
            Activation::GeluTanh => {
                let s = sigmoid(tanh_argument(x));
                s + x * s * (1.0 - s) * TANH_FACTOR * (1.0 + 3.0 * TANH_CUBE * x * x)
            }
        }
    }

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// `2 sqrt(2 / pi)`, and the weight of the cube, of GELU's tanh form.
    const TANH_FACTOR: f64 = 2.0 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    const TANH_CUBE: f64 = 0.044715;

    /// `2 u` with `(1 + tanh(u)) / 2 = sigmoid(2 u)`.
    fn tanh_argument(x: f64) -> f64 {
        TANH_FACTOR * x * (1.0 + TANH_CUBE * x * x)
    }

    fn normal_cdf(x: f64) -> f64 {
        0.5 * (1.0 + erf(x * FRAC_1_SQRT_2))
    }

    #[test]
    fn slopes_are_derivatives() {
        for activation in ALL {
            let x: Vec<f64> = values(5, 40).iter().map(|x| 3.0 * x).collect();
            let d: Vec<f64> = x.iter().map(|&x| slope(activation, x)).collect();
            assert_gradient(&x, &d, 1e-6, |x| x.iter().map(|&x| value(activation, x)).sum());
        }
    }

    #[test]
    fn vectors_agree_with_the_definition() {
        for activation in ALL {
            let x: Vec<f32> = values(5, 43).iter().map(|&x| 4.0 * x as f32).collect();
            let (mut y, mut d) = (x.clone(), vec![0.5; x.len()]);
            activate(activation, &mut y);
            activate_backward(activation, &x, &mut d);
            for (i, x) in x.into_iter().map(f64::from).enumerate() {
                assert!((f64::from(y[i]) - value(activation, x)).abs() < 1e-6);
                assert!((f64::from(d[i]) - 0.5 * slope(activation, x)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn far_values_stay_finite() {
        for activation in ALL {
            let (x, mut d) = ([-200.0, 200.0], [1.0; 2]);
            let mut y = x;
            activate(activation, &mut y);
            activate_backward(activation, &x, &mut d);
            assert!(y.iter().chain(&d).all(|x| x.is_finite()), "{activation:?}");
        }
    }
}
