//! The image that the image tower sees: scaled, cropped or filled, normalised, as the model was trained.

use super::{Columns, Crop, Image, Interpolation, Mode, Output, Preprocess, ResizeMode, Source};
use crate::Result;

/// When an image that is not RGB becomes RGB. It matters for palettes (which PIL scales without interpolation),
/// transparency (which PIL multiplies in) and CMYK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConvertOrder {
    /// Before scaling, as CoOp, TPT and torchvision's folders do.
    #[default]
    First,
    /// After scaling and cropping, as openai/CLIP and open_clip do.
    Last,
}

/// Bytes to normalised numbers: `(byte / 255 - mean) / std`, from a table per channel.
#[derive(Clone, Debug)]
pub struct Normalise {
    tables: Box<[[f32; 256]; 3]>,
}

impl Default for Normalise {
    fn default() -> Self {
        Self::of(&Preprocess::CLIP)
    }
}

impl Normalise {
    /// With the numbers of a model.
    pub fn of(preprocess: &Preprocess) -> Self {
        Self::new(preprocess.mean, preprocess.std)
    }

    /// With a mean and a standard deviation per channel.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        let value = |c: usize, byte: usize| (byte as f32 / 255.0 - mean[c]) / std[c];
        Self { tables: Box::new(std::array::from_fn(|c| std::array::from_fn(|byte| value(c, byte)))) }
    }

    /// Planes of bytes `[3, height, width]` to planes of numbers; mirrored left to right if `flip`.
    pub fn planes(&self, out: &mut [f32], bytes: &[u8], width: usize, flip: bool) {
        let plane = bytes.len() / 3;
        for (c, table) in self.tables.iter().enumerate() {
            let rows = bytes[c * plane..(c + 1) * plane].chunks_exact(width);
            for (out, row) in out[c * plane..(c + 1) * plane].chunks_exact_mut(width).zip(rows) {
                if flip {
                    out.iter_mut().zip(row.iter().rev()).for_each(|(o, &b)| *o = table[usize::from(b)]);
                } else {
                    out.iter_mut().zip(row).for_each(|(o, &b)| *o = table[usize::from(b)]);
                }
            }
        }
    }
}

/// `[3, size, size]`, normalised with CLIP's numbers.
pub fn preprocess(image: &Image, size: usize) -> Result<Vec<f32>> {
    let columns = Columns::new(&image.rgb, 3, image.width, image.height);
    let bytes = fitted(&columns, [size, size], &Preprocess::CLIP)?;
    let mut out = vec![0.0; bytes.len()];
    Normalise::default().planes(&mut out, &bytes, size, false);
    Ok(out)
}

/// Planes of bytes `[3, height, width]` of an RGB image.
pub(super) fn fitted(columns: &Columns<'_>, size: [usize; 2], how: &Preprocess) -> Result<Vec<u8>> {
    let fit = Fit::new(columns.width(), columns.height(), size, how);
    Ok(fit.filled(fit.resized(columns)?, size, [how.fill; 3]))
}

/// How an image lies in the tower's input.
struct Fit {
    /// The scaled image, and the part of it that is seen.
    output: Output,
    /// Rows and columns of fill before it.
    before: [usize; 2],
    filter: Interpolation,
    resize: ResizeMode,
}

impl Fit {
    fn new(width: usize, height: usize, [high, wide]: [usize; 2], how: &Preprocess) -> Self {
        let square = high == wide;
        let (scaled_width, scaled_height) = match how.resize {
            ResizeMode::Squash => (wide, high),
            ResizeMode::Shortest if square => shorter_side(width, height, high),
            ResizeMode::Shortest => keeping_ratio(width, height, [high, wide], f64::min),
            ResizeMode::Longest => keeping_ratio(width, height, [high, wide], f64::max),
        };
        let (top, seen_height, above) = placed(scaled_height, high);
        let (left, seen_width, beside) = placed(scaled_width, wide);
        let window = Crop { top, left, height: seen_height, width: seen_width };
        // open_clip scales to an input that is not square without naming the filter, which is then bicubic.
        let named = square || how.resize != ResizeMode::Shortest;
        Self {
            output: Output { width: scaled_width, height: scaled_height, window },
            before: [above, beside],
            filter: if named { how.filter } else { Interpolation::Bicubic },
            resize: how.resize,
        }
    }

