//! Elementary functions on vectors. The polynomials are minimax approximations computed for flatclip (weighted least squares
//! iterated to equal ripple, in f64); the tests limit their error to a few units in the last place of the f64 result.

use crate::simd::Lanes;

/// Evaluates `c[0] + c[1] x + c[2] x² + ...`.
#[inline(always)]
fn polynomial<L: Lanes, const N: usize>(x: L, c: [f32; N]) -> L {
    let mut y = x.like(c[N - 1]);
    for i in (0..N - 1).rev() {
        y = y.mul_add(x, x.like(c[i]));
    }
    y
}

/// `e^x`; 0 below -87.33 (where the result would be subnormal), infinity above 88.73.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    const LOWEST: f32 = -87.33;
    let y = x.max(x.like(LOWEST)).min(x.like(89.0));
    let n = y.mul(x.like(std::f32::consts::LOG2_E)).round();
    // ln 2 in two parts: the first has few enough bits that n times it is exact.
    let r = n.mul_add(x.like(-0.693_359_4), y);
    let r = n.mul_add(x.like(2.121_944_4e-4), r);
    let tail = polynomial(r, [0.5, 0.166_665_18, 0.041_666_206, 0.008_368_918, 0.001_395_053_8]);
    let mantissa = r.mul(r).mul_add(tail, r).add(x.like(1.0));
    x.if_below(x.like(LOWEST), x.like(0.0), mantissa.mul(n.exp2_whole()))
}

#[inline(always)]
pub(crate) fn erf<L: Lanes>(x: L) -> L {
    let a = x.abs();
    let square = x.mul(x);
    // |x| < 1: erf(x) = x + x P(x²).
    let small = polynomial(
        square,
        [0.128_379_17, -0.376_126_26, 0.112_835_854, -0.026_853_811, 0.005_188_327_8, -8.010_192_5e-4, 7.853_858e-5],
    )
    .mul_add(x, x);
    // Otherwise: erf(x) = 1 - exp(ln erfc(x)), and 1 in f32 above 4.
    let log_erfc = polynomial(
        a.min(x.like(4.0)),
        [-3.004_280_4e-4, -1.127_251_5, -0.637_883_07, -0.103_327_35, 0.021_940_433, -0.002_972_442_2, 1.888_236_4e-4],
    );
    let large = x.like(1.0).sub(exp(log_erfc)).copysign(x);
    a.if_below(x.like(1.0), small, large)
}

/// A function of one value and its derivative. A type rather than a closure: closures are compiled without the caller's instruction set.
pub(crate) trait Unary {
    fn of<L: Lanes>(x: L) -> L;
    fn slope<L: Lanes>(x: L) -> L;
}

pub(crate) struct Identity;
impl Unary for Identity {
    #[inline(always)]
    fn of<L: Lanes>(x: L) -> L {
        x
    }
    #[inline(always)]
    fn slope<L: Lanes>(x: L) -> L {
        x.like(1.0)
    }
}

pub(crate) struct Relu;
impl Unary for Relu {
    #[inline(always)]
    fn of<L: Lanes>(x: L) -> L {
        x.max(x.like(0.0))
    }
    #[inline(always)]
    fn slope<L: Lanes>(x: L) -> L {
        x.like(0.0).if_below(x, x.like(1.0), x.like(0.0))
    }
}

/// `x * sigmoid(1.702 x)`.
pub(crate) struct QuickGelu;
impl Unary for QuickGelu {
    #[inline(always)]
    fn of<L: Lanes>(x: L) -> L {
        x.div(x.like(1.0).add(exp(x.mul(x.like(-1.702)))))
    }
    #[inline(always)]
    fn slope<L: Lanes>(x: L) -> L {
        let z = x.mul(x.like(1.702));
        gated_slope(z, z)
    }
}

