//! Rotary position embedding: rotates pairs of neighbouring channels of queries and keys by an angle per token.

use crate::isa::per_isa;
use crate::simd::{Available, Lanes};
use crate::threads::for_each_part;

/// Rows per parallel task.
const BLOCK: usize = 32;

/// Cosine and sine of every token of a sequence and every pair of channels of a head.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// `[tokens, size]`: `cos, sin` of each of the `size / 2` pairs.
    table: Vec<f32>,
    /// Channels of a head.
    size: usize,
}

impl Rotation {
    /// From the angles `[tokens, size / 2]`.
    ///
    /// # Panics
    /// If the number of angles is not a multiple of `size / 2`, or a head has no pairs: both are bugs of the caller.
    pub fn new(angles: &[f64], size: usize) -> Self {
        assert!(size >= 2 && size.is_multiple_of(2) && angles.len().is_multiple_of(size / 2));
        let table = angles.iter().flat_map(|angle| [angle.cos() as f32, angle.sin() as f32]).collect();
        Self { table, size }
    }

    /// Rotates the queries and keys of consecutive full sequences: rows `[q | k | v]` of `3 width` values.
    ///
    /// # Panics
    /// If the rows are not whole sequences of this rotation.
    pub fn apply(&self, qkv: &mut [f32], width: usize) {
        assert!(width.is_multiple_of(self.size) && qkv.len().is_multiple_of(3 * width * self.tokens()));
        for_each_part(qkv, BLOCK * 3 * width, |at, rows| rotate_part(rows, width, self, at / (3 * width)));
    }

    fn tokens(&self) -> usize {
        self.table.len() / self.size
    }
}

per_isa! { fn rotate_part(rows: &mut [f32], width: usize, rotation: &Rotation, first: usize) = rotate_rows; }

/// Plain loops; `L` only selects the instruction set that the compiler may use.
#[inline(always)]
fn rotate_rows<L: Lanes>(_: Available<L>, rows: &mut [f32], width: usize, rotation: &Rotation, first: usize) {
    for (i, row) in rows.chunks_exact_mut(3 * width).enumerate() {
        let token = (first + i) % rotation.tokens();
        let angles = &rotation.table[token * rotation.size..][..rotation.size];
        for head in row[..2 * width].chunks_exact_mut(rotation.size) {
            for (pair, angle) in head.chunks_exact_mut(2).zip(angles.chunks_exact(2)) {
                let (x, y) = (pair[0], pair[1]);
                pair[0] = x * angle[0] - y * angle[1];
                pair[1] = y * angle[0] + x * angle[1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::values;

    #[test]
    fn pairs_of_queries_and_keys_turn_by_their_angle_and_values_stay() {
        let (width, size, tokens) = (12, 6, 5);
        let angles = values(1, tokens * size / 2);
        let rows: Vec<f32> = values(2, 14 * tokens * 3 * width).iter().map(|&x| x as f32).collect();
        let mut turned = rows.clone();
        Rotation::new(&angles, size).apply(&mut turned, width);
        for (i, (before, after)) in rows.chunks(3 * width).zip(turned.chunks(3 * width)).enumerate() {
            assert_eq!(before[2 * width..], after[2 * width..]);
            for channel in (0..2 * width).step_by(2) {
                let angle = angles[i % tokens * size / 2 + channel % size / 2];
                let (x, y) = (f64::from(before[channel]), f64::from(before[channel + 1]));
                let expected = [x * angle.cos() - y * angle.sin(), y * angle.cos() + x * angle.sin()];
                for (found, expected) in after[channel..channel + 2].iter().zip(expected) {
                    assert!((f64::from(*found) - expected).abs() < 1e-6, "row {i}, channel {channel}");
                }
            }
        }
    }

    #[test]
    fn instruction_sets_agree_to_the_bit() {
        let (width, tokens) = (64, 7);
        let rotation = Rotation::new(&values(1, tokens * 16), 32);
        let rows: Vec<f32> = values(2, tokens * 3 * width).iter().map(|&x| x as f32).collect();
        let (mut plain, mut vector) = (rows.clone(), rows);
        rotate_rows(Available::plain(), &mut plain, width, &rotation, 0);
        rotate_part(&mut vector, width, &rotation, 0);
        assert_eq!(plain, vector);
    }
}
