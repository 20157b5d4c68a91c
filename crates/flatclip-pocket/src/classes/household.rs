//! House, chair, table, lamp, cup, bottle, vase.

use crate::figure::{Figure, arc, ellipse, line, mirrored, polygon, rect, rounded};
use crate::rng::Draws;

pub(super) fn house(draws: &mut Draws) -> Figure {
    let half = draws.uniform(0.62, 0.8);
    let top = -draws.uniform(0.65, 0.92);
    let chimney = draws.chance(0.6).then(|| rect(0.32, -0.78, 0.5, -0.2));
    Figure::new()
        .each(chimney, Figure::dark)
        .main(rect(-half, -0.1, half, 0.84))
        .second(polygon(&[(-half - 0.18, -0.06), (0.0, top), (half + 0.18, -0.06)]))
        .dark(rounded(-0.15, 0.32, 0.15, 0.84, 0.06))
        .each([-0.62 * half, 0.62 * half], |figure, x| {
            figure.light(rect(x - 0.14, 0.12, x + 0.14, 0.4)).dark(rect(x - 0.02, 0.12, x + 0.02, 0.4))
        })
}

pub(super) fn chair(draws: &mut Draws) -> Figure {
    let top = -draws.uniform(0.78, 0.96);
    let slats = (0..3).map(|slat| top + 0.16 + 0.24 * slat as f32);
    Figure::new()
        .each([-0.2, 0.36], |legs, x| legs.main(line(0.07, &[(x, 0.16), (x, 0.74)])))
        .each(slats, |figure, y| figure.main(line(0.08, &[(-0.44, y + 0.04), (-0.18, y)])))
        .main(line(0.09, &[(-0.18, 0.1), (-0.2, top + 0.04)]))
        .main(rounded(-0.53, top, -0.39, 0.94, 0.04))
        .main(rect(0.46, 0.2, 0.59, 0.94))
        .second(polygon(&[(-0.32, 0.02), (0.4, 0.02), (0.64, 0.18), (0.64, 0.29), (-0.52, 0.29), (-0.52, 0.18)]))
}

pub(super) fn table(draws: &mut Draws) -> Figure {
    let y = draws.uniform(-0.38, -0.16);
    let legs = [(-0.58, 0.1, 0.62), (0.48, 0.1, 0.62), (-0.88, 0.13, 0.88), (0.75, 0.13, 0.88)];
    Figure::new()
        .each(legs, |figure, (x, width, foot)| figure.second(rect(x, y + 0.24, x + width, foot)))
        .main(polygon(&[(-0.72, y), (0.72, y), (0.98, y + 0.22), (-0.98, y + 0.22)]))
        .second(rect(-0.98, y + 0.22, 0.98, y + 0.34))
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
