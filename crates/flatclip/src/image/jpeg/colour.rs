//! From rows of blocks to rows of pixels: upsampling with the triangle filter, and the conversion to RGB. Only the few rows
//! of samples that the next pixels need are kept.

use super::super::preprocess::multiply;
use super::coefficients::Coefficients;
use super::{Component, Frame, Mode, idct};
use std::ops::Range;

/// What the components of a frame mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    Grey,
    Rgb,
    /// YCbCr.
    Luma,
    /// Stored inverted, as Adobe does.
    Cmyk,
    /// YCbCr of inverted inks, and black.
    LumaBlack,
}

impl Colours {
    fn mode(self) -> Mode {
        match self {
            Self::Grey => Mode::Luma,
            Self::Rgb | Self::Luma => Mode::Rgb,
            Self::Cmyk | Self::LumaBlack => Mode::Cmyk,
        }
    }
}

/// Rows of samples of one component: a window that moves down the image.
struct Plane {
    stride: usize,
    /// Number of the first row.
    first: usize,
    rows: Vec<u8>,
    /// How many times fewer samples than pixels there are.
    across: usize,
    down: usize,
    width: usize,
    height: usize,
    /// A row at full width.
    line: Vec<u8>,
    sums: Vec<u16>,
}

/// Takes rows of blocks and gives pixels.
pub(super) struct Painter {
    width: usize,
    height: usize,
    planes: Vec<Plane>,
    colours: Colours,
    /// Inks become RGB at once.
    as_rgb: bool,
    next: usize,
    out: Vec<u8>,
}

impl Painter {
    pub(super) fn new(frame: &Frame, colours: Colours, as_rgb: bool) -> Result<Self, String> {
        let plane = |component: &Component| {
            let (most_across, most_down) = (frame.most_across, frame.most_down);
            if !most_across.is_multiple_of(component.across) || !most_down.is_multiple_of(component.down) {
                return Err("sampling factors that do not divide each other".to_owned());
            }
            Ok(Plane {
                stride: component.block_columns * 8,
                first: 0,
                rows: Vec::new(),
                across: most_across / component.across,
                down: most_down / component.down,
                width: component.width,
                height: component.height,
                line: vec![0; (most_across / component.across).max(2) * component.width.max(frame.width)],
                sums: vec![0; component.width],
            })
        };
        let planes = frame.components.iter().map(plane).collect::<Result<Vec<_>, _>>()?;
        let (width, height) = (frame.width, frame.height);
        let mut painter = Self { width, height, planes, colours, as_rgb, next: 0, out: Vec::new() };
        painter.out.reserve_exact(width * height * painter.mode().channels());
        Ok(painter)
    }

    fn mode(&self) -> Mode {
        let mode = self.colours.mode();
        if self.as_rgb && mode == Mode::Cmyk { Mode::Rgb } else { mode }
    }

