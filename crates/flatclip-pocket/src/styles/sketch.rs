//! Pencil on paper: two shaky lines per outline, hatching on some parts.

use tiny_skia::{Path, PathSegment, Point};

use crate::canvas::{Canvas, Fill};
use crate::colour::Rgb;
use crate::figure::{Figure, Role};
use crate::rng::Draws;
use crate::texture;

pub(super) fn paint(figure: &Figure, draws: &mut Draws) -> Canvas {
    let grey = draws.uniform(228.0, 252.0);
    let paper = [grey, grey, grey - draws.uniform(0.0, 12.0)];
    let ink = [draws.uniform(20.0, 85.0); 3];
    let mut canvas = Canvas::new(paper);
    for part in &figure.parts {
        let opaque = if part.role == Role::Dark { 0.3 } else { 0.9 };
        canvas.fill(&part.path, Fill::Flat(paper), opaque);
        if matches!(part.role, Role::Second | Role::Dark) && draws.chance(0.65) {
            hatching(&mut canvas, &part.path, ink, draws);
        }
        for _ in 0..2 {
            shaky_line(&mut canvas, &part.path, ink, draws);
        }
    }
    canvas.add(&texture::field(draws, 0.7), [3.0; 3]);
    canvas
}

fn hatching(canvas: &mut Canvas, path: &Path, ink: Rgb, draws: &mut Draws) {
    let bounds = path.bounds();
    let pitch = draws.uniform(2.4, 4.5);
    let count = ((bounds.width() + bounds.height()) / pitch) as usize;
    let lines: Vec<[(f32, f32); 2]> = (0..count)
        .map(|at| {
            let x = bounds.left() - bounds.height() + pitch * at as f32;
            [(x, bounds.bottom()), (x + bounds.height(), bounds.top())]
        })
        .collect();
    canvas.hatch(path, &lines, 0.7, ink, 0.5);
}

/// Goes along the outline in steps of a few pixels and misses each point a little.
fn shaky_line(canvas: &mut Canvas, path: &Path, ink: Rgb, draws: &mut Draws) {
    let shake = draws.uniform(0.25, 0.75);
    let (width, alpha) = (draws.uniform(0.7, 1.4), draws.uniform(0.5, 0.9));
    for contour in contours(path) {
        let shaken: Vec<(f32, f32)> =
            contour.iter().map(|p| (p.x + shake * draws.normal(), p.y + shake * draws.normal())).collect();
        for pair in shaken.windows(2) {
            canvas.stroke(pair[0], pair[1], width, ink, |_| alpha);
        }
    }
}

/// Points along each contour, about five pixels apart or less.
fn contours(path: &Path) -> Vec<Vec<Point>> {
    let mut contours: Vec<Vec<Point>> = Vec::new();
    let (mut first, mut last) = (Point::zero(), Point::zero());
    for segment in path.segments() {
        let (end, at): (Point, Box<dyn Fn(f32) -> Point>) = match segment {
            PathSegment::MoveTo(point) => {
                contours.push(vec![point]);
                (first, last) = (point, point);
                continue;
            }
            PathSegment::LineTo(end) => (end, Box::new(move |t| lerp(last, end, t))),
            PathSegment::QuadTo(control, end) => {
                (end, Box::new(move |t| lerp(lerp(last, control, t), lerp(control, end, t), t)))
            }
            PathSegment::CubicTo(one, two, end) => {
                let at = move |t| {
                    let (a, b, c) = (lerp(last, one, t), lerp(one, two, t), lerp(two, end, t));
                    lerp(lerp(a, b, t), lerp(b, c, t), t)
                };
                (end, Box::new(at))
            }
            PathSegment::Close => (first, Box::new(move |t| lerp(last, first, t))),
        };
        let (dx, dy) = (end.x - last.x, end.y - last.y);
        let straight = matches!(segment, PathSegment::LineTo(_) | PathSegment::Close);
        let steps = ((dx * dx + dy * dy).sqrt() / 5.0).ceil().clamp(if straight { 1.0 } else { 3.0 }, 20.0) as usize;
        if let Some(contour) = contours.last_mut() {
            contour.extend((1..=steps).map(|step| at(step as f32 / steps as f32)));
        }
        last = end;
    }
    contours
}

fn lerp(from: Point, to: Point, t: f32) -> Point {
    Point::from_xy(from.x + (to.x - from.x) * t, from.y + (to.y - from.y) * t)
}
