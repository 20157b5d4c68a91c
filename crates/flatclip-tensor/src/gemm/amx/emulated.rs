//! Emulation of the tile registers in memory.

use super::TileUnit;

/// Tile registers in memory, with the arithmetic of `tdpbf16ps`: per element two chains of fused multiply-adds, one over
/// the even and one over the odd k, from zero; their sum is added to the register. Subnormals count as zero throughout.
pub(in crate::gemm) struct Emulated {
    tiles: Box<[[u32; 256]; 8]>,
}

impl TileUnit for Emulated {
    unsafe fn start() -> Self {
        Self { tiles: Box::new([[0; 256]; 8]) }
    }
    fn zero<const T: usize>(&mut self) {
        self.tiles[T] = [0; 256];
    }
    unsafe fn load<const T: usize>(&mut self, from: *const u16) {
        // SAFETY: promised by the caller; `u16` may lie at any even address.
        self.tiles[T] = unsafe { from.cast::<[u32; 256]>().read_unaligned() };
    }
    fn dot<const SUM: usize, const A: usize, const B: usize>(&mut self) {
        let (a, b) = (self.tiles[A], self.tiles[B]);
        for row in 0..16 {
            for column in 0..16 {
                let (mut even, mut odd) = (0.0f32, 0.0f32);
                for k in 0..16 {
                    let (x, y) = (a[row * 16 + k], b[k * 16 + column]);
                    even = flush(flush(f32::from_bits(x << 16)).mul_add(flush(f32::from_bits(y << 16)), even));
                    odd = flush(flush(high(x)).mul_add(flush(high(y)), odd));
                }
                let sum = &mut self.tiles[SUM][row * 16 + column];
                *sum = flush(flush(f32::from_bits(*sum)) + flush(even + odd)).to_bits();
            }
        }
    }
    unsafe fn store<const T: usize>(&mut self, to: *mut f32, stride: usize) {
        for (row, values) in self.tiles[T].chunks_exact(16).enumerate() {
            for (column, &bits) in values.iter().enumerate() {
                // SAFETY: promised by the caller.
                unsafe { *to.add(row * stride + column) = f32::from_bits(bits) };
            }
        }
    }
}

/// The second value of a pair: its bits are the upper half.
fn high(pair: u32) -> f32 {
    f32::from_bits(pair & 0xffff_0000)
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}
