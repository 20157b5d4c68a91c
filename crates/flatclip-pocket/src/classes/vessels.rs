//! Cup, bottle, vase.

use crate::figure::{Figure, arc, ellipse, mirrored, polygon, rect, rounded};
use crate::rng::Draws;

pub(super) fn cup(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.46, 0.58);
    let foot = 0.8 * half;
    Figure::new()
        .main(arc(0.13, half - 0.04, 0.04, 0.32, 0.32, -95.0, 200.0))
        .main(mirrored((-half, -0.52), &[[-half, 0.1, -foot, 0.6, -foot, 0.66]]))
        .second(polygon(&[(-0.99 * half, -0.1), (0.99 * half, -0.1), (0.96 * half, 0.1), (-0.96 * half, 0.1)]))
        .light(ellipse(0.0, -0.52, half, 0.14))
        .dark(ellipse(0.0, -0.5, 0.86 * half, 0.1))
}

pub(super) fn bottle(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.26, 0.36);
    Figure::new()
        .main(mirrored(
            (-0.11, -0.82),
            &[
                [-0.11, -0.4, -half, -0.42, -half, -0.05],
                [-half, 0.4, -half, 0.7, -half, 0.88],
                [-half, 0.95, -0.1, 0.96, 0.0, 0.96],
            ],
        ))
        .dark(rounded(-0.14, -0.98, 0.14, -0.78, 0.04))
        .light(rect(-half, 0.08, half, 0.56))
        .second(rect(-half, 0.22, half, 0.42))
}

pub(super) fn vase(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.52, 0.7);
    Figure::new()
        .main(mirrored(
            (-0.34, -0.76),
            &[[-0.06, -0.36, -half - 0.16, -0.2, -half, 0.26], [-half + 0.08, 0.66, -0.28, 0.76, -0.3, 0.94]],
        ))
        .second(polygon(&[(-0.97 * half, 0.04), (0.97 * half, 0.04), (0.99 * half, 0.2), (-0.99 * half, 0.2)]))
        .second(polygon(&[(-0.9 * half, 0.36), (0.9 * half, 0.36), (0.83 * half, 0.46), (-0.83 * half, 0.46)]))
        .light(ellipse(0.0, -0.76, 0.34, 0.11))
        .dark(ellipse(0.0, -0.75, 0.27, 0.075))
}
