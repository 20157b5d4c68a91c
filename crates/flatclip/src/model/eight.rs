//! A vision transformer in 8 bits: the products of queries, keys and values, of the attention's output, and the first of the
//! MLP. The second of the MLP stays in 16 bits: behind the activation 8 are not enough.
//!
//! A few channels, the same for every image, are many times larger than the others; as outliers they are multiplied in 16 bits.
//! Which they are is found when a model is loaded, by a pass in 16 bits over a few synthetic images: no photos are needed, and
//! the same weights always give the same outliers.

use super::block::Scratch;
use super::vit::Vit;
use crate::rng::Stream;
use flatclip_tensor::ops::attention::Queries;

/// Images of the pass.
const IMAGES: usize = 4;
/// Outliers are one of so many inputs, rounded up to a whole step of the kernels.
const ONE_OF: usize = 48;
const STEP: usize = 16;

impl Vit {
    /// The same tower with these products in 8 bits.
    pub(super) fn to_eight(mut self) -> Self {
        let mut x = self.first_input(self.embed(&synthetic(self.side, IMAGES), None), &self.norms);
        let (starts, mut scratch) = (self.starts(IMAGES, &[]), Scratch::default());
        let mut blocks = std::mem::take(&mut self.blocks);
        for (block, norms) in blocks.iter_mut().zip(&self.norms.blocks) {
            block.to_eight(&mut x, &self.shape(&starts, Queries::All), norms, &mut scratch);
        }
        self.blocks = blocks;
        self
    }
}

/// The channels of rows of `width` whose largest magnitudes are largest, in ascending order.
pub(super) fn outliers(rows: &[f32], width: usize) -> Vec<usize> {
    let mut tops = vec![0.0f32; width];
    for row in rows.chunks_exact(width.max(1)) {
        tops.iter_mut().zip(row).for_each(|(top, x)| *top = top.max(x.abs()));
    }
    let mut order: Vec<usize> = (0..width).collect();
    order.sort_by(|&a, &b| tops[b].total_cmp(&tops[a]).then(a.cmp(&b)));
    order.truncate(width.div_ceil(ONE_OF).next_multiple_of(STEP).min(width));
    order.sort_unstable();
    order
}

/// Normalised pixels of `count` images: squares of many sizes over each other, mostly the same in the three colours.
fn synthetic(side: usize, count: usize) -> Vec<f32> {
    let mut stream = Stream::new(0, &["calibration"]);
    let mut plane = |strength: f64| {
        let mut plane = vec![0.0f32; side * side];
        for cells in (1..).map(|power| 1usize << power).take_while(|&cells| cells <= side) {
            let squares: Vec<f32> = (0..cells * cells).map(|_| stream.uniform(-strength, strength) as f32).collect();
            for (at, pixel) in plane.iter_mut().enumerate() {
                *pixel += squares[at / side * cells / side * cells + at % side * cells / side];
            }
        }
        plane
    };
    let mut pixels = Vec::with_capacity(count * 3 * side * side);
    for _ in 0..count {
        let common = plane(0.7);
        for _ in 0..3 {
            pixels.extend(plane(0.2).iter().zip(&common).map(|(own, common)| (own + common).clamp(-1.8, 2.1)));
        }
    }
    pixels
}
