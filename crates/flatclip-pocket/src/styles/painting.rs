//! A photo painted over with brush strokes that follow a slowly turning direction, coarse ones first.

use super::photo;
use crate::canvas::Canvas;
use crate::figure::Figure;
use crate::rng::Draws;
use crate::texture;
use crate::trig::sin_cos;
use crate::{SIDE, Scene};

/// Strokes: how many, how long and how wide (times the drawn values).
const LAYERS: [(usize, f32, f32); 2] = [(450, 1.8, 1.7), (1100, 1.0, 1.0)];

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = photo::paint(scene, figure, draws, &photo::PLAIN);
    let model = canvas.pixels.clone();
    canvas.blur(1.5);
    let turn = texture::field(draws, 0.4);
    let start = draws.uniform(0.0, 360.0);
    for (count, longer, wider) in LAYERS {
        for _ in 0..count {
            let side = SIDE as f32;
            let (x, y) = (draws.uniform(0.0, side), draws.uniform(0.0, side));
            let at = y as usize * SIDE + x as usize;
            let (sin, cos) = sin_cos(start + 50.0 * turn[at]);
            let reach = 0.5 * longer * draws.uniform(2.0, 6.0);
            let width = wider * draws.uniform(1.4, 3.0);
            let colour = model[at].map(|channel| channel + 14.0 * draws.normal());
            canvas.stroke(
                (x - reach * cos, y - reach * sin),
                (x + reach * cos, y + reach * sin),
                width,
                colour,
                |_| 0.85,
            );
        }
    }
    // Saturation: every channel moves away from the pixel's grey.
    let factor = draws.uniform(1.0, 1.5);
    for pixel in &mut canvas.pixels {
        let grey = (pixel[0] + pixel[1] + pixel[2]) / 3.0;
        *pixel = pixel.map(|channel| grey + factor * (channel - grey));
    }
    canvas
}
