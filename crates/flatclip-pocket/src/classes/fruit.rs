//! Apple, pear, banana.

use crate::figure::{Figure, curve, ellipse, line, mirrored, polygon};
use crate::rng::Draws;

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