    /// Planes of the part that is seen. The order of the passes is that of the Pillow of each kind's models: with the shortest
    /// side it matters for downscaled images more than twice as high as wide, and published numbers are older than Pillow 13.
    fn resized(&self, columns: &Columns<'_>) -> Result<Vec<u8>> {
        match self.resize {
            ResizeMode::Shortest => {
                columns.resize(Crop::whole(columns.width(), columns.height()), self.output, self.filter)
            }
            ResizeMode::Squash | ResizeMode::Longest => columns.resize_whole(self.output, self.filter),
        }
    }

    /// The input with what the image leaves open in this colour.
    fn filled(&self, planes: Vec<u8>, [high, wide]: [usize; 2], colour: [u8; 3]) -> Vec<u8> {
        let Crop { height, width, .. } = self.output.window;
        if [height, width] == [high, wide] {
            return planes;
        }
        let mut out: Vec<u8> = colour.into_iter().flat_map(|value| std::iter::repeat_n(value, high * wide)).collect();
        let [above, beside] = self.before;
        for (row, from) in planes.chunks_exact(width).enumerate() {
            let (channel, y) = (row / height, row % height);
            out[(channel * high + above + y) * wide + beside..][..width].copy_from_slice(from);
        }
        out
    }
}

/// Along one axis: where the seen part of the scaled image starts (half pixels go to the even side), its length, and the
/// fill before it.
fn placed(scaled: usize, target: usize) -> (usize, usize, usize) {
    match scaled.checked_sub(target) {
        Some(over) => ((over as f64 / 2.0).round_ties_even() as usize, target, 0),
        None => (0, scaled, (target - scaled) / 2),
    }
}

/// Shorter side to `size`; the longer side is truncated, as torchvision does.
fn shorter_side(width: usize, height: usize, size: usize) -> (usize, usize) {
    let long = |long: usize, short: usize| (size as u128 * long as u128 / short as u128) as usize;
    if width <= height { (size, long(height, width)) } else { (long(width, height), size) }
}

/// The size at which one side reaches its target, rounded as Python does. A side never vanishes.
fn keeping_ratio(width: usize, height: usize, [high, wide]: [usize; 2], which: fn(f64, f64) -> f64) -> (usize, usize) {
    let ratio = which(height as f64 / high as f64, width as f64 / wide as f64);
    let scaled = |side: usize| ((side as f64 / ratio).round_ties_even() as usize).max(1);
    (scaled(width), scaled(height))
}

/// Planes of bytes `[3, height, width]` of a decoded file, converted to RGB before or after scaling.
pub fn preprocess_source(source: &Source, size: [usize; 2], how: &Preprocess, order: ConvertOrder) -> Result<Vec<u8>> {
    let (width, height) = (source.width, source.height);
    if order == ConvertOrder::First {
        return fitted(&Columns::new(&source.to_image().rgb, 3, width, height), size, how);
    }
    let fit = Fit::new(width, height, size, how);
    if source.mode == Mode::Palette {
        // The fill is an index of the palette.
        let at = 3 * usize::from(how.fill);
        let colour = source.palette.get(at..at + 3).and_then(|rgb| rgb.try_into().ok()).unwrap_or([how.fill; 3]);
        return Ok(fit.filled(nearest(source, fit.output), size, colour));
    }
    let channels = source.mode.channels();
    let mut samples = source.samples.clone();
    by_alpha(&mut samples, source.mode, multiply);
    let planes = fit.resized(&Columns::new(&samples, channels, width, height))?;
    // Back to interleaved samples, where the conversions are written.
    let window = fit.output.window;
    let pixels = window.width * window.height;
    let mut samples = vec![0; planes.len()];
    for (i, pixel) in samples.chunks_exact_mut(channels).enumerate() {
        pixel.iter_mut().enumerate().for_each(|(c, value)| *value = planes[c * pixels + i]);
    }
    by_alpha(&mut samples, source.mode, divide);
    let rgb = Source::new(window.width, window.height, source.mode, samples).into_image().rgb;
    let planes = (0..3).flat_map(|c| rgb.iter().skip(c).step_by(3).copied()).collect();
    let fill = Source::new(1, 1, source.mode, vec![how.fill; channels]).into_image().rgb;
    Ok(fit.filled(planes, size, [fill[0], fill[1], fill[2]]))
}

