//! The MLP's nonlinearity on its own, and its derivative.

use super::real::Real;
use crate::gemm::Activation;
use rayon::prelude::*;

/// Values per parallel task.
const BLOCK: usize = 1 << 14;

/// `x = act(x)` in place.
pub fn activate(activation: Activation, x: &mut [f32]) {
    x.par_chunks_mut(BLOCK).for_each(|x| x.iter_mut().for_each(|x| *x = value(activation, *x)));
}

/// `d *= act'(x)` with `x` the value before the activation.
pub fn activate_backward(activation: Activation, x: &[f32], d: &mut [f32]) {
    assert_eq!(x.len(), d.len());
    d.par_chunks_mut(BLOCK).zip(x.par_chunks(BLOCK)).for_each(|(d, x)| {
        d.iter_mut().zip(x).for_each(|(d, &x)| *d *= slope(activation, x));
    });
}

/// `act(x)`.
pub fn value<T: Real>(activation: Activation, x: T) -> T {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(T::ZERO),
        Activation::QuickGelu => x * sigmoid(T::of(1.702) * x),
        Activation::Gelu => x * normal_cdf(x),
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
    }
}

fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

fn normal_cdf<T: Real>(x: T) -> T {
    T::of(0.5) * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    #[test]
    fn slopes_are_derivatives() {
        for activation in [Activation::Identity, Activation::Relu, Activation::QuickGelu, Activation::Gelu] {
            let x: Vec<f64> = values(5, 40).iter().map(|x| 3.0 * x).collect();
            let d: Vec<f64> = x.iter().map(|&x| slope(activation, x)).collect();
            assert_gradient(&x, &d, 1e-6, |x| x.iter().map(|&x| value(activation, x)).sum());
        }
    }

    #[test]
    fn far_values_stay_finite() {
        for x in [-200.0f32, 200.0] {
            for activation in [Activation::QuickGelu, Activation::Gelu] {
                assert!(value(activation, x).is_finite() && slope(activation, x).is_finite());
            }
        }
    }
}
