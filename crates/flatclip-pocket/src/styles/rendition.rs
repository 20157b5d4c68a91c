//! Any colours on any part, the figure turned and stretched (that is in the scene), half of the images posterised.

use super::photo::{self, Setting};
use crate::Scene;
use crate::canvas::Canvas;
use crate::figure::Figure;
use crate::rng::Draws;

const ODD: Setting = Setting { clutter: (2, 6), largest: 0.2, hidden: 0.0, odd_colours: true };

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = photo::compose(scene, figure, draws, &ODD);
    photo::develop(&mut canvas, draws);
    if draws.chance(0.5) {
        let steps = (3 + draws.below(3)) as f32;
        for channel in canvas.pixels.iter_mut().flatten() {
            *channel = (channel.clamp(0.0, 255.0) / 255.0 * steps + 0.5).floor() / steps * 255.0;
        }
    }
    canvas
}
