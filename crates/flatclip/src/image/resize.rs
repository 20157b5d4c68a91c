//! PIL's resampler, byte for byte: two passes of fixed-point weights, horizontal first, bytes in between.
//!
//! Both passes are weighted sums of contiguous bytes, so the first needs the image as columns (see [`Columns`]). That layout
//! is made once per image and shared by all its views; a crop is an offset, not a copy. A large image would be held twice
//! by it: there each view makes the columns of some rows at a time.

use crate::architecture::Interpolation;
use crate::{Error, Result};
use flatclip_tensor::pixels::{WEIGHT_BITS, blend_rows, transpose};

impl Interpolation {
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Bilinear if x < 1.0 => 1.0 - x,
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            _ => 0.0,
        }
    }
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Crop {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Crop {
    /// All of a `width x height` image.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { top: 0, left: 0, height, width }
    }

    fn check(&self, width: usize, height: usize) -> Result<()> {
        let fits =
            |start: usize, len: usize, limit: usize| len > 0 && start.checked_add(len).is_some_and(|end| end <= limit);
        if fits(self.left, self.width, width) && fits(self.top, self.height, height) {
            return Ok(());
        }
        Err(Error::config("crop", format!("expected a part of a {width} x {height} image, found {self:?}")))
    }
}

/// What a resize makes: an image of `width x height`, of which only `window` is computed.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Columns of the whole result.
    pub width: usize,
    /// Rows of the whole result.
    pub height: usize,
    /// The part that is wanted.
    pub window: Crop,
}

impl Output {
    /// All of a `width x height` result.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { width, height, window: Crop::whole(width, height) }
    }
}

/// Pixels up to which a second copy of an image, in columns, is worth its memory (four bytes a pixel while it is made).
const COPIED: usize = 12 << 20;
/// Rows that are turned into columns at a time where there is no copy.
const STRIP: usize = 64;

/// An image whose columns can be read: byte `x * stride + y` of a channel is pixel (x, y).
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    width: usize,
    height: usize,
    channels: usize,
    samples: Samples<'a>,
}

#[derive(Clone, Debug)]
enum Samples<'a> {
    /// Columns, a plane for each channel.
    Planes(Vec<Vec<u8>>),
    /// Rows of interleaved samples, as they came.
    Rows(&'a [u8]),
}

impl<'a> Columns<'a> {
    /// From rows of interleaved samples.
    ///
    /// # Panics
    /// If `samples` is not `width x height x channels` bytes.
    pub fn new(samples: &'a [u8], channels: usize, width: usize, height: usize) -> Self {
        assert_eq!(samples.len(), width * height * channels, "samples of a {width} x {height} x {channels} image");
        let rows = Self { width, height, channels, samples: Samples::Rows(samples) };
        if width * height > COPIED {
            return rows;
        }
        let plane = |channel| rows.strip(samples, channel, Crop::whole(width, height));
        Self { samples: Samples::Planes((0..channels).map(plane).collect()), ..rows }
    }

    /// The columns of a part of the image, from its rows.
    fn strip(&self, samples: &[u8], channel: usize, part: Crop) -> Vec<u8> {
        let mut rows = Vec::with_capacity(part.width * part.height);
        for y in part.top..part.top + part.height {
            let row = &samples[(y * self.width + part.left) * self.channels..][..part.width * self.channels];
            rows.extend(row.iter().skip(channel).step_by(self.channels));
        }
        let mut columns = vec![0; rows.len()];
        transpose(&mut columns, part.height, &rows, part.width, part.height, part.width);
        columns
    }

    /// Columns of the image.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of the image.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Scales `crop` to `output`: planes of rows, `[channels, window.height, window.width]`.
    pub fn resize(&self, crop: Crop, output: Output, interpolation: Interpolation) -> Result<Vec<u8>> {
        crop.check(self.width, self.height)?;
        let window = output.window;
        window.check(output.width, output.height)?;
        let across = Taps::new(crop.width, output.width, window.left, window.width, interpolation);
        let down = Taps::new(crop.height, output.height, window.top, window.height, interpolation);
        // Only the rows that the vertical pass reads go through the horizontal one.
        let (first, end) = down.span();
        let rows = end - first;
        let (wide, high) = (window.width, window.height);
        let mut out = vec![0; self.channels * wide * high];
        let mut middle = vec![0; wide * rows];
        for (channel, out) in out.chunks_exact_mut(wide * high).enumerate() {
            let part = Crop { top: crop.top + first, height: rows, ..crop };
            self.pass_across(channel, part, &across, window.left, &mut middle);
            if down.is_identity {
                // The span reaches beyond the window by the filter's width.
                let skipped = (window.top - first) * wide;
                out.copy_from_slice(&middle[skipped..skipped + wide * high]);
                continue;
            }
            for (y, row) in out.chunks_exact_mut(wide).enumerate() {
                let (start, weights) = down.of(y);
                blend_rows(row, &middle[(start - first) * wide..], wide, weights);
            }
        }
        Ok(out)
    }

