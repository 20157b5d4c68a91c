//! A bad camera: blurred, of low contrast, grainy.

use super::photo;
use crate::Scene;
use crate::canvas::Canvas;
use crate::figure::Figure;
use crate::rng::Draws;

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = photo::compose(scene, figure, draws, &photo::PLAIN);
    photo::develop(&mut canvas, draws);
    canvas.blur(draws.uniform(0.4, 1.5));
    canvas.tone(draws.uniform(0.45, 0.9), 18.0 * draws.normal(), [1.0; 3]);
    let sigma = draws.uniform(15.0, 42.0);
    canvas.grain(draws, sigma);
    canvas
}
