//! Seven ways of drawing a scene.

mod cartoon;
mod painting;
mod photo;
mod sketch;

use tiny_skia::Transform;

use crate::classes::CLASSES;
use crate::figure::{Figure, Part};
use crate::rng::{Draws, Purpose};
use crate::trig::sin_cos;
use crate::{Domain, SIDE, Scene};

/// Draws a scene in the style of its domain: `SIDE * SIDE` pixels of red, green and blue bytes.
pub fn draw(scene: &Scene) -> Vec<u8> {
    let figure = placed_figure(scene);
    let draws = &mut Draws::new(scene.world, scene.domain, scene.index, Purpose::Paint, 0);
    let canvas = match scene.domain {
        Domain::Photo => photo::paint(scene, &figure, draws, &photo::PLAIN),
        Domain::Sketch => sketch::paint(&figure, draws),
        Domain::Cartoon => cartoon::paint(scene, &figure, draws),
        Domain::Painting => painting::paint(scene, &figure, draws),
        Domain::Noise => photo::noise(scene, &figure, draws),
        Domain::Rendition => photo::rendition(scene, &figure, draws),
        Domain::Hard => photo::paint(scene, &figure, draws, &photo::CROWDED),
    };
    canvas.bytes()
}

/// The scene's figure in pixels of the image.
fn placed_figure(scene: &Scene) -> Figure {
    let draws = &mut Draws::new(scene.world, scene.domain, scene.index, Purpose::Shape, 0);
    let figure = (CLASSES[scene.class].figure)(draws);
    let transform = placement(scene);
    let parts = figure.parts.into_iter();
    Figure { parts: parts.filter_map(|part| Some(Part { path: part.path.transform(transform)?, ..part })).collect() }
}

/// Aspect and flip first, then shear, rotation, size and position.
fn placement(scene: &Scene) -> Transform {
    let (sin, cos) = sin_cos(scene.rotation);
    let scale = scene.size * SIDE as f32;
    let wide = scale * if scene.flip { -scene.aspect } else { scene.aspect };
    let high = scale / scene.aspect;
    // The columns of rotation * shear * stretch, written out.
    Transform::from_row(
        wide * cos,
        wide * sin,
        high * (scene.shear * cos - sin),
        high * (scene.shear * sin + cos),
        scene.centre.0 * SIDE as f32,
        scene.centre.1 * SIDE as f32,
    )
}