/// The slope `s + t s (1 - s)` of `x s`, with `s = sigmoid(z)` and `t = x dz/dx`.
#[inline(always)]
fn gated_slope<L: Lanes>(z: L, t: L) -> L {
    let one = z.like(1.0);
    let s = one.div(one.add(exp(z.like(0.0).sub(z))));
    t.mul(one.sub(s)).mul_add(s, s)
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu<L: Lanes>(x: L) -> L {
    x.div(x.like(1.0).add(exp(x.like(0.0).sub(x))))
}

/// `x / 2 (1 + tanh(u))` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, which is `x * sigmoid(2 u)`: no difference of close numbers.
pub(crate) struct GeluTanh;
impl GeluTanh {
    /// `2 sqrt(2 / pi)`.
    const FACTOR: f32 = 1.595_769_2;
    const CUBE: f32 = 0.044_715;
}
impl Unary for GeluTanh {
    #[inline(always)]
    fn of<L: Lanes>(x: L) -> L {
        let cubic = x.mul(x).mul_add(x.like(Self::CUBE), x.like(1.0));
        x.div(x.like(1.0).add(exp(x.mul(x.like(-Self::FACTOR)).mul(cubic))))
    }
    #[inline(always)]
    fn slope<L: Lanes>(x: L) -> L {
        // Beyond 20 the slope is 0 or 1 in f32, and the cube would overflow.
        let x = x.max(x.like(-20.0)).min(x.like(20.0));
        let (square, one, linear) = (x.mul(x), x.like(1.0), x.mul(x.like(Self::FACTOR)));
        let z = linear.mul(square.mul_add(x.like(Self::CUBE), one));
        gated_slope(z, linear.mul(square.mul_add(x.like(3.0 * Self::CUBE), one)))
    }
}

/// `x Φ(x)`.
pub(crate) struct Gelu;
impl Unary for Gelu {
    #[inline(always)]
    fn of<L: Lanes>(x: L) -> L {
        let half = x.mul(x.like(0.5));
        half.mul_add(erf(x.mul(x.like(std::f32::consts::FRAC_1_SQRT_2))), half)
    }
    /// The standard normal density times `x`, plus the distribution function.
    #[inline(always)]
    fn slope<L: Lanes>(x: L) -> L {
        let density = exp(x.mul(x).mul(x.like(-0.5))).mul(x.like(0.398_942_3));
        let half = x.like(0.5);
        let distribution = half.mul_add(erf(x.mul(x.like(std::f32::consts::FRAC_1_SQRT_2))), half);
        x.mul_add(density, distribution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Activation;
    use crate::ops::activation::tests::value;
    use crate::ops::check::erf as erf64;

    /// The largest error of `f` in units in the last place over a grid.
    fn worst(from: f32, to: f32, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> f64 {
        let mut worst = 0.0f64;
        for i in 0..200_000 {
            let x = from + (to - from) * i as f32 / 200_000.0;
            let want = exact(f64::from(x));
            let ulp = f64::from(f32::from_bits((want as f32).abs().to_bits() + 1)) - f64::from((want as f32).abs());
            worst = worst.max((f64::from(f(x)) - want).abs() / ulp);
        }
        worst
    }

    fn on_every_width(x: f32, f: [fn(f32) -> f32; 2]) -> f32 {
        let y = f[0](x);
        let z = f[1](x);
        assert!((y - z).abs() <= 4.0 * f32::EPSILON * y.abs().max(1e-30), "f({x}): plain {y}, vector {z}");
        z
    }

    /// Runs the vector form on AVX2 or NEON where the machine has it.
    macro_rules! vector_form {
        ($name:path) => {{
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn vector(x: f32) -> f32 {
                let mut out = [0.0f32; 8];
                // SAFETY: eight values fit, and this is compiled for AVX2.
                unsafe { $name(crate::simd::Avx2::splat(x)).store(out.as_mut_ptr()) };
                out[0]
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn vector(x: f32) -> f32 {
                let mut out = [0.0f32; 8];
                // SAFETY: eight values fit, and this is compiled for NEON.
                unsafe { $name(crate::simd::Neon::splat(x)).store(out.as_mut_ptr()) };
                assert!(out.iter().all(|y| y.to_bits() == out[0].to_bits()), "lanes differ: {out:?}");
                out[0]
            }
            fn run(x: f32) -> f32 {
                #[cfg(target_arch = "x86_64")]
                let found = crate::isa::supports(crate::isa::Isa::Avx2);
                #[cfg(target_arch = "aarch64")]
                let found = crate::isa::supports(crate::isa::Isa::Neon);
                #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
                if found {
                    // SAFETY: just detected.
                    return unsafe { vector(x) };
                }
                $name(x)
            }
            [$name as fn(f32) -> f32, run as fn(f32) -> f32]
        }};
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        let f = vector_form!(exp);
        assert!(worst(-87.0, 88.0, |x| on_every_width(x, f), f64::exp) < 2.0);
        assert!(worst(-1.0, 1.0, |x| on_every_width(x, f), f64::exp) < 2.0);
        for f in f {
            assert_eq!(f(-1e30), 0.0);
            assert_eq!(f(f32::NEG_INFINITY), 0.0);
            assert_eq!(f(0.0), 1.0);
            assert_eq!(f(1e30), f32::INFINITY);
        }
    }

    #[test]
    fn erf_is_right_to_two_units_in_the_last_place() {
        let f = vector_form!(erf);
        assert!(worst(1e-6, 5.0, f[0], erf64) < 2.5);
        assert!(worst(1e-6, 5.0, f[1], erf64) < 2.0);
        assert_eq!(f[1](-0.7), -f[1](0.7));
        assert_eq!(f[1](50.0), 1.0);
    }

    #[test]
    fn activations_agree_with_their_definition() {
        let tanh = vector_form!(GeluTanh::of);
        let quick = vector_form!(QuickGelu::of);
        let agree = |forms: [fn(f32) -> f32; 2], definition: &dyn Fn(f64) -> f64| {
            for x in (-2000..2000).map(|i| i as f32 * 0.01) {
                let want = definition(f64::from(x));
                for form in forms {
                    assert!((f64::from(form(x)) - want).abs() < 3e-7 * f64::from(x).abs().max(1.0), "{x}: {want}");
                }
            }
        };
        agree(vector_form!(Gelu::of), &|x| value(Activation::Gelu, x));
        agree(quick, &|x| value(Activation::QuickGelu, x));
        agree(tanh, &gelu_tanh64);
        agree(vector_form!(silu), &|x| x / (1.0 + (-x).exp()));
        assert_eq!(quick[1](-200.0), 0.0);
        assert_eq!((tanh[1](-200.0), tanh[1](200.0), tanh[1](-1e30)), (0.0, 200.0, 0.0));
        // Relative to the value, also where it is small.
        assert!(tanh.iter().all(|form| worst(-4.0, 6.0, form, gelu_tanh64) < 40.0));
    }

    fn gelu_tanh64(x: f64) -> f64 {
        value(Activation::GeluTanh, x)
    }

    #[test]
    fn slopes_are_derivatives_and_stay_finite() {
        let slopes = [
            (Activation::QuickGelu, vector_form!(QuickGelu::slope)),
            (Activation::Gelu, vector_form!(Gelu::slope)),
            (Activation::Relu, vector_form!(Relu::slope)),
            (Activation::GeluTanh, vector_form!(GeluTanh::slope)),
        ];
        for (activation, slopes) in slopes {
            let value = |x| value(activation, x);
            for i in -2000..2000 {
                let x = (f64::from(i) + 0.5) * 0.01;
                let want = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6;
                for slope in slopes {
                    assert!((f64::from(slope(x as f32)) - want).abs() < 1e-5, "slope at {x}");
                }
            }
            assert!(slopes.iter().all(|slope| slope(-200.0) == 0.0 && slope(200.0) == 1.0));
        }
    }
}
