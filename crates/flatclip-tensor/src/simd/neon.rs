//! Vectors of NEON.

use super::Lanes;
use std::arch::aarch64::*;

/// Eight lanes in two registers, as many as AVX2 has, so that kernels for AVX2 also suit the thirty-two registers, and sums
/// have the same order.
#[derive(Clone, Copy)]
pub(crate) struct Neon([float32x4_t; 2]);

/// One method per line: each does the same to both registers.
macro_rules! lane_ops {
    ($($name:ident($($arg:ident),*) = $value:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            // SAFETY: a vector proves the instructions (comment of the parent).
            let half = |i: usize| unsafe { $value(self.0[i] $(, $arg.0[i])*) };
            Neon([half(0), half(1)])
        }
    )*};
}

impl Lanes for Neon {
    const WIDTH: usize = 8;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: promised by the caller.
        Neon(unsafe { [vdupq_n_f32(x); 2] })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller promises eight values.
        Neon(unsafe { [vld1q_f32(from), vld1q_f32(from.add(4))] })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller promises room for eight values.
        unsafe {
            vst1q_f32(to, self.0[0]);
            vst1q_f32(to.add(4), self.0[1]);
        }
    }
    lane_ops! {
        add(other) = vaddq_f32;
        sub(other) = vsubq_f32;
        mul(other) = vmulq_f32;
        div(other) = vdivq_f32;
        // The variants that return the number if the other operand is NaN, as `f32::min` and `f32::max` do.
        min(other) = vminnmq_f32;
        max(other) = vmaxnmq_f32;
        // The term comes first.
        mul_add(factor, term) = |x, factor, term| vfmaq_f32(term, x, factor);
        round() = vrndnq_f32;
        exp2_whole() = |x| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(x), vdupq_n_s32(127))));
        abs() = vabsq_f32;
        copysign(sign) = |x, sign| vbslq_f32(vdupq_n_u32(1 << 31), sign, x);
        if_below(limit, below, other) = |x, limit, below, other| vbslq_f32(vcltq_f32(x, limit), below, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight different values in `a`, `b` and `c`: lanes that are swapped or dropped show.
    fn vectors() -> [[f32; 8]; 3] {
        let a = [1.5, -2.5, 0.0, -0.0, 3.25, 1e-30, -7.75, 0.5];
        let b = [-1.0, 2.0, -0.0, 0.0, 0.3, 1e30, -8.5, f32::INFINITY];
        let c = [0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8];
        [a, b, c]
    }

    #[track_caller]
    fn same(got: Neon, want: impl Fn(usize) -> f32) {
        let got = got.to_array();
        for i in 0..Neon::WIDTH {
            assert_eq!(got[i].to_bits(), want(i).to_bits(), "lane {i}: {}, expected {}", got[i], want(i));
        }
    }

    #[test]
    fn every_lane_does_what_one_value_does() {
        let [a, b, c] = vectors();
        // SAFETY: eight values each, and NEON is part of the target's baseline.
        let [x, y, z] = [a, b, c].map(|v| unsafe { Neon::load(v.as_ptr()) });
        same(x.add(y), |i| a[i] + b[i]);
        same(x.sub(y), |i| a[i] - b[i]);
        same(x.mul(z), |i| a[i] * c[i]);
        same(x.div(z), |i| a[i] / c[i]);
        same(x.mul_add(y, z), |i| a[i].mul_add(b[i], c[i]));
        same(x.round(), |i| a[i].round_ties_even());
        same(x.abs(), |i| a[i].abs());
        same(z.copysign(x), |i| c[i].copysign(a[i]));
        same(x.if_below(y, z, x), |i| if a[i] < b[i] { c[i] } else { a[i] });
        same(x.like(4.25), |_| 4.25);
        assert_eq!(x.total(), ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])));
        assert_eq!(x.largest(), 3.25);
    }

    #[test]
    fn a_number_is_preferred_to_nan_as_in_the_plain_path() {
        let [mut a, b, _] = vectors();
        (a[1], a[6]) = (f32::NAN, f32::NAN);
        // SAFETY: eight values each, and NEON is part of the target's baseline.
        let [x, y] = [a, b].map(|v| unsafe { Neon::load(v.as_ptr()) });
        let (least, most) = (x.min(y).to_array(), x.max(y).to_array());
        for i in 0..Neon::WIDTH {
            // Compare values, not bits: the sign of a zero is unspecified.
            assert_eq!((least[i], most[i]), (a[i].min(b[i]), a[i].max(b[i])), "lane {i}");
        }
    }

    #[test]
    fn powers_of_two_are_exact() {
        for n in -126..=128 {
            // SAFETY: NEON is part of the target's baseline.
            let power = unsafe { Neon::splat(n as f32) }.exp2_whole();
            same(power, |_| if n == 128 { f32::INFINITY } else { 2f32.powi(n) });
        }
    }
}
