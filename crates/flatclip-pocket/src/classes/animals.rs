//! Fish, bird, cat, dog, butterfly, snail.

use crate::figure::{Figure, arc, circle, curve, ellipse, line, polygon};
use crate::rng::Draws;

/// Signs of x.
const SIDES: [f32; 2] = [-1.0, 1.0];

pub(super) fn fish(draws: &mut Draws) -> Figure {
    let belly = draws.uniform(0.48, 0.68);
    Figure::new()
        .second(curve(
            (-0.52, 0.0),
            &[
                [-0.7, -0.2, -0.85, -0.36, -0.98, -0.42],
                [-0.86, -0.1, -0.86, 0.1, -0.98, 0.42],
                [-0.85, 0.36, -0.7, 0.2, -0.52, 0.0],
            ],
        ))
        .second(curve((-0.2, -0.6 * belly), &[[-0.2, -0.9, 0.1, -0.85, 0.3, -0.55 * belly]]))
        .main(curve((-0.66, 0.0), &[[-0.3, -belly, 0.5, -belly, 0.92, 0.02], [0.5, belly, -0.3, belly, -0.66, 0.0]]))
        .dark(arc(0.045, 0.28, 0.0, 0.16, 0.28, -70.0, 140.0))
        .second(curve((-0.1, 0.08), &[[-0.3, 0.05, -0.38, 0.2, -0.35, 0.28], [-0.2, 0.3, -0.1, 0.2, -0.1, 0.08]]))
        .light(circle(0.62, -0.09, 0.095))
        .dark(circle(0.64, -0.09, 0.05))
}

pub(super) fn bird(draws: &mut Draws) -> Figure {
    let head = draws.uniform(0.24, 0.3);
    Figure::new()
        .each([-0.06, 0.16], |legs, x| legs.dark(line(0.05, &[(x, 0.4), (x - 0.02, 0.9), (x + 0.13, 0.9)])))
        .second(polygon(&[(-0.48, 0.02), (-0.98, -0.2), (-0.92, 0.06), (-0.99, 0.24)]))
        .main(curve((-0.66, 0.08), &[[-0.45, -0.45, 0.25, -0.5, 0.52, -0.1], [0.5, 0.6, -0.3, 0.64, -0.66, 0.08]]))
        .second(polygon(&[(0.68, -0.48), (1.0, -0.32), (0.68, -0.26)]))
        .main(circle(0.48, -0.38, head))
        .dark(circle(0.56, -0.43, 0.055))
        .second(curve(
            (-0.52, -0.02),
            &[[-0.3, -0.28, 0.05, -0.26, 0.2, -0.04], [0.1, 0.34, -0.25, 0.36, -0.52, -0.02]],
        ))
}

pub(super) fn cat(draws: &mut Draws) -> Figure {
    let ear = draws.uniform(0.82, 0.97);
    let face = draws.uniform(0.58, 0.66);
    Figure::new()
        .each(SIDES, |ears, s| {
            let inner = [(s * 0.64, -0.3), (s * 0.62, -ear + 0.18), (s * 0.36, -0.46)];
            ears.main(polygon(&[(s * 0.74, -0.05), (s * 0.7, -ear), (s * 0.16, -0.45)])).second(polygon(&inner))
        })
        .main(ellipse(0.0, 0.12, 0.77, face))
        .each(SIDES, |figure, s| {
            figure
                .light(ellipse(s * 0.31, 0.0, 0.14, 0.16))
                .dark(ellipse(s * 0.31, 0.0, 0.055, 0.14))
                .dark(line(0.035, &[(s * 0.22, 0.34), (s * 0.97, 0.24)]))
                .dark(line(0.035, &[(s * 0.22, 0.42), (s * 0.95, 0.48)]))
                .dark(arc(0.035, s * 0.1, 0.38, 0.1, 0.09, 0.0, 180.0))
        })
        .second(polygon(&[(-0.1, 0.22), (0.1, 0.22), (0.0, 0.34)]))
}

pub(super) fn dog(draws: &mut Draws) -> Figure {
    let tongue = draws.uniform(0.78, 0.96);
    let ear = |s: f32| {
        let outer = [s * 0.7, -0.78, s * 1.0, -0.3, s * 0.92, 0.28];
        let tip = [s * 0.86, 0.56, s * 0.66, 0.5, s * 0.62, 0.24];
        curve((s * 0.36, -0.62), &[outer, tip, [s * 0.6, -0.1, s * 0.5, -0.4, s * 0.36, -0.62]])
    };
    Figure::new()
        .main(ellipse(0.0, -0.02, 0.6, 0.7))
        .each(SIDES, |ears, s| ears.second(ear(s)))
        .second(curve(
            (-0.11, 0.56),
            &[[-0.12, tongue, -0.08, tongue, 0.0, tongue], [0.08, tongue, 0.12, tongue, 0.11, 0.56]],
        ))
        .light(ellipse(0.0, 0.4, 0.38, 0.29))
        .dark(ellipse(0.0, 0.25, 0.16, 0.115))
        .dark(line(0.035, &[(0.0, 0.3), (0.0, 0.5)]))
        .each([-0.24, 0.24], |eyes, x| eyes.dark(circle(x, -0.16, 0.095)))
        .each([-0.21, 0.27], |eyes, x| eyes.light(circle(x, -0.19, 0.03)))
}

pub(super) fn butterfly(draws: &mut Draws) -> Figure {
    let low = draws.uniform(0.58, 0.78);
    let wings = |figure: Figure, s: f32| {
        let lower = [[s * 0.5, -0.05, s * 0.92, 0.15, s * 0.66, low], [s * 0.4, 0.95, s * 0.1, 0.5, 0.0, 0.0]];
        let upper = [[s * 0.25, -0.95, s * 1.1, -1.0, s * 0.92, -0.22], [s * 0.75, 0.12, s * 0.3, 0.08, 0.0, -0.08]];
        figure
            .second(curve((0.0, 0.0), &lower))
            .main(curve((0.0, -0.08), &upper))
            .light(circle(s * 0.62, -0.42, 0.13))
            .light(circle(s * 0.45, 0.42, 0.09))
            .dark(line(0.035, &[(0.0, -0.45), (s * 0.2, -0.88)]))
    };
    Figure::new().each(SIDES, wings).dark(ellipse(0.0, 0.0, 0.09, 0.5))
}

pub(super) fn snail(draws: &mut Draws) -> Figure {
    let shell = draws.uniform(0.5, 0.58);
    Figure::new()
        .second(line(0.05, &[(0.7, -0.1), (0.6, -0.55)]))
        .second(line(0.05, &[(0.82, -0.1), (0.94, -0.52)]))
        .second(curve(
            (-0.95, 0.68),
            &[
                [-0.6, 0.4, 0.3, 0.55, 0.54, 0.2],
                [0.56, -0.2, 0.98, -0.25, 0.94, 0.08],
                [0.9, 0.5, 0.65, 0.74, 0.4, 0.74],
                [0.0, 0.76, -0.6, 0.76, -0.95, 0.68],
            ],
        ))
        .main(circle(-0.12, -0.02, shell))
        .dark(arc(0.075, -0.12, -0.02, 0.66 * shell, 0.66 * shell, 20.0, 300.0))
        .dark(arc(0.07, -0.09, 0.0, 0.3 * shell, 0.3 * shell, 120.0, 270.0))
        .dark(circle(0.8, 0.03, 0.045))
}