    /// Takes the next rows of blocks of each component, and paints every row whose samples are there.
    pub(super) fn paint(
        &mut self,
        frame: &Frame,
        blocks: &[Coefficients],
        rows: impl Fn(&Component) -> Range<usize>,
    ) -> Result<(), String> {
        for ((component, blocks), plane) in frame.components.iter().zip(blocks).zip(&mut self.planes) {
            let table = component.table.as_ref().ok_or("a quantization table is missing")?;
            for row in rows(component) {
                let old = plane.rows.len();
                plane.rows.resize(old + plane.stride * 8, 0);
                idct::samples(blocks.row(row), table, &mut plane.rows[old..]);
            }
        }
        while self.next < self.height && self.planes.iter().all(|plane| plane.has(self.next)) {
            for plane in &mut self.planes {
                plane.upsample(self.next);
            }
            self.convert();
            self.next += 1;
        }
        for plane in &mut self.planes {
            plane.forget(self.next);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(Mode, Vec<u8>), String> {
        if self.next < self.height {
            return Err("the image's rows are not complete".into());
        }
        Ok((self.mode(), self.out))
    }

    fn convert(&mut self) {
        let (width, out) = (self.width, &mut self.out);
        let line = |plane: usize| self.planes[plane].line[..width].iter().copied();
        match self.colours {
            Colours::Grey => out.extend(line(0)),
            Colours::Rgb | Colours::Luma => {
                let luma = self.colours == Colours::Luma;
                let start = out.len();
                out.resize(start + 3 * width, 0);
                for (to, ((y, cb), cr)) in out[start..].chunks_exact_mut(3).zip(line(0).zip(line(1)).zip(line(2))) {
                    to.copy_from_slice(&if luma { rgb(y, cb, cr) } else { [y, cb, cr] });
                }
            }
            Colours::Cmyk | Colours::LumaBlack => {
                let luma = self.colours == Colours::LumaBlack;
                for (((c, m), y), k) in line(0).zip(line(1)).zip(line(2)).zip(line(3)) {
                    let inks = if luma { rgb(c, m, y) } else { [255 - c, 255 - m, 255 - y] };
                    if self.as_rgb {
                        // `k` is the light that black lets through.
                        out.extend(inks.map(|ink| k - multiply(ink, k)));
                    } else {
                        out.extend([inks[0], inks[1], inks[2], 255 - k]);
                    }
                }
            }
        }
    }
}

impl Plane {
    fn row(&self, y: usize) -> &[u8] {
        &self.rows[(y - self.first) * self.stride..][..self.width]
    }

    /// Rows of samples that row `y` of the image is made of: its own, and the neighbour above for the upper half of a row,
    /// below for the lower; the edge repeats itself.
    fn sources(&self, y: usize) -> (usize, usize) {
        let source = y / self.down;
        let near = if y.is_multiple_of(2) { source.saturating_sub(1) } else { source + 1 };
        (source, near.min(self.height - 1))
    }

    fn has(&self, y: usize) -> bool {
        let (source, near) = self.sources(y);
        source.max(near) < self.first + self.rows.len() / self.stride
    }

    /// Drops the rows that no later row of the image needs.
    fn forget(&mut self, next: usize) {
        let needed = (next / self.down).saturating_sub(1);
        let dropped = needed.saturating_sub(self.first).min(self.rows.len() / self.stride);
        self.rows.drain(..dropped * self.stride);
        self.first += dropped;
    }

    fn upsample(&mut self, y: usize) {
        let (source, near) = self.sources(y);
        let bias = if y.is_multiple_of(2) { 1 } else { 2 };
        let (mut line, mut sums) = (std::mem::take(&mut self.line), std::mem::take(&mut self.sums));
        // Narrow images are not filtered along x.
        let wide = self.width > 2;
        match (self.across, self.down) {
            (1, 1) => line[..self.width].copy_from_slice(self.row(source)),
            (2, 1) if wide => double(self.row(source), &mut line),
            (1, 2) => {
                for (to, (&a, &b)) in line.iter_mut().zip(self.row(source).iter().zip(self.row(near))) {
                    *to = ((u16::from(a) * 3 + u16::from(b) + bias) >> 2) as u8;
                }
            }
            (2, 2) if wide => {
                for (sum, (&a, &b)) in sums.iter_mut().zip(self.row(source).iter().zip(self.row(near))) {
                    *sum = u16::from(a) * 3 + u16::from(b);
                }
                double_sums(&sums, &mut line);
            }
            _ => line
                .iter_mut()
                .zip(self.row(source).iter().flat_map(|v| std::iter::repeat_n(v, self.across)))
                .for_each(|(to, v)| *to = *v),
        }
        (self.line, self.sums) = (line, sums);
    }
}

/// Twice as wide: three parts of the nearer sample, one of the farther; the two roundings alternate.
fn double(row: &[u8], out: &mut [u8]) {
    let last = row.len() - 1;
    let mix = |near: u8, far: u8, bias: u16| ((u16::from(near) * 3 + u16::from(far) + bias) >> 2) as u8;
    out[0] = row[0];
    out[2 * last + 1] = row[last];
    for (pair, out) in row.windows(2).zip(out[1..].chunks_exact_mut(2)) {
        out[0] = mix(pair[0], pair[1], 2);
        out[1] = mix(pair[1], pair[0], 1);
    }
}

/// The same on column sums that carry four times the value.
fn double_sums(sums: &[u16], out: &mut [u8]) {
    let last = sums.len() - 1;
    out[0] = ((sums[0] * 4 + 8) >> 4) as u8;
    out[2 * last + 1] = ((sums[last] * 4 + 7) >> 4) as u8;
    for (pair, out) in sums.windows(2).zip(out[1..].chunks_exact_mut(2)) {
        out[0] = ((pair[0] * 3 + pair[1] + 7) >> 4) as u8;
        out[1] = ((pair[1] * 3 + pair[0] + 8) >> 4) as u8;
    }
}

/// The 16-bit fixed-point tables of libjpeg, as arithmetic.
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|v| v.clamp(0, 255) as u8)
}
