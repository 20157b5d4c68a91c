//! The source style: a shaded figure with its shadow, on a textured background among clutter, seen by a camera; and the
//! styles that are photos of another kind.

use tiny_skia::Transform;

use crate::canvas::{Canvas, Fill};
use crate::colour::Rgb;
use crate::figure::{Figure, Outline, Role, circle, polygon, rect};
use crate::rng::Draws;
use crate::texture;
use crate::trig::sin_cos;
use crate::{Colour, SIDE, Scene};

/// What differs between the styles that start from a photo.
pub(super) struct Setting {
    /// Pieces of clutter, from and up to.
    pub(super) clutter: (usize, usize),
    /// Largest piece of clutter, as a fraction of the side.
    pub(super) largest: f32,
    /// Probability that something covers part of the figure.
    pub(super) hidden: f32,
    /// Dark and light parts take any colour.
    pub(super) odd_colours: bool,
}

/// An ordinary photo.
pub(super) const PLAIN: Setting = Setting { clutter: (2, 7), largest: 0.2, hidden: 0.2, odd_colours: false };

/// Much clutter, and a figure that is partly hidden. That it is small and anywhere comes from the scene.
pub(super) const CROWDED: Setting = Setting { clutter: (6, 12), largest: 0.15, hidden: 1.0, odd_colours: false };

const ODD: Setting = Setting { clutter: (2, 6), largest: 0.2, hidden: 0.0, odd_colours: true };

pub(super) fn paint(scene: &Scene, figure: &Figure, draws: &mut Draws, setting: &Setting) -> Canvas {
    let mut canvas = background(scene, draws);
    let (few, many) = setting.clutter;
    for _ in 0..few + draws.below(many - few + 1) {
        clutter(&mut canvas, draws, setting.largest);
    }
    let (x, y, half) = on_image(scene);
    canvas.shadow(x + 0.05 * half, y + 0.95 * half, 0.8 * half, 0.2 * half, 0.6);
    shaded(&mut canvas, scene, figure, draws, setting.odd_colours);
    if draws.chance(setting.hidden) {
        occlude(&mut canvas, scene, draws);
    }
    // The camera: uneven exposure, contrast, colour cast, sensor noise.
    let weight = draws.uniform(1.0, 6.0);
    canvas.add(&texture::field(draws, 0.6), [weight; 3]);
    let cast = std::array::from_fn(|_| 1.0 + 0.045 * draws.normal());
    canvas.tone(draws.uniform(0.8, 1.12), 9.0 * draws.normal(), cast);
    let sigma = draws.uniform(1.0, 4.5);
    canvas.grain(draws, sigma);
    canvas
}

/// A bad camera: blurred, of low contrast, grainy.
pub(super) fn noise(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = paint(scene, figure, draws, &PLAIN);
    canvas.blur(draws.uniform(0.4, 1.5));
    canvas.tone(draws.uniform(0.45, 0.9), 18.0 * draws.normal(), [1.0; 3]);
    let sigma = draws.uniform(15.0, 42.0);
    canvas.grain(draws, sigma);
    canvas
}

/// Any colours on any part, the figure turned and stretched (that is in the scene), half of the images posterised.
pub(super) fn rendition(scene: &Scene, figure: &Figure, draws: &mut Draws) -> Canvas {
    let mut canvas = paint(scene, figure, draws, &ODD);
    if draws.chance(0.5) {
        let steps = (3 + draws.below(3)) as f32;
        for channel in canvas.pixels.iter_mut().flatten() {
            *channel = (channel.clamp(0.0, 255.0) / 255.0 * steps + 0.5).floor() / steps * 255.0;
        }
    }
    canvas
}

fn on_image(scene: &Scene) -> (f32, f32, f32) {
    let side = SIDE as f32;
    (scene.centre.0 * side, scene.centre.1 * side, scene.size * side)
}

/// Two shades of the background; the horizon lies anywhere below `highest`.
pub(super) fn landscape(scene: &Scene, draws: &mut Draws, spread: f32, highest: f32) -> Canvas {
    let (above, below) = scene.background.shades(draws, spread);
    let mut canvas = Canvas::new(above);
    let horizon = (draws.uniform(highest, 0.75) * SIDE as f32) as usize;
    canvas.pixels[horizon * SIDE..].fill(below);
    canvas
}

fn background(scene: &Scene, draws: &mut Draws) -> Canvas {
    let mut canvas = landscape(scene, draws, 1.0, 0.38);
    let strength = draws.uniform(5.0, 17.0);
    canvas.add(&texture::field(draws, 0.55), [strength; 3]);
    let tint = std::array::from_fn(|_| 5.0 * draws.normal());
    canvas.add(&texture::field(draws, 0.4), tint);
    let (across, down) = (0.14 * draws.normal(), 0.14 * draws.normal());
    for (at, pixel) in canvas.pixels.iter_mut().enumerate() {
        let centred = |v: usize| (2 * v + 1) as f32 / SIDE as f32 - 1.0;
        let light = 1.0 + across * centred(at % SIDE) + down * centred(at / SIDE);
        pixel.iter_mut().for_each(|channel| *channel *= light);
    }
    canvas
}

