//! House, chair, table, lamp.

use crate::figure::{Figure, ellipse, line, polygon, rect, rounded};
use crate::rng::Draws;

pub(super) fn house(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.62, 0.8);
    let top = -draws.uniform(0.65, 0.92);
    let mut figure = Figure::new();
    if draws.chance(0.6) {
        figure = figure.dark(rect(0.32, -0.78, 0.5, -0.2));
    }
    figure = figure
        .main(rect(-half, -0.1, half, 0.84))
        .second(polygon(&[(-half - 0.18, -0.06), (0.0, top), (half + 0.18, -0.06)]))
        .dark(rounded(-0.15, 0.32, 0.15, 0.84, 0.06));
    for x in [-0.62 * half, 0.62 * half] {
        figure = figure.light(rect(x - 0.14, 0.12, x + 0.14, 0.4)).dark(rect(x - 0.02, 0.12, x + 0.02, 0.4));
    }
    figure
}

pub(super) fn chair(draws: &mut Draws) -> Figure {
    let top = -draws.uniform(0.78, 0.96);
    let mut figure =
        Figure::new().main(line(0.07, &[(-0.2, 0.16), (-0.2, 0.74)])).main(line(0.07, &[(0.36, 0.16), (0.36, 0.74)]));
    for slat in 0..3 {
        let y = top + 0.16 + 0.24 * slat as f32;
        figure = figure.main(line(0.08, &[(-0.44, y + 0.04), (-0.18, y)]));
    }
    figure
        .main(line(0.09, &[(-0.18, 0.1), (-0.2, top + 0.04)]))
        .main(rounded(-0.53, top, -0.39, 0.94, 0.04))
        .main(rect(0.46, 0.2, 0.59, 0.94))
        .second(polygon(&[(-0.32, 0.02), (0.4, 0.02), (0.64, 0.18), (0.64, 0.29), (-0.52, 0.29), (-0.52, 0.18)]))
}

pub(super) fn table(draws: &mut Draws) -> Figure {
    let y = draws.uniform(-0.38, -0.16);
    let mut figure = Figure::new();
    for x in [-0.58, 0.48] {
        figure = figure.second(rect(x, y + 0.24, x + 0.1, 0.62));
    }
    for x in [-0.88, 0.75] {
        figure = figure.second(rect(x, y + 0.24, x + 0.13, 0.88));
    }
    figure.main(polygon(&[(-0.72, y), (0.72, y), (0.98, y + 0.22), (-0.98, y + 0.22)])).second(rect(
        -0.98,
        y + 0.22,
        0.98,
        y + 0.34,
    ))
}

pub(super) fn lamp(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.52, 0.7);
    Figure::new()
        .dark(rect(-0.055, -0.1, 0.055, 0.8))
        .dark(ellipse(0.0, 0.82, 0.42, 0.13))
        .light(ellipse(0.0, -0.02, 0.16, 0.16))
        .main(polygon(&[(-0.48 * half, -0.88), (0.48 * half, -0.88), (half, -0.02), (-half, -0.02)]))
        .second(polygon(&[(-0.9 * half, -0.18), (0.9 * half, -0.18), (half, -0.02), (-half, -0.02)]))
}
