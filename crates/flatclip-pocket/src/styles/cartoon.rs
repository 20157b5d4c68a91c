//! Flat colours with black outlines, nothing else in the image.

use super::photo::{landscape, palette};
use crate::Scene;
use crate::canvas::{Canvas, Fill};
use crate::figure::{Figure, stroke};
use crate::rng::Draws;

const INK: [f32; 3] = [16.0, 15.0, 18.0];

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = landscape(scene, draws, 0.3, 0.4);
    let colours = palette(scene, draws, false);
    let width = draws.uniform(1.8, 2.8);
    for part in &figure.parts {
        let outline = |canvas: &mut Canvas, width| {
            stroke(&part.path, width, 1.0).iter().for_each(|path| canvas.fill(path, Fill::Flat(INK), 1.0));
        };
        outline(&mut canvas, width);
        canvas.fill(&part.path, Fill::Flat(colours(part.role)), 1.0);
        // The fill covers the inner half of the pen line; a thinner line on top restores some of it.
        outline(&mut canvas, 0.5 * width);
    }
    canvas
}
