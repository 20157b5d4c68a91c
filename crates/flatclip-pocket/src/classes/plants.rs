//! Tree, flower, mushroom, cactus, apple, pear, banana.

use crate::figure::{Figure, circle, curve, ellipse, line, mirrored, polygon, rounded};
use crate::rng::Draws;
use crate::trig::sin_cos;

pub(super) fn tree(draws: &mut Draws) -> Figure {
    if draws.chance(0.35) { fir(draws) } else { round_tree(draws) }
}

fn fir(draws: &mut Draws) -> Figure {
    let spread = draws.uniform(0.1, 0.16);
    let trunk = Figure::new().dark(polygon(&[(-0.09, 0.4), (0.09, 0.4), (0.11, 0.96), (-0.11, 0.96)]));
    let crown = trunk.each([2.0f32, 1.0, 0.0], |figure, tier| {
        let (half, top) = (0.36 + spread * tier, -0.95 + 0.37 * tier);
        figure.main(polygon(&[(-half, top + 0.66), (0.0, top), (half, top + 0.66)]))
    });
    crown.second(circle(0.12, -0.2, 0.07)).second(circle(-0.2, 0.2, 0.07))
}

fn round_tree(draws: &mut Draws) -> Figure {
    let trunk =
        [[-0.08, 0.5, -0.1, 0.8, -0.2, 0.96], [0.0, 0.94, 0.1, 0.94, 0.2, 0.96], [0.1, 0.8, 0.08, 0.5, 0.1, 0.0]];
    let figure = Figure::new().dark(curve((-0.1, 0.0), &trunk)).main(circle(0.0, -0.35, 0.42));
    let crown = figure.each(0..5, |figure, place| {
        let (sin, cos) = sin_cos(72.0 * place as f32 + draws.uniform(-20.0, 20.0));
        figure.main(circle(0.36 * cos, -0.36 + 0.28 * sin, draws.uniform(0.27, 0.36)))
    });
    crown.each(0..3, |figure, _| figure.second(circle(draws.uniform(-0.4, 0.4), draws.uniform(-0.65, -0.1), 0.07)))
}

pub(super) fn flower(draws: &mut Draws) -> Figure {
    let petals = 5 + draws.below(4);
    let foot = draws.uniform(-0.12, 0.12);
    let start = draws.uniform(0.0, 72.0);
    Figure::new()
        .dark(line(0.08, &[(0.0, -0.2), (0.4 * foot, 0.4), (foot, 0.95)]))
        .dark(curve((0.03, 0.72), &[[0.15, 0.4, 0.4, 0.38, 0.5, 0.42], [0.45, 0.62, 0.25, 0.74, 0.03, 0.72]]))
        .each(0..petals, |figure, petal| {
            let (sin, cos) = sin_cos(start + 360.0 * petal as f32 / petals as f32);
            figure.main(circle(0.37 * cos, -0.34 + 0.37 * sin, 0.225))
        })
        .second(circle(0.0, -0.34, 0.22))
}

pub(super) fn mushroom(draws: &mut Draws) -> Figure {
    let height = draws.uniform(0.75, 1.0);
    Figure::new()
        .light(mirrored((-0.2, 0.0), &[[-0.16, 0.4, -0.34, 0.66, -0.28, 0.84]]))
        .second(ellipse(0.0, 0.1, 0.8, 0.11))
        .main(mirrored((0.0, -0.8), &[[-0.6, -height, -0.9, -0.3, -0.88, 0.1], [-0.5, 0.02, -0.3, 0.0, 0.0, 0.0]]))
        .each(0..4, |figure, at| {
            let x = -0.48 + 0.32 * at as f32 + draws.uniform(-0.07, 0.07);
            figure.light(circle(x, draws.uniform(-0.45, -0.15), draws.uniform(0.08, 0.13)))
        })
}

pub(super) fn cactus(draws: &mut Draws) -> Figure {
    let (left, right) = (draws.uniform(0.0, 0.3), draws.uniform(-0.1, 0.2));
    Figure::new()
        .main(line(0.22, &[(-0.1, left), (-0.55, left), (-0.55, left - 0.42)]))
        .main(line(0.22, &[(0.1, right), (0.55, right), (0.55, right - 0.46)]))
        .main(rounded(-0.21, -0.86, 0.21, 0.7, 0.21))
        .second(polygon(&[(-0.42, 0.54), (0.42, 0.54), (0.3, 0.96), (-0.3, 0.96)]))
        .each([-0.6, -0.3, 0.0, 0.3], |figure, y| figure.light(line(0.03, &[(-0.06, y), (0.0, y + 0.06), (0.06, y)])))
}

pub(super) fn apple(draws: &mut Draws) -> Figure {
    let stalk = draws.uniform(-0.08, 0.14);
    Figure::new()
        .dark(line(0.08, &[(0.0, -0.42), (stalk, -0.88)]))
        .main(mirrored(
            (0.0, -0.46),
            &[[-0.36, -0.76, -0.98, -0.56, -0.86, 0.12], [-0.76, 0.72, -0.34, 0.98, 0.0, 0.84]],
        ))
        .second(curve((0.08, -0.58), &[[0.18, -0.94, 0.5, -0.98, 0.66, -0.88], [0.56, -0.58, 0.28, -0.5, 0.08, -0.58]]))
        .light(ellipse(-0.46, -0.12, 0.11, 0.19))
}

pub(super) fn pear(draws: &mut Draws) -> Figure {
    let stalk = draws.uniform(-0.08, 0.14);
    let waist = draws.uniform(0.24, 0.32);
    Figure::new()
        .dark(line(0.08, &[(0.0, -0.66), (stalk, -0.98)]))
        .main(mirrored(
            (0.0, -0.74),
            &[[-0.3, -0.76, -waist, -0.3, -0.46, 0.02], [-0.86, 0.42, -0.64, 0.98, 0.0, 0.94]],
        ))
        .second(curve((0.06, -0.74), &[[0.16, -0.98, 0.36, -0.98, 0.46, -0.9], [0.38, -0.68, 0.2, -0.66, 0.06, -0.74]]))
        .light(ellipse(-0.32, 0.4, 0.1, 0.19))
}

pub(super) fn banana(draws: &mut Draws) -> Figure {
    let bend = draws.uniform(0.95, 1.2);
    Figure::new()
        .main(curve(
            (-0.95, -0.34),
            &[
                [-0.55, 0.32, 0.4, 0.4, 0.78, -0.5],
                [0.84, -0.54, 0.94, -0.52, 0.96, -0.44],
                [0.78, bend, -0.66, bend, -0.98, -0.26],
            ],
        ))
        .second(curve((-0.6, 0.2), &[[-0.2, 0.62, 0.4, 0.56, 0.74, -0.1], [0.4, 0.46, -0.2, 0.5, -0.6, 0.2]]))
        .dark(polygon(&[(0.79, -0.46), (0.96, -0.42), (0.99, -0.7), (0.85, -0.7)]))
        .dark(ellipse(-0.95, -0.3, 0.06, 0.07))
}
