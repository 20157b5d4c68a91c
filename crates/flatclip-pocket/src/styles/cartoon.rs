//! Flat colours with black outlines, nothing else in the image.

use tiny_skia::{LineCap, LineJoin, Stroke};

use super::photo::palette;
use crate::canvas::{Canvas, Fill};
use crate::figure::Figure;
use crate::rng::Draws;
use crate::{SIDE, Scene};

const INK: [f32; 3] = [16.0, 15.0, 18.0];

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let (above, below) = scene.background.shades(draws, 0.3);
    let mut canvas = Canvas::new(above);
    let horizon = (draws.uniform(0.4, 0.75) * SIDE as f32) as usize;
    canvas.pixels[horizon * SIDE..].fill(below);
    let colours = palette(scene, draws, false);
    let width = draws.uniform(1.8, 2.8);
    let pen = Stroke { width, line_cap: LineCap::Round, line_join: LineJoin::Round, ..Stroke::default() };
    for part in &figure.parts {
        if let Some(outline) = part.path.stroke(&pen, 1.0) {
            canvas.fill(&outline, Fill::Flat(INK), 1.0);
        }
        canvas.fill(&part.path, Fill::Flat(colours(part.role)), 1.0);
        // The inner half of the pen line would be covered by the fill; a thinner line on top restores some of it.
        let thin = Stroke { width: 0.5 * width, ..pen.clone() };
        if let Some(outline) = part.path.stroke(&thin, 1.0) {
            canvas.fill(&outline, Fill::Flat(INK), 1.0);
        }
    }
    canvas
}
