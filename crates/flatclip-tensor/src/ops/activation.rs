//! The activation of the MLP as a separate operation, and its derivative.

use super::real::Real;
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

/// `act(x)`.
pub fn value<T: Real>(activation: Activation, x: T) -> T {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(T::ZERO),
        Activation::QuickGelu => x * sigmoid(T::of(1.702) * x),
        Activation::Gelu => x * normal_cdf(x),
        Activation::GeluTanh => x * sigmoid(tanh_argument(x)),
    }
}

/// `act'(x)`.
pub fn slope<T: Real>(activation: Activation, x: T) -> T {
    match activation {
        Activation::Identity => T::ONE,
        Activation::Relu => {
            if x > T::ZERO {
                T::ONE
            } else {
                T::ZERO
            }
        }
        Activation::QuickGelu => {
            let s = sigmoid(T::of(1.702) * x);
            s * (T::ONE + T::of(1.702) * x * (T::ONE - s))
        }
        Activation::Gelu => {
            let density = (T::of(-0.5) * x * x).exp() * T::of(1.0 / (std::f64::consts::TAU).sqrt());
            normal_cdf(x) + x * density
        }
        Activation::GeluTanh => {
            // For large |x|, `x³` overflows, and 0 times infinity would be NaN.
            let x = if x.wide().abs() > 20.0 { T::of(20.0f64.copysign(x.wide())) } else { x };
            let s = sigmoid(tanh_argument(x));
            s + x * s * (T::ONE - s) * T::of(TANH_FACTOR) * (T::ONE + T::of(3.0 * TANH_CUBE) * x * x)
        }
    }
}

fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

/// `2 sqrt(2 / pi)`, and the weight of the cube, of GELU's tanh form.
const TANH_FACTOR: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const TANH_CUBE: f64 = 0.044715;

/// `2 u` with `(1 + tanh(u)) / 2 = sigmoid(2 u)`.
fn tanh_argument<T: Real>(x: T) -> T {
    T::of(TANH_FACTOR) * x * (T::ONE + T::of(TANH_CUBE) * x * x)
}

fn normal_cdf<T: Real>(x: T) -> T {
    T::of(0.5) * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    const ALL: [Activation; 5] =
        [Activation::Identity, Activation::Relu, Activation::QuickGelu, Activation::Gelu, Activation::GeluTanh];

    #[test]
    fn slopes_are_derivatives() {
        for activation in ALL {
            let x: Vec<f64> = values(5, 40).iter().map(|x| 3.0 * x).collect();
            let d: Vec<f64> = x.iter().map(|&x| slope(activation, x)).collect();
            assert_gradient(&x, &d, 1e-6, |x| x.iter().map(|&x| value(activation, x)).sum());
        }
    }

    #[test]
    fn vectors_agree_with_the_plain_form() {
        for activation in ALL {
            let x: Vec<f32> = values(5, 43).iter().map(|&x| 4.0 * x as f32).collect();
            let (mut y, mut d) = (x.clone(), vec![0.5; x.len()]);
            activate(activation, &mut y);
            activate_backward(activation, &x, &mut d);
            for i in 0..x.len() {
                assert!((y[i] - value(activation, x[i])).abs() < 1e-6);
                assert!((d[i] - 0.5 * slope(activation, x[i])).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn far_values_stay_finite() {
        for x in [-200.0f32, 200.0] {
            for activation in [Activation::QuickGelu, Activation::Gelu, Activation::GeluTanh] {
                assert!(value(activation, x).is_finite() && slope(activation, x).is_finite());
            }
        }
    }
}