    /// Scales the whole image with the vertical pass first where that removes more than twice as many rows as columns, as
    /// Pillow does since 13. Earlier versions, and [`Columns::resize`], begin with the horizontal pass: some bytes differ by 1.
    pub(super) fn resize_whole(&self, output: Output, interpolation: Interpolation) -> Result<Vec<u8>> {
        let (width, high) = (self.width, output.height);
        let removed = |from: usize, to: usize| from as i64 - to as i64;
        if removed(self.height, high) <= 2 * removed(width, output.width).max(0) {
            return self.resize(Crop::whole(width, self.height), output, interpolation);
        }
        let rows = self.resize(Crop::whole(width, self.height), Output::whole(width, high), interpolation)?;
        let plane = |rows: &[u8]| {
            let mut columns = vec![0; rows.len()];
            transpose(&mut columns, high, rows, width, high, width);
            columns
        };
        let samples = Samples::Planes(rows.chunks_exact(width * high).map(plane).collect());
        let scaled = Self { width, height: high, channels: self.channels, samples };
        scaled.resize(Crop::whole(width, high), output, interpolation)
    }

    /// The horizontal pass over a part of the image: rows of `out`, as wide as there are taps.
    fn pass_across(&self, channel: usize, part: Crop, across: &Taps, left: usize, out: &mut [u8]) {
        let wide = across.starts.len();
        let pass = |out: &mut [u8], source: &[u8], stride: usize, rows: usize| {
            if across.is_identity {
                return transpose(out, wide, &source[left * stride..], stride, wide, rows);
            }
            let mut columns = vec![0; wide * rows];
            for (x, column) in columns.chunks_exact_mut(rows).enumerate() {
                let (start, weights) = across.of(x);
                blend_rows(column, &source[start * stride..], stride, weights);
            }
            transpose(out, wide, &columns, rows, wide, rows);
        };
        match &self.samples {
            Samples::Planes(planes) => {
                pass(out, &planes[channel][part.left * self.height + part.top..], self.height, part.height);
            }
            Samples::Rows(samples) => {
                for (strip, out) in out.chunks_mut(wide * STRIP).enumerate() {
                    let rows = out.len() / wide;
                    let part = Crop { top: part.top + strip * STRIP, height: rows, ..part };
                    pass(out, &self.strip(samples, channel, part), rows, rows);
                }
            }
        }
    }
}

/// Which inputs make an output of one axis, and with what weights.
struct Taps {
    /// First input of each output, and where its weights are.
    starts: Vec<(usize, std::ops::Range<usize>)>,
    weights: Vec<i32>,
    is_identity: bool,
}

impl Taps {
    fn new(input: usize, output: usize, first: usize, count: usize, filter: Interpolation) -> Self {
        let scale = input as f64 / output as f64;
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let per_unit = 1.0 / stretch;
        let mut taps = Self { starts: Vec::with_capacity(count), weights: Vec::new(), is_identity: input == output };
        let mut exact = Vec::new();
        for place in first..first + count {
            let centre = (place as f64 + 0.5) * scale;
            // Casts truncate towards zero and saturate, which is also the clamp to the first pixel.
            let start = (centre - support + 0.5) as usize;
            let end = ((centre + support + 0.5) as usize).min(input);
            exact.clear();
            exact.extend((start..end).map(|i| filter.weight((i as f64 - centre + 0.5) * per_unit)));
            let sum: f64 = exact.iter().sum();
            let from = taps.weights.len();
            taps.weights.extend(exact.iter().map(|&w| fixed_point(if sum == 0.0 { w } else { w / sum })));
            taps.starts.push((start, from..taps.weights.len()));
        }
        taps
    }

    fn of(&self, output: usize) -> (usize, &[i32]) {
        let (start, weights) = &self.starts[output];
        (*start, &self.weights[weights.clone()])
    }