/// Palette images take the nearest pixel; positions are summed up step by step, as PIL does.
fn nearest(source: &Source, output: Output) -> Vec<u8> {
    let places = |input: usize, output: usize, first: usize, count: usize| -> Vec<usize> {
        let step = input as f64 / output as f64;
        let positions = std::iter::successors(Some(step * 0.5), |p| Some(p + step));
        positions.skip(first).take(count).map(|p| (p as usize).min(input - 1)).collect()
    };
    let window = output.window;
    let xs = places(source.width, output.width, window.left, window.width);
    let ys = places(source.height, output.height, window.top, window.height);
    let pixel = |c: usize, y: usize, x: usize| source.samples[(y * source.width + x) * 3 + c];
    let (xs, ys) = (&xs, &ys);
    (0..3).flat_map(|c| ys.iter().flat_map(move |&y| xs.iter().map(move |&x| pixel(c, y, x)))).collect()
}

/// Changes the colours of every pixel by its opacity, if the mode has one.
fn by_alpha(samples: &mut [u8], mode: Mode, change: impl Fn(u8, u8) -> u8) {
    if !mode.has_alpha() {
        return;
    }
    for pixel in samples.chunks_exact_mut(mode.channels()) {
        if let Some((&mut alpha, colours)) = pixel.split_last_mut() {
            colours.iter_mut().for_each(|c| *c = change(*c, alpha));
        }
    }
}

/// The inverse of [`multiply`]; what is transparent stays.
fn divide(colour: u8, alpha: u8) -> u8 {
    match alpha {
        1..=254 => (255 * u32::from(colour) / u32::from(alpha)).min(255) as u8,
        _ => colour,
    }
}

/// `a * b / 255`, rounded.
pub(super) fn multiply(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_truncate_and_centres_round_to_even() {
        let fit = |width, height, size, resize| {
            let Fit { output, before, .. } = Fit::new(width, height, size, &Preprocess { resize, ..Preprocess::CLIP });
            let w = output.window;
            ([output.width, output.height], [w.left, w.top, w.width, w.height], before)
        };
        use ResizeMode::{Longest, Shortest, Squash};
        assert_eq!(fit(200, 31, [224, 224], Shortest), ([1445, 224], [610, 0, 224, 224], [0, 0]));
        assert_eq!(fit(57, 83, [32, 32], Shortest).1[1], 7);
        assert_eq!(fit(3, 3, [7, 7], Shortest), ([7, 7], [0, 0, 7, 7], [0, 0]));
        assert_eq!(fit(57, 83, [20, 30], Squash), ([30, 20], [0, 0, 30, 20], [0, 0]));
        assert_eq!(fit(57, 83, [36, 36], Longest), ([25, 36], [0, 0, 25, 36], [0, 5]));
        // Neither side of an input that is not square is exceeded, and a thin image keeps a row.
        assert_eq!(fit(100, 50, [30, 40], Shortest), ([60, 30], [10, 0, 40, 30], [0, 0]));
        assert_eq!(fit(1000, 1, [10, 10], Longest), ([10, 1], [0, 0, 10, 1], [4, 0]));
    }

    #[test]
    fn the_fill_is_a_palette_index_ink_or_a_byte() {
        let how = Preprocess { resize: ResizeMode::Longest, fill: 1, ..Preprocess::CLIP };
        let first = |mode: Mode, palette: Vec<u8>| {
            let source = Source { palette, ..Source::new(4, 1, mode, vec![9; 4 * mode.channels()]) };
            let out = preprocess_source(&source, [4, 4], &how, ConvertOrder::Last).unwrap();
            [out[0], out[16], out[32]]
        };
        assert_eq!(first(Mode::Rgb, vec![]), [1, 1, 1]);
        assert_eq!(first(Mode::Palette, vec![5, 6, 7, 8, 9, 10]), [8, 9, 10]);
        assert_eq!(first(Mode::Palette, vec![5, 6, 7]), [1, 1, 1]);
        assert_eq!(first(Mode::Cmyk, vec![]), [253, 253, 253]);
    }

    #[test]
    fn normalising_uses_each_channels_numbers_and_flips_rows() {
        let normalise = Normalise::new([0.5, 0.0, 0.0], [1.0, 0.5, 1.0]);
        let mut out = vec![0.0; 6];
        normalise.planes(&mut out, &[0, 255, 0, 255, 51, 0], 2, true);
        assert_eq!(out, [0.5, -0.5, 2.0, 0.0, 0.0, 0.2]);
    }

    #[test]
    fn transparency_weighs_in_only_when_conversion_comes_last() {
        let source = Source::new(2, 2, Mode::Rgba, [255, 0, 0, 255, 0, 0, 255, 0].repeat(2));
        let of = |order| preprocess_source(&source, [1, 1], &Preprocess::CLIP, order).unwrap();
        assert_eq!((of(ConvertOrder::First), of(ConvertOrder::Last)), (vec![128, 0, 128], vec![255, 0, 0]));
    }
}
