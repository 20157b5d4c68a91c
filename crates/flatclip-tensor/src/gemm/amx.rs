//! Products on AMX tiles: bfloat16 inputs, `f32` sums. The blocking is generic over [`TileUnit`], which has two
//! implementations: the instructions, and an emulation with exactly the same arithmetic, which runs on every machine for tests.

mod emulated;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod hardware;

use super::driver::{Kernel, Operands, Tile, convert_row};
use super::kernels::Portable;
use super::panels::{PANEL, bf16_bits};
use crate::simd::Lanes;
pub(super) use emulated::Emulated;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) use hardware::{Hardware, Permitted, permitted};
use std::marker::PhantomData;

const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile register.
const TILE_ROW: usize = 64;
/// bfloat16 values of a tile register.
const TILE_VALUES: usize = TILE_ROWS * TILE_ROW / 2;

/// Eight tile registers of 16 rows x 64 bytes, and their four operations.
pub(super) trait TileUnit {
    /// Configures the registers on this thread; dropping the unit releases them.
    ///
    /// # Safety
    /// The machine and the process can use the registers, and no other unit that was started on this thread lives.
    unsafe fn start() -> Self;
    fn zero<const T: usize>(&mut self);
    /// # Safety
    /// 1024 bytes can be read at `from`.
    unsafe fn load<const T: usize>(&mut self, from: *const u16);
    /// `sum += a · b`, where `a` holds rows of 32 values and `b` rows of 16 pairs.
    fn dot<const SUM: usize, const A: usize, const B: usize>(&mut self);
    /// # Safety
    /// 16 rows of 16 values, `stride` values apart, can be written at `to`.
    unsafe fn store<const T: usize>(&mut self, to: *mut f32, stride: usize);
}

/// 32 x 32 sums in four tiles, two tiles of each side: every load is used twice.
pub(super) struct TileKernel<U, L>(U, PhantomData<L>);

impl<U: TileUnit, L: Lanes> Kernel for TileKernel<U, L> {
    type Element = u16;
    type Lanes = L;
    const ROWS: usize = 2 * TILE_ROWS;
    const PANELS: usize = 2;
    const BLOCK: usize = 512;

    #[inline(always)]
    unsafe fn start() -> Self {
        // SAFETY: passed on unchanged.
        Self(unsafe { U::start() }, PhantomData)
    }
    #[inline(always)]
    unsafe fn pack_row(from: &[f32], tile: &mut [u16], r: usize) {
        convert_row::<Self>(from, tile, r, bf16_bits);
    }
    #[inline(always)]
    unsafe fn tile(&mut self, of: &Operands<u16>, tile: &mut Tile) {
        let (unit, a, b) = (&mut self.0, of.a, of.b);
        unit.zero::<0>();
        unit.zero::<1>();
        unit.zero::<2>();
        unit.zero::<3>();
        for step in 0..of.depth / (TILE_VALUES / TILE_ROWS) {
            // SAFETY: the trait promises `depth / 32` steps of two tiles of `a` and one of each panel.
            unsafe {
                unit.load::<4>(a.add(step * 2 * TILE_VALUES));
                unit.load::<6>(b[0].add(step * TILE_VALUES));
                unit.dot::<0, 4, 6>();
                unit.load::<7>(b[1].add(step * TILE_VALUES));
                unit.dot::<1, 4, 7>();
                unit.load::<5>(a.add(step * 2 * TILE_VALUES + TILE_VALUES));
                unit.dot::<2, 5, 6>();
                unit.dot::<3, 5, 7>();
            }
        }
        let (to, stride) = (tile.0.as_mut_ptr(), 2 * PANEL);
        // SAFETY: the tile has 32 rows of 32 values.
        unsafe {
            unit.store::<0>(to, stride);
            unit.store::<1>(to.add(PANEL), stride);
            unit.store::<2>(to.add(TILE_ROWS * stride), stride);
            unit.store::<3>(to.add(TILE_ROWS * stride + PANEL), stride);
        }
    }
}

// SAFETY: the emulation and single lanes are plain Rust.
unsafe impl Portable for TileKernel<Emulated, f32> {}

/// Whether tiles compute right results on this machine.
#[cfg(target_arch = "x86_64")]
pub(crate) fn works() -> bool {
    #[cfg(target_os = "linux")]
    return hardware::works();
    // Tiles need the kernel's permission, which only the Linux code requests.
    #[cfg(not(target_os = "linux"))]
    false
}

/// Has no values: tiles cannot be used on this target.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[derive(Clone, Copy)]
pub(super) enum Permitted {}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) fn permitted() -> Option<Permitted> {
    None
}
