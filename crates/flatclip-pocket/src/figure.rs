//! What a class draws: closed outlines with a colour role each, in a square from -1 to 1, y downwards.

use tiny_skia::{LineCap, LineJoin, Path, PathBuilder, Rect, Stroke};

use crate::trig::sin_cos;

/// Which of the figure's colours fills a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The colour that captions name first.
    Main,
    /// The colour of "with blue parts".
    Second,
    /// Nearly black.
    Dark,
    /// Nearly white.
    Light,
}

/// Figures are drawn at some 50 pixels per unit.
const PIXELS: f32 = 50.0;

/// A closed outline and its colour.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) path: Path,
    pub(crate) role: Role,
}

/// The parts of one object, back to front.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub(crate) parts: Vec<Part>,
}

/// An outline; `None` when its points enclose nothing.
pub(crate) type Outline = Option<Path>;

impl Figure {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn main(self, outline: Outline) -> Self {
        self.part(Role::Main, outline)
    }

    pub(crate) fn second(self, outline: Outline) -> Self {
        self.part(Role::Second, outline)
    }

    pub(crate) fn dark(self, outline: Outline) -> Self {
        self.part(Role::Dark, outline)
    }

    pub(crate) fn light(self, outline: Outline) -> Self {
        self.part(Role::Light, outline)
    }

    /// Adds the parts of every item.
    pub(crate) fn each<T>(self, items: impl IntoIterator<Item = T>, add: impl FnMut(Self, T) -> Self) -> Self {
        items.into_iter().fold(self, add)
    }

    fn part(mut self, role: Role, outline: Outline) -> Self {
        self.parts.extend(outline.map(|path| Part { path, role }));
        self
    }
}

pub(crate) fn ellipse(cx: f32, cy: f32, rx: f32, ry: f32) -> Outline {
    PathBuilder::from_oval(Rect::from_ltrb(cx - rx, cy - ry, cx + rx, cy + ry)?)
}

pub(crate) fn circle(cx: f32, cy: f32, radius: f32) -> Outline {
    ellipse(cx, cy, radius, radius)
}

pub(crate) fn rect(left: f32, top: f32, right: f32, bottom: f32) -> Outline {
    polygon(&[(left, top), (right, top), (right, bottom), (left, bottom)])
}

/// A rectangle with rounded corners.
pub(crate) fn rounded(left: f32, top: f32, right: f32, bottom: f32, radius: f32) -> Outline {
    let radius = radius.min(0.5 * (right - left)).min(0.5 * (bottom - top));
    let mut path = PathBuilder::new();
    path.move_to(left + radius, top);
    path.line_to(right - radius, top);
    path.quad_to(right, top, right, top + radius);
    path.line_to(right, bottom - radius);
    path.quad_to(right, bottom, right - radius, bottom);
    path.line_to(left + radius, bottom);
    path.quad_to(left, bottom, left, bottom - radius);
    path.line_to(left, top + radius);
    path.quad_to(left, top, left + radius, top);
    path.close();
    path.finish()
}

pub(crate) fn polygon(points: &[(f32, f32)]) -> Outline {
    let mut path = straight(points)?;
    path.close();
    path.finish()
}

/// A closed outline of cubic pieces, each given by two control points and its end.
pub(crate) fn curve(start: (f32, f32), pieces: &[[f32; 6]]) -> Outline {
    let mut path = cubic(start, pieces);
    path.close();
    path.finish()
}

/// A closed outline that is its own mirror image about x = 0: `pieces` lead down the left side from `top` to the
/// bottom, the right side is made from them.
pub(crate) fn mirrored(top: (f32, f32), pieces: &[[f32; 6]]) -> Outline {
    let mut path = cubic(top, pieces);
    let last = pieces.last()?;
    path.line_to(-last[4], last[5]);
    for (at, p) in pieces.iter().enumerate().rev() {
        let start = if at == 0 { top } else { (pieces[at - 1][4], pieces[at - 1][5]) };
        path.cubic_to(-p[2], p[3], -p[0], p[1], -start.0, start.1);
    }
    path.close();
    path.finish()
}

/// A stroke along points, with round ends and joins.
pub(crate) fn line(width: f32, points: &[(f32, f32)]) -> Outline {
    stroke(&straight(points)?.finish()?, width, PIXELS)
}

fn straight(points: &[(f32, f32)]) -> Option<PathBuilder> {
    let mut path = PathBuilder::new();
    let (&(x, y), rest) = points.split_first()?;
    path.move_to(x, y);
    rest.iter().for_each(|&(x, y)| path.line_to(x, y));
    Some(path)
}

fn cubic((x, y): (f32, f32), pieces: &[[f32; 6]]) -> PathBuilder {
    let mut path = PathBuilder::new();
    path.move_to(x, y);
    pieces.iter().for_each(|p| path.cubic_to(p[0], p[1], p[2], p[3], p[4], p[5]));
    path
}

/// A stroke along an arc of an ellipse, from `start` over `sweep` degrees (clockwise on the image).
pub(crate) fn arc(width: f32, cx: f32, cy: f32, rx: f32, ry: f32, start: f32, sweep: f32) -> Outline {
    const STEPS: usize = 28;
    let point = |step: usize| {
        let (sin, cos) = sin_cos(start + sweep * step as f32 / STEPS as f32);
        (cx + rx * cos, cy + ry * sin)
    };
    line(width, &(0..=STEPS).map(point).collect::<Vec<_>>())
}

/// A ring: the stroke of a circle.
pub(crate) fn ring(width: f32, cx: f32, cy: f32, radius: f32) -> Outline {
    stroke(&circle(cx, cy, radius)?, width, PIXELS)
}

/// The outline of a stroke along a path; `pixels` per unit keep its curves smooth.
pub(crate) fn stroke(path: &Path, width: f32, pixels: f32) -> Outline {
    let stroke = Stroke { width, line_cap: LineCap::Round, line_join: LineJoin::Round, ..Stroke::default() };
    path.stroke(&stroke, pixels)
}
