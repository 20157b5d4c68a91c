//! Vectors of `f32` behind one small trait, so that epilogues, norms and softmax are written once.
//!
//! A vector value proves that the machine has its instructions: the first one is made from [`Available`] or by an `unsafe`
//! constructor, and all safe functions here take a vector. For speed, callers are compiled for the instruction set
//! (`#[target_feature]`), and all of this is inlined into them.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
use std::marker::PhantomData;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// A proof that this machine has the instructions of `L`.
pub(crate) struct Available<L>(PhantomData<L>);

impl<L> Clone for Available<L> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<L> Copy for Available<L> {}

impl<L: Lanes> Available<L> {
    /// # Safety
    /// The machine has the instructions of `L`.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    pub(crate) unsafe fn detected() -> Self {
        Self(PhantomData)
    }
    /// `x` in every lane.
    #[inline(always)]
    pub(crate) fn splat(self, x: f32) -> L {
        // SAFETY: `self` proves the instructions.
        unsafe { L::splat(x) }
    }
    /// # Safety
    /// `WIDTH` values can be read at `from`.
    #[inline(always)]
    pub(crate) unsafe fn load(self, from: *const f32) -> L {
        // SAFETY: `self` proves the instructions, the caller the memory.
        unsafe { L::load(from) }
    }
}

impl Available<f32> {
    /// One lane needs no instructions that a machine could lack.
    #[inline(always)]
    pub(crate) fn plain() -> Self {
        Self(PhantomData)
    }
}

/// A vector of `WIDTH` values.
pub(crate) trait Lanes: Copy {
    const WIDTH: usize;
    /// `x` in every lane.
    ///
    /// # Safety
    /// The machine has the instructions of these lanes.
    unsafe fn splat(x: f32) -> Self;
    /// # Safety
    /// The machine has the instructions of these lanes, and `WIDTH` values can be read at `from`.
    unsafe fn load(from: *const f32) -> Self;
    /// # Safety
    /// `WIDTH` values can be written at `to`.
    unsafe fn store(self, to: *mut f32);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// `self * factor + term`.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// To the nearest whole number.
    fn round(self) -> Self;
    /// `2^self` for whole numbers in `-126..=128` (128 gives infinity).
    fn exp2_whole(self) -> Self;
    fn abs(self) -> Self;
    /// `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// Per lane: `if self < limit { below } else { other }`.
    fn if_below(self, limit: Self, below: Self, other: Self) -> Self;

    /// A new vector with `x` in every lane.
    #[inline(always)]
    fn like(self, x: f32) -> Self {
        // SAFETY: `self` was made, so the machine has the instructions.
        unsafe { Self::splat(x) }
    }
    /// The lanes in an array; those beyond `WIDTH` are zero.
    #[inline(always)]
    fn to_array(self) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        // SAFETY: no vector has more than 16 lanes.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes
    }
    /// The sum of the lanes, in pairs.
    #[inline(always)]
    fn total(self) -> f32 {
        let mut lanes = self.to_array();
        let mut half = Self::WIDTH / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        self.to_array()[..Self::WIDTH].iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// One method per line: the operations differ, the shape does not.
macro_rules! lane_ops {
    ($($name:ident($x:ident $(, $arg:ident)*) = $value:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            let $x = self;
            $value
        }
    )*};
}

impl Lanes for f32 {
    const WIDTH: usize = 1;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        x
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        unsafe { *from }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { *to = self }
    }
    lane_ops! {
        add(x, other) = x + other;
        sub(x, other) = x - other;
        mul(x, other) = x * other;
        div(x, other) = x / other;
        min(x, other) = f32::min(x, other);
        max(x, other) = f32::max(x, other);
        // Not fused: without FMA instructions the fused form is a slow library call.
        mul_add(x, factor, term) = x * factor + term;
        round(x) = x.round_ties_even();
        exp2_whole(x) = f32::from_bits(((x as i32 + 127) as u32) << 23);
        abs(x) = f32::abs(x);
        copysign(x, sign) = f32::copysign(x, sign);
        if_below(x, limit, below, other) = if x < limit { below } else { other };
    }
}