/// Colours of the four roles for this image.
pub(super) fn palette(scene: &Scene, draws: &mut Draws, odd_colours: bool) -> impl Fn(Role) -> Rgb + use<> {
    let main = scene.colour.shade(draws, 1.0);
    let second = scene.second_colour.shade(draws, 1.0);
    let mut dark = crate::colour::from_hsv(0.62, 0.2, draws.uniform(0.08, 0.2));
    let mut light = crate::colour::from_hsv(0.12, 0.08, draws.uniform(0.86, 1.0));
    if odd_colours {
        dark = draws.pick(&Colour::ALL).shade(draws, 1.0).map(|channel| 0.6 * channel);
        light = draws.pick(&Colour::ALL).shade(draws, 1.0);
    }
    move |role| match role {
        Role::Main => main,
        Role::Second => second,
        Role::Dark => dark,
        Role::Light => light,
    }
}

fn shaded(canvas: &mut Canvas, scene: &Scene, figure: &Figure, draws: &mut Draws, odd_colours: bool) {
    let colours = palette(scene, draws, odd_colours);
    // Light mostly from above.
    let (sin, cos) = sin_cos(draws.uniform(20.0, 160.0));
    for part in &figure.parts {
        let depth = draws.uniform(0.2, 0.42);
        let colour = colours(part.role);
        let from = colour.map(|channel| channel * (1.0 + 0.6 * depth) + 10.0);
        let to = colour.map(|channel| channel * (1.0 - depth));
        canvas.fill(&part.path, Fill::Gradient { from, to, direction: (cos, sin) }, 1.0);
    }
}

fn clutter(canvas: &mut Canvas, draws: &mut Draws, largest: f32) {
    let side = SIDE as f32;
    let (x, y) = (draws.uniform(0.0, side), draws.uniform(0.0, side));
    let half = draws.uniform(0.03, largest) * side;
    let colour = draws.pick(&Colour::ALL).shade(draws, 1.0);
    let fill = Fill::Gradient {
        from: colour.map(|channel| 1.15 * channel),
        to: colour.map(|channel| 0.62 * channel),
        direction: (0.7, 0.7),
    };
    if draws.chance(0.25) {
        let far = (draws.uniform(0.0, side), draws.uniform(0.0, side));
        canvas.stroke((x, y), far, draws.uniform(1.0, 3.5), colour, |_| 0.9);
        return;
    }
    let shape = clutter_shape(draws);
    let turn = sin_cos(draws.uniform(-45.0, 45.0));
    let place = placement(turn, half, half * draws.uniform(0.35, 1.0), (x, y));
    if let Some(path) = shape.and_then(|path| path.transform(place)) {
        canvas.fill(&path, fill, 0.95);
    }
}

/// A disc, a box, or a shard with random corners, in the square from -1 to 1.
fn clutter_shape(draws: &mut Draws) -> Outline {
    match draws.below(3) {
        0 => circle(0.0, 0.0, 1.0),
        1 => rect(-1.0, -1.0, 1.0, 1.0),
        _ => {
            let corners: [(f32, f32); 5] = std::array::from_fn(|corner| {
                let (sin, cos) = sin_cos(72.0 * corner as f32 + draws.uniform(-30.0, 30.0));
                let radius = draws.uniform(0.5, 1.15);
                (radius * cos, radius * sin)
            });
            polygon(&corners)
        }
    }
}

/// Stretches the square from -1 to 1, turns it, and moves it to a place.
fn placement((sin, cos): (f32, f32), wide: f32, high: f32, (x, y): (f32, f32)) -> Transform {
    Transform::from_row(wide * cos, wide * sin, -high * sin, high * cos, x, y)
}

/// A bar in front of the figure's edge.
fn occlude(canvas: &mut Canvas, scene: &Scene, draws: &mut Draws) {
    let (x, y, half) = on_image(scene);
    let colour = draws.pick(&Colour::ALL).shade(draws, 1.0);
    let (sin, cos) = sin_cos(draws.uniform(0.0, 360.0));
    let away = half * draws.uniform(0.55, 1.0);
    let centre = (x + away * cos, y + away * sin);
    let (long, thick) = (half * draws.uniform(0.35, 0.85), half * draws.uniform(0.13, 0.28));
    let place = placement(sin_cos(draws.uniform(0.0, 180.0)), long, thick, centre);
    if let Some(path) = rect(-1.0, -1.0, 1.0, 1.0).and_then(|path| path.transform(place)) {
        canvas.fill(&path, Fill::Flat(colour), 1.0);
    }
}
