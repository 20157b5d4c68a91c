//! Clock, umbrella, key, hammer, guitar, shoe.

use crate::figure::{Figure, arc, circle, curve, ellipse, line, polygon, rect, ring, rounded};
use crate::rng::Draws;
use crate::trig::sin_cos;

pub(super) fn clock(draws: &mut Draws) -> Figure {
    Figure::new()
        .main(circle(0.0, 0.0, 0.88))
        .light(circle(0.0, 0.0, 0.7))
        .each(0..12, |figure, hour| {
            let (sin, cos) = sin_cos(30.0 * hour as f32);
            figure.dark(circle(0.57 * cos, 0.57 * sin, if hour % 3 == 0 { 0.07 } else { 0.04 }))
        })
        .each([(0.08, 0.3), (0.055, 0.48)], |figure, (width, length)| {
            let (sin, cos) = sin_cos(draws.uniform(0.0, 360.0));
            figure.dark(line(width, &[(0.0, 0.0), (length * cos, length * sin)]))
        })
        .second(circle(0.0, 0.0, 0.09))
}

pub(super) fn umbrella(draws: &mut Draws) -> Figure {
    let top = -draws.uniform(0.76, 0.92);
    let over = 1.3 * top;
    Figure::new()
        .dark(line(0.07, &[(0.0, top - 0.06), (0.0, 0.76)]))
        .dark(arc(0.075, 0.13, 0.76, 0.13, 0.15, 0.0, 180.0))
        .main(curve(
            (-0.97, 0.04),
            &[
                [-0.8, over, 0.8, over, 0.97, 0.04],
                [0.8, -0.13, 0.5, -0.13, 0.34, 0.04],
                [0.2, -0.13, -0.2, -0.13, -0.34, 0.04],
                [-0.5, -0.13, -0.8, -0.13, -0.97, 0.04],
            ],
        ))
        .second(curve(
            (-0.34, 0.04),
            &[[-0.28, 0.98 * top, 0.28, 0.98 * top, 0.34, 0.04], [0.2, -0.13, -0.2, -0.13, -0.34, 0.04]],
        ))
}

pub(super) fn key(draws: &mut Draws) -> Figure {
    let bow = draws.uniform(0.24, 0.32);
    Figure::new()
        .main(ring(0.17, -0.58, 0.0, bow))
        .main(rounded(-0.3, -0.09, 0.96, 0.09, 0.06))
        .each([0.46, 0.64, 0.82], |figure, x| figure.main(rect(x, 0.04, x + 0.11, draws.uniform(0.24, 0.42))))
        .second(rect(-0.26, -0.16, -0.14, 0.16))
        .second(rect(-0.06, -0.14, 0.02, 0.14))
}

pub(super) fn hammer(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.09, 0.13);
    Figure::new()
        .second(rounded(-half, -0.5, half, 0.97, 0.06))
        .main(rounded(-0.5, -0.84, 0.3, -0.42, 0.05))
        .main(rounded(-0.66, -0.9, -0.46, -0.36, 0.04))
        .main(curve((0.26, -0.84), &[[0.5, -0.84, 0.72, -0.7, 0.82, -0.42], [0.62, -0.54, 0.46, -0.54, 0.26, -0.5]]))
        .dark(rect(-half, 0.62, half, 0.7))
}

pub(super) fn guitar(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.4, 0.48);
    Figure::new()
        .main(ellipse(0.0, 0.54, half, 0.4))
        .main(ellipse(0.0, 0.1, 0.74 * half, 0.29))
        .second(rect(-0.07, -0.76, 0.07, 0.14))
        .second(polygon(&[(-0.1, -0.74), (-0.15, -0.98), (0.15, -0.98), (0.1, -0.74)]))
        .dark(circle(0.0, 0.24, 0.145))
        .dark(rounded(-0.19, 0.6, 0.19, 0.68, 0.03))
        .each([-0.03, 0.03], |strings, x| strings.light(line(0.018, &[(x, -0.8), (x, 0.62)])))
}

pub(super) fn shoe(draws: &mut Draws) -> Figure {
    let top = -draws.uniform(0.36, 0.58);
    Figure::new()
        .main(curve(
            (-0.9, 0.42),
            &[
                [-0.96, 0.1, -0.92, top, -0.84, top],
                [-0.66, top + 0.1, -0.42, top + 0.08, -0.26, top],
                [-0.08, -0.08, 0.5, -0.04, 0.86, 0.18],
                [0.98, 0.28, 0.97, 0.36, 0.96, 0.42],
            ],
        ))
        .second(curve((0.62, 0.4), &[[0.6, 0.2, 0.7, 0.1, 0.86, 0.18], [0.98, 0.28, 0.97, 0.36, 0.96, 0.42]]))
        .second(polygon(&[(-0.62, 0.36), (-0.5, 0.0), (-0.38, 0.0), (-0.46, 0.36)]))
        .light(rounded(-0.95, 0.36, 0.99, 0.56, 0.08))
        .each(0..3, |figure, lace| {
            let (x, y) = (-0.12 + 0.18 * lace as f32, -0.14 + 0.07 * lace as f32);
            figure.light(line(0.05, &[(x - 0.06, y + 0.1), (x + 0.1, y - 0.06)]))
        })
}