    /// The inputs that any output reads, first and end.
    fn span(&self) -> (usize, usize) {
        let first = self.starts.iter().map(|(start, _)| *start).min().unwrap_or(0);
        let end = self.starts.iter().map(|(start, weights)| start + weights.len()).max().unwrap_or(0);
        (first, end)
    }
}

/// Round half away from zero.
fn fixed_point(weight: f64) -> i32 {
    let scaled = weight * f64::from(1 << WEIGHT_BITS);
    (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize) -> Vec<u8> {
        let mut stream = crate::rng::Stream::new(5, &["noise"]);
        (0..n).map(|_| stream.bits() as u8).collect()
    }

    /// The same formula, pixel by pixel, without any layout.
    fn oracle(rgb: &[u8], width: usize, crop: Crop, out: (usize, usize), filter: Interpolation) -> Vec<u8> {
        let across = Taps::new(crop.width, out.0, 0, out.0, filter);
        let down = Taps::new(crop.height, out.1, 0, out.1, filter);
        let clip = |sum: i64| ((sum + (1 << 21)) >> 22).clamp(0, 255);
        let mut result = Vec::new();
        for c in 0..3 {
            let row = |y: usize, x: usize| {
                let (start, weights) = across.of(x);
                let pixel = |k: usize| i64::from(rgb[((crop.top + y) * width + crop.left + start + k) * 3 + c]);
                clip(weights.iter().enumerate().map(|(k, &w)| pixel(k) * i64::from(w)).sum())
            };
            for (y, x) in (0..out.1).flat_map(|y| (0..out.0).map(move |x| (y, x))) {
                let (start, weights) = down.of(y);
                result
                    .push(clip(weights.iter().enumerate().map(|(k, &w)| row(start + k, x) * i64::from(w)).sum()) as u8);
            }
        }
        result
    }

    #[test]
    fn passes_equal_the_formula_up_down_and_unchanged() {
        let (width, height) = (53, 171);
        let rgb = noise(width * height * 3);
        let rows = Columns { width, height, channels: 3, samples: Samples::Rows(&rgb) };
        let copied = Columns::new(&rgb, 3, width, height);
        assert!(matches!(copied.samples, Samples::Planes(_)));
        let crop = Crop { top: 3, left: 7, height: 160, width: 40 };
        for filter in [Interpolation::Bilinear, Interpolation::Bicubic] {
            for out in [(16, 16), (40, 160), (40, 12), (64, 160), (90, 200), (1, 1)] {
                let expected = oracle(&rgb, width, crop, out, filter);
                for columns in [&rows, &copied] {
                    let found = columns.resize(crop, Output::whole(out.0, out.1), filter).unwrap();
                    assert_eq!(found, expected, "{filter:?} {out:?}");
                }
            }
        }
    }

    /// Also where an axis keeps its size and is only cut, as with an image whose shorter side has the wanted size already.
    #[test]
    fn a_window_is_a_part_of_the_whole_result() {
        let rgb = noise(60 * 50 * 3);
        let columns = Columns { width: 60, height: 50, channels: 3, samples: Samples::Rows(&rgb) };
        for (wide, high) in [(33, 22), (60, 22), (33, 50), (60, 50)] {
            let full = Output::whole(wide, high);
            let whole = columns.resize(Crop::whole(60, 50), full, Interpolation::Bicubic).unwrap();
            let window = Crop { top: 4, left: 6, height: 9, width: 11 };
            let output = Output { width: wide, height: high, window };
            let part = columns.resize(Crop::whole(60, 50), output, Interpolation::Bicubic).unwrap();
            for (c, y, x) in (0..3).flat_map(|c| (0..9).flat_map(move |y| (0..11).map(move |x| (c, y, x)))) {
                assert_eq!(part[(c * 9 + y) * 11 + x], whole[(c * high + y + 4) * wide + x + 6], "{wide} x {high}");
            }
        }
    }

    #[test]
    fn a_crop_outside_is_an_error() {
        let columns = Columns::new(&[0; 12], 3, 2, 2);
        for crop in [Crop { top: 0, left: 1, height: 2, width: 2 }, Crop { top: 0, left: 0, height: 0, width: 2 }] {
            assert_eq!(
                columns.resize(crop, Output::whole(4, 4), Interpolation::Bilinear).unwrap_err().code(),
                "option.invalid"
            );
        }
    }
}
