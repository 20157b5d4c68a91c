//! The gate of SwiGLU: `silu(g) x` of two halves.

use crate::isa::per_isa;
use crate::math;
use crate::simd::{Available, Lanes};
use crate::threads::for_each_part;

/// Rows per parallel task.
const BLOCK: usize = 16;

/// `out[rows, width] = silu(g) x` of rows `[g | x]` of `2 width` values.
///
/// # Panics
/// If the sizes do not agree.
pub fn gate(halves: &[f32], width: usize, out: &mut [f32]) {
    assert!(halves.len() == 2 * out.len() && out.len().is_multiple_of(width.max(1)));
    for_each_part(out, BLOCK * width.max(1), |at, out| {
        gate_part(&halves[2 * at..2 * (at + out.len())], width, out);
    });
}

per_isa! { fn gate_part(halves: &[f32], width: usize, out: &mut [f32]) = gate_lanes; }

#[inline(always)]
fn gate_lanes<L: Lanes>(lanes: Available<L>, halves: &[f32], width: usize, out: &mut [f32]) {
    let whole = width - width % L::WIDTH;
    for (row, out) in halves.chunks_exact(2 * width.max(1)).zip(out.chunks_exact_mut(width.max(1))) {
        let (g, x) = row.split_at(width);
        for i in (0..whole).step_by(L::WIDTH) {
            // SAFETY: a whole vector from `i` on in each row.
            unsafe {
                let gated = math::silu(lanes.load(g.as_ptr().add(i))).mul(lanes.load(x.as_ptr().add(i)));
                gated.store(out.as_mut_ptr().add(i));
            }
        }
        let mut padded = [0.0; 16];
        padded[..width - whole].copy_from_slice(&g[whole..]);
        // SAFETY: no vector has more than 16 lanes.
        let gates = math::silu(unsafe { lanes.load(padded.as_ptr()) }).to_array();
        for (i, gate) in (whole..width).zip(gates) {
            out[i] = gate * x[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::values;

    #[test]
    fn vectors_agree_with_the_definition_and_with_the_plain_form() {
        for (rows, width) in [(1, 1), (3, 5), (40, 16), (33, 170)] {
            let halves: Vec<f32> = values(3, rows * 2 * width).iter().map(|&x| 6.0 * x as f32).collect();
            let (mut out, mut plain) = (vec![f32::NAN; rows * width], vec![f32::NAN; rows * width]);
            gate(&halves, width, &mut out);
            gate_lanes(Available::plain(), &halves, width, &mut plain);
            for (i, (found, plain)) in out.iter().zip(&plain).enumerate() {
                let at = i / width * 2 * width + i % width;
                let (g, x) = (f64::from(halves[at]), f64::from(halves[at + width]));
                let expected = g / (1.0 + (-g).exp()) * x;
                for found in [found, plain] {
                    assert!(
                        (f64::from(*found) - expected).abs() < 1e-6 * expected.abs().max(1.0),
                        "{found} {expected}"
                    );
                }
            }
        }
    }
}
