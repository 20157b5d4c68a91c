//! The image while it is painted. tiny-skia turns outlines into coverage (in integers); all colour arithmetic is done
//! here, with basic float operations only, so that no vector unit or fused instruction can change a byte.

use std::ops::Range;

use tiny_skia::{FillRule, Mask, Path, Transform};

use crate::SIDE;
use crate::colour::Rgb;
use crate::rng::Draws;

/// A square image of `SIDE` pixels.
pub(crate) struct Canvas {
    pub(crate) pixels: Vec<Rgb>,
    mask: Mask,
}

/// How an outline is filled.
#[derive(Clone, Copy)]
pub(crate) enum Fill {
    Flat(Rgb),
    /// From one colour to another across the outline's bounds, along a direction.
    Gradient {
        from: Rgb,
        to: Rgb,
        direction: (f32, f32),
    },
}

/// Rows and columns of pixels.
type Window = [Range<usize>; 2];

fn window(left: f32, top: f32, right: f32, bottom: f32) -> Window {
    let side = SIDE as f32;
    [(top, bottom), (left, right)]
        .map(|(from, to)| (from - 1.0).clamp(0.0, side) as usize..(to + 2.0).clamp(0.0, side) as usize)
}

impl Canvas {
    pub(crate) fn new(colour: Rgb) -> Self {
        let mask = Mask::new(SIDE as u32, SIDE as u32).expect("the side is a positive constant");
        Self { pixels: vec![colour; SIDE * SIDE], mask }
    }

    /// Fills an outline, given in pixels, with opacity `alpha`.
    pub(crate) fn fill(&mut self, path: &Path, fill: Fill, alpha: f32) {
        let [rows, columns] = self.cover(path);
        let bounds = path.bounds();
        let (cx, cy) = (0.5 * (bounds.left() + bounds.right()), 0.5 * (bounds.top() + bounds.bottom()));
        for y in rows {
            for x in columns.clone() {
                let coverage = self.mask.data()[y * SIDE + x];
                if coverage == 0 {
                    continue;
                }
                let colour = match fill {
                    Fill::Flat(colour) => colour,
                    Fill::Gradient { from, to, direction } => {
                        let along = (x as f32 + 0.5 - cx) * direction.0 / bounds.width().max(1.0)
                            + (y as f32 + 0.5 - cy) * direction.1 / bounds.height().max(1.0);
                        mix(from, to, (along + 0.5).clamp(0.0, 1.0))
                    }
                };
                let pixel = &mut self.pixels[y * SIDE + x];
                *pixel = mix(*pixel, colour, alpha * f32::from(coverage) / 255.0);
            }
        }
    }

    /// Draws straight strokes a pixel or so wide between points, but only inside `clip`.
    pub(crate) fn hatch(&mut self, clip: &Path, lines: &[[(f32, f32); 2]], width: f32, colour: Rgb, alpha: f32) {
        self.cover(clip);
        let inside: Vec<u8> = self.mask.data().to_vec();
        for &[from, to] in lines {
            self.stroke(from, to, width, colour, |at| alpha * f32::from(inside[at]) / 255.0);
        }
    }

    /// Draws one brush stroke: a line with round ends, whose opacity may depend on the pixel. Its coverage is the distance
    /// to the middle line: much cheaper than an outline for short strokes.
    pub(crate) fn stroke(
        &mut self,
        from: (f32, f32),
        to: (f32, f32),
        width: f32,
        colour: Rgb,
        alpha: impl Fn(usize) -> f32,
    ) {
        let reach = 0.5 * width + 0.5;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let square = (dx * dx + dy * dy).max(1e-6);
        let [left, top] = [from.0.min(to.0), from.1.min(to.1)].map(|low| low - reach);
        let [right, bottom] = [from.0.max(to.0), from.1.max(to.1)].map(|high| high + reach);
        let [rows, columns] = window(left, top, right, bottom);
        for y in rows {
            for x in columns.clone() {
                let (px, py) = (x as f32 + 0.5 - from.0, y as f32 + 0.5 - from.1);
                let along = ((px * dx + py * dy) / square).clamp(0.0, 1.0);
                let (ox, oy) = (px - along * dx, py - along * dy);
                let coverage = (reach - (ox * ox + oy * oy).sqrt()).clamp(0.0, 1.0);
                if coverage > 0.0 {
                    let at = y * SIDE + x;
                    self.pixels[at] = mix(self.pixels[at], colour, coverage * alpha(at));
                }
            }
        }
    }

