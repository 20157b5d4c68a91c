//! Fractal noise: clouds, dirt and unevenness, drawn afresh for every image.

use crate::SIDE;
use crate::rng::Draws;

/// A field of mean about 0 and standard deviation 1 over the image. A larger `roughness` (0.3 to 0.8) gives more fine
/// detail.
pub(crate) fn field(draws: &mut Draws, roughness: f32) -> Vec<f32> {
    let mut sum = vec![0.0f32; SIDE * SIDE];
    let mut weight = 1.0;
    for cells in [3, 6, 12, 24, 48] {
        octave(&mut sum, draws, cells, weight);
        weight *= roughness;
    }
    let count = sum.len() as f32;
    let mean = sum.iter().sum::<f32>() / count;
    let variance = sum.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / count;
    let scale = 1.0 / variance.max(1e-6).sqrt();
    sum.iter_mut().for_each(|v| *v = (*v - mean) * scale);
    sum
}

/// Adds smoothly interpolated random values on a grid of `cells` by `cells`.
fn octave(sum: &mut [f32], draws: &mut Draws, cells: usize, weight: f32) {
    let nodes = cells + 1;
    let grid: Vec<f32> = (0..nodes * nodes).map(|_| weight * draws.normal()).collect();
    let place = |pixel: usize| {
        let at = (pixel as f32 + 0.5) * cells as f32 / SIDE as f32;
        let cell = (at as usize).min(cells - 1);
        let t = at - cell as f32;
        (cell, t * t * (3.0 - 2.0 * t))
    };
    let columns: Vec<(usize, f32)> = (0..SIDE).map(place).collect();
    let mut across = vec![0.0f32; nodes];
    for (y, row) in sum.chunks_exact_mut(SIDE).enumerate() {
        let (cell, t) = place(y);
        for (at, value) in across.iter_mut().enumerate() {
            let (above, below) = (grid[cell * nodes + at], grid[(cell + 1) * nodes + at]);
            *value = above + (below - above) * t;
        }
        for (value, &(cell, t)) in row.iter_mut().zip(&columns) {
            *value += across[cell] + (across[cell + 1] - across[cell]) * t;
        }
    }
}
