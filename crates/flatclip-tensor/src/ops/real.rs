//! The two number types of the plain kernels: `f32` for computation, `f64` for gradient checks.

use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// A real number: `f32` in the towers, `f64` where a derivative is checked by finite differences.
pub trait Real:
    Copy
    + Send
    + Sync
    + PartialOrd
    + std::fmt::Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The nearest value.
    fn of(x: f64) -> Self;
    /// `e^x`.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// The larger one.
    fn max(self, other: Self) -> Self;
}

macro_rules! real {
    ($t:ident) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline]
            fn of(x: f64) -> Self {
                x as $t
            }
            #[inline]
            fn exp(self) -> Self {
                $t::exp(self)
            }
            #[inline]
            fn ln(self) -> Self {
                $t::ln(self)
            }
            #[inline]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline]
            fn max(self, other: Self) -> Self {
                $t::max(self, other)
            }
        }
    };
}

real!(f32);
real!(f64);

/// Inner product with eight partial sums, which the compiler can vectorise and which reduce the rounding error.
#[inline(always)]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::ZERO; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let mut tail = T::ZERO;
    for (&a, &b) in a8.remainder().iter().zip(b8.remainder()) {
        tail += a * b;
    }
    for (a, b) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    total8(sums) + tail
}

/// Sum with eight partial sums.
#[inline]
pub(crate) fn sum<T: Real>(a: &[T]) -> T {
    let mut sums = [T::ZERO; 8];
    let a8 = a.chunks_exact(8);
    let mut tail = T::ZERO;
    for &a in a8.remainder() {
        tail += a;
    }
    for a in a8 {
        for i in 0..8 {
            sums[i] += a[i];
        }
    }
    total8(sums) + tail
}

/// `y += s x`.
#[inline(always)]
pub(crate) fn axpy<T: Real>(s: T, x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += s * x;
    }
}

#[inline(always)]
fn total8<T: Real>(s: [T; 8]) -> T {
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
