//! Car, bus, truck, bicycle, boat, airplane.

use crate::figure::{Figure, circle, curve, line, polygon, rect, ring, rounded};
use crate::rng::Draws;

fn wheel(figure: Figure, x: f32, y: f32, radius: f32) -> Figure {
    figure.dark(circle(x, y, radius)).light(circle(x, y, 0.45 * radius))
}

pub(super) fn car(draws: &mut Draws) -> Figure {
    let roof = -draws.uniform(0.28, 0.46);
    let radius = draws.uniform(0.17, 0.23);
    Figure::new()
        .main(curve(
            (-0.66, 0.0),
            &[
                [-0.55, roof + 0.05, -0.45, roof, -0.3, roof],
                [0.0, roof, 0.15, roof, 0.3, roof],
                [0.45, roof + 0.04, 0.58, -0.1, 0.68, 0.0],
            ],
        ))
        .main(rounded(-0.97, -0.06, 0.97, 0.36, 0.14))
        .light(polygon(&[(-0.48, -0.04), (-0.36, roof + 0.09), (-0.05, roof + 0.09), (-0.05, -0.04)]))
        .light(polygon(&[(0.04, -0.04), (0.04, roof + 0.09), (0.27, roof + 0.09), (0.48, -0.04)]))
        .second(rect(-0.97, 0.13, 0.97, 0.2))
        .light(circle(0.87, 0.05, 0.07))
        .each([-0.56, 0.56], |figure, x| wheel(figure, x, 0.37, radius))
}

pub(super) fn bus(draws: &mut Draws) -> Figure {
    let roof = -draws.uniform(0.44, 0.58);
    let windows = 3 + draws.below(3);
    let pitch = 1.72 / windows as f32;
    let windows = (0..windows).map(|at| -0.86 + pitch * at as f32);
    Figure::new()
        .main(rounded(-0.96, roof, 0.96, 0.42, 0.1))
        .each(windows, |figure, left| figure.light(rect(left, roof + 0.13, left + pitch - 0.09, -0.02)))
        .second(rect(-0.96, 0.1, 0.96, 0.2))
        .each([-0.56, 0.54], |figure, x| wheel(figure, x, 0.43, 0.18))
}

pub(super) fn truck(draws: &mut Draws) -> Figure {
    let top = -draws.uniform(0.46, 0.64);
    Figure::new()
        .dark(rect(-0.94, 0.22, 0.92, 0.34))
        .main(rect(-0.96, top, 0.22, 0.26))
        .second(curve(
            (0.3, 0.3),
            &[
                [0.3, 0.0, 0.3, -0.2, 0.3, -0.26],
                [0.5, -0.28, 0.68, -0.28, 0.72, -0.22],
                [0.84, 0.0, 0.94, 0.06, 0.94, 0.3],
            ],
        ))
        .light(polygon(&[(0.46, -0.17), (0.67, -0.17), (0.8, 0.04), (0.46, 0.04)]))
        .each([-0.68, -0.3, 0.62], |figure, x| wheel(figure, x, 0.36, 0.17))
}

pub(super) fn bicycle(draws: &mut Draws) -> Figure {
    let width = draws.uniform(0.055, 0.085);
    let radius = draws.uniform(0.35, 0.41);
    let (rear, front, crank, seat, head) = ((-0.56, 0.32), (0.56, 0.32), (-0.04, 0.34), (-0.22, -0.22), (0.4, -0.24));
    Figure::new()
        .each([rear, front], |figure, (x, y)| figure.dark(ring(width, x, y, radius)))
        .main(line(width, &[rear, seat, head, crank, rear]))
        .main(line(width, &[(-0.27, -0.4), crank]))
        .main(line(width, &[front, head, (0.36, -0.5)]))
        .dark(line(width, &[(0.36, -0.5), (0.56, -0.56)]))
        .second(line(1.7 * width, &[(-0.4, -0.43), (-0.14, -0.41)]))
        .second(circle(crank.0, crank.1, 0.09))
}

pub(super) fn boat(draws: &mut Draws) -> Figure {
    let top = -draws.uniform(0.78, 0.97);
    Figure::new()
        .dark(line(0.07, &[(0.0, 0.4), (0.0, top)]))
        .light(curve((0.08, top + 0.06), &[[0.45, -0.4, 0.7, 0.0, 0.76, 0.24], [0.5, 0.24, 0.3, 0.24, 0.08, 0.24]]))
        .second(polygon(&[(-0.08, top + 0.22), (-0.62, 0.24), (-0.08, 0.24)]))
        .main(curve(
            (-0.9, 0.36),
            &[[-0.3, 0.4, 0.3, 0.4, 0.92, 0.34], [0.8, 0.6, 0.7, 0.74, 0.5, 0.78], [0.1, 0.8, -0.3, 0.8, -0.55, 0.78]],
        ))
}

pub(super) fn airplane(draws: &mut Draws) -> Figure {
    let span = draws.uniform(0.55, 0.78);
    let tail = draws.uniform(0.42, 0.56);
    Figure::new()
        .second(polygon(&[(-0.02, -0.06), (0.22, -0.06), (-0.14, -0.85 * span), (-0.3, -0.85 * span)]))
        .second(polygon(&[(-0.9, -0.02), (-0.62, -0.06), (-0.82, -tail), (-0.98, -tail)]))
        .main(curve(
            (-0.97, -0.04),
            &[
                [-0.6, -0.2, 0.5, -0.22, 0.8, -0.1],
                [0.95, -0.03, 0.98, 0.04, 0.9, 0.08],
                [0.5, 0.2, -0.6, 0.14, -0.97, -0.04],
            ],
        ))
        .second(polygon(&[(-0.1, 0.04), (0.2, 0.04), (-0.24, span), (-0.44, span)]))
        .each([-0.3, -0.12, 0.06, 0.24, 0.42], |windows, x| windows.dark(circle(x, -0.05, 0.04)))
        .light(polygon(&[(0.68, -0.1), (0.8, -0.06), (0.84, 0.0), (0.68, -0.01)]))
}
