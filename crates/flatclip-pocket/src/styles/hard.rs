//! Photos in which the figure is small, anywhere, among much clutter and partly hidden. Its size and place come from
//! the scene.

use super::photo::{self, Setting};
use crate::Scene;
use crate::canvas::Canvas;
use crate::figure::Figure;
use crate::rng::Draws;

const CROWDED: Setting = Setting { clutter: (6, 12), largest: 0.15, hidden: 1.0, odd_colours: false };

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = photo::compose(scene, figure, draws, &CROWDED);
    photo::develop(&mut canvas, draws);
    canvas
}
