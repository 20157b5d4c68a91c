//! The epilogue of a tile: sum over passes, bias, activation.

use super::Activation;
use crate::math::{self, Unary};
use crate::simd::Lanes;

/// Operations on the sums of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epilogue<'a> {
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) activation: Activation,
    /// Add to what `out` holds (a residual stream) instead of overwriting it.
    pub(crate) add: bool,
}

/// The part of the result that a tile is written to.
pub(crate) struct Target {
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Adds the tile (rows of `width`) to its place in `out`, finishing with bias and activation in the last pass over k.
///
/// # Safety
/// The machine has the instructions of `L`; `target` lies inside one matrix that nobody else writes there; `tile` holds `target.rows` rows of
/// `width >= target.columns` values; the bias has `target.columns` values from `column` on.
#[inline(always)]
pub(crate) unsafe fn apply<L: Lanes>(
    tile: &[f32],
    width: usize,
    target: Target,
    column: usize,
    epilogue: Epilogue<'_>,
    first: bool,
    last: bool,
) {
    let accumulate = epilogue.add || !first;
    let bias = epilogue.bias.filter(|_| last).map(|bias| bias[column..column + target.columns].as_ptr());
    let activation = if last { epilogue.activation } else { Activation::Identity };
    // SAFETY: passed on unchanged.
    unsafe {
        match activation {
            Activation::Identity => rows::<L, math::Identity>(tile, width, target, bias, accumulate),
            Activation::Relu => rows::<L, math::Relu>(tile, width, target, bias, accumulate),
            Activation::QuickGelu => rows::<L, math::QuickGelu>(tile, width, target, bias, accumulate),
            Activation::Gelu => rows::<L, math::Gelu>(tile, width, target, bias, accumulate),
            Activation::GeluTanh => rows::<L, math::GeluTanh>(tile, width, target, bias, accumulate),
        }
    }
}

/// # Safety
/// As [`apply`].
#[inline(always)]
unsafe fn rows<L: Lanes, A: Unary>(
    tile: &[f32],
    width: usize,
    target: Target,
    bias: Option<*const f32>,
    accumulate: bool,
) {
    debug_assert!(tile.len() >= target.rows * width && L::WIDTH <= 16);
    let whole = target.columns - target.columns % L::WIDTH;
    for row in 0..target.rows {
        // SAFETY: inside the tile and the target.
        let (from, to) = unsafe { (tile.as_ptr().add(row * width), target.out.add(row * target.stride)) };
        for column in (0..whole).step_by(L::WIDTH) {
            // SAFETY: a whole vector is left in each of the rows.
            unsafe {
                let bias = bias.map(|bias| bias.add(column));
                finish::<L, A>(from.add(column), to.add(column), bias, accumulate);
            }
        }
        if whole < target.columns {
            // The incomplete vector at the end is copied to a full one.
            let left = target.columns - whole;
            let (mut sums, mut old, mut edge) = ([0.0f32; 16], [0.0f32; 16], [0.0f32; 16]);
            // SAFETY: `left` values remain in each row, and vectors have at most 16 lanes.
            unsafe {
                std::ptr::copy_nonoverlapping(from.add(whole), sums.as_mut_ptr(), left);
                std::ptr::copy_nonoverlapping(to.add(whole), old.as_mut_ptr(), left);
                if let Some(bias) = bias {
                    std::ptr::copy_nonoverlapping(bias.add(whole), edge.as_mut_ptr(), left);
                }
                finish::<L, A>(sums.as_ptr(), old.as_mut_ptr(), bias.map(|_| edge.as_ptr()), accumulate);
                std::ptr::copy_nonoverlapping(old.as_ptr(), to.add(whole), left);
            }
        }
    }
}

/// # Safety
/// The machine has the instructions of `L`. A vector can be read at `from`, at `bias`, and read and written at `to`.
#[inline(always)]
unsafe fn finish<L: Lanes, A: Unary>(from: *const f32, to: *mut f32, bias: Option<*const f32>, accumulate: bool) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut sum = L::load(from);
        if accumulate {
            sum = sum.add(L::load(to));
        }
        if let Some(bias) = bias {
            sum = sum.add(L::load(bias));
        }
        A::of(sum).store(to);
    }
}