    /// Puts the coverage of an outline into the mask, which is valid in the window returned (and zero elsewhere).
    fn cover(&mut self, path: &Path) -> Window {
        self.mask.data_mut().fill(0);
        self.mask.fill_path(path, FillRule::Winding, true, Transform::identity());
        let bounds = path.bounds();
        window(bounds.left(), bounds.top(), bounds.right(), bounds.bottom())
    }

    /// Darkens an ellipse with a soft edge: the contact shadow.
    pub(crate) fn shadow(&mut self, cx: f32, cy: f32, rx: f32, ry: f32, strength: f32) {
        let [rows, columns] = window(cx - 1.5 * rx, cy - 1.5 * ry, cx + 1.5 * rx, cy + 1.5 * ry);
        for y in rows {
            for x in columns.clone() {
                let (u, v) = ((x as f32 + 0.5 - cx) / rx, (y as f32 + 0.5 - cy) / ry);
                let fade = (1.0 - 0.5 * (u * u + v * v)).max(0.0);
                let keep = 1.0 - strength * fade * fade;
                self.pixels[y * SIDE + x].iter_mut().for_each(|c| *c *= keep);
            }
        }
    }

    /// Adds a field to all channels, each with its own weight.
    pub(crate) fn add(&mut self, field: &[f32], weight: Rgb) {
        for (pixel, value) in self.pixels.iter_mut().zip(field) {
            for channel in 0..3 {
                pixel[channel] += weight[channel] * value;
            }
        }
    }

    /// Adds independent noise to every channel of every pixel.
    pub(crate) fn grain(&mut self, draws: &mut Draws, sigma: f32) {
        for pixel in &mut self.pixels {
            pixel.iter_mut().for_each(|channel| *channel += sigma * draws.normal());
        }
    }

    /// Contrast around the middle, brightness, and a factor per channel.
    pub(crate) fn tone(&mut self, contrast: f32, brightness: f32, cast: Rgb) {
        for pixel in &mut self.pixels {
            for channel in 0..3 {
                pixel[channel] = ((pixel[channel] - 128.0) * contrast + 128.0 + brightness) * cast[channel];
            }
        }
    }

    /// Blurs with a box of `2 * radius + 1` pixels (`radius` may be fractional), three times in each direction.
    pub(crate) fn blur(&mut self, radius: f32) {
        for _ in 0..3 {
            self.box_pass(radius, 1, SIDE);
            self.box_pass(radius, SIDE, 1);
        }
    }

    fn box_pass(&mut self, radius: f32, step: usize, stride: usize) {
        let whole = radius as usize;
        let edge = radius - whole as f32;
        let total = 1.0 + 2.0 * radius;
        let mut row = [[0.0f32; 3]; SIDE];
        for start in (0..SIDE).map(|line| line * stride) {
            for (at, value) in row.iter_mut().enumerate() {
                *value = self.pixels[start + at * step];
            }
            for at in 0..SIDE {
                let pick = |offset: isize| row[(at as isize + offset).clamp(0, SIDE as isize - 1) as usize];
                let mut sum = [0.0f32; 3];
                for offset in -(whole as isize)..=whole as isize {
                    let value = pick(offset);
                    (0..3).for_each(|c| sum[c] += value[c]);
                }
                let (before, after) = (pick(-(whole as isize) - 1), pick(whole as isize + 1));
                (0..3).for_each(|c| sum[c] = (sum[c] + edge * (before[c] + after[c])) / total);
                self.pixels[start + at * step] = sum;
            }
        }
    }

    /// The finished image, three bytes per pixel, row by row.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pixels.iter().flatten().map(|&value| (value + 0.5).clamp(0.0, 255.0) as u8).collect()
    }
}

/// `from` at 0, `to` at 1.
pub(crate) fn mix(from: Rgb, to: Rgb, t: f32) -> Rgb {
    [from[0] + (to[0] - from[0]) * t, from[1] + (to[1] - from[1]) * t, from[2] + (to[2] - from[2]) * t]
}
