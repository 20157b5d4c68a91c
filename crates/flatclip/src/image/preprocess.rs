//! The image that the image tower sees: shorter side to size, centre crop, normalised.

use super::{Columns, Crop, Image, Interpolation, Mode, Output, Source};
use crate::Result;
use crate::architecture::{CLIP_MEAN, CLIP_STD};

/// When an image that is not RGB becomes RGB. It matters for palettes (which PIL scales without interpolation),
/// transparency (which PIL multiplies in) and CMYK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConvertOrder {
    /// Before scaling, as CoOp, TPT and torchvision's folders do.
    #[default]
    First,
    /// After scaling and cropping, as openai/CLIP does.
    Last,
}

/// Bytes to normalised numbers: `(byte / 255 - mean) / std`, from a table per channel.
#[derive(Clone, Debug)]
pub struct Normalise {
    tables: Box<[[f32; 256]; 3]>,
}

impl Default for Normalise {
    fn default() -> Self {
        Self::new(CLIP_MEAN, CLIP_STD)
    }
}

impl Normalise {
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
    let bytes = preprocess_bytes(image, size)?;
    let mut out = vec![0.0; bytes.len()];
    Normalise::default().planes(&mut out, &bytes, size, false);
    Ok(out)
}

/// Planes of bytes `[3, size, size]`: shorter side to `size` (bicubic), centre crop.
pub(crate) fn preprocess_bytes(image: &Image, size: usize) -> Result<Vec<u8>> {
    centre(&Columns::new(&image.rgb, 3, image.width, image.height), size, Interpolation::Bicubic)
}

/// Shorter side to `size`, centre crop, on prepared columns.
pub(super) fn centre(columns: &Columns<'_>, size: usize, interpolation: Interpolation) -> Result<Vec<u8>> {
    let (width, height) = (columns.width(), columns.height());
    columns.resize(Crop::whole(width, height), shorter_side(width, height, size), interpolation)
}

/// The scaled size (the longer side is truncated) and its centre (half pixels go to the even side), as torchvision.
fn shorter_side(width: usize, height: usize, size: usize) -> Output {
    let long = |long: usize, short: usize| (size as u128 * long as u128 / short as u128) as usize;
    let (wide, high) = if width <= height { (size, long(height, width)) } else { (long(width, height), size) };
    let start = |len: usize| ((len - size) as f64 / 2.0).round_ties_even() as usize;
    let window = Crop { top: start(high), left: start(wide), height: size, width: size };
    Output { width: wide, height: high, window }
}

/// Planes of bytes `[3, size, size]` of a decoded file, converted to RGB before or after scaling.
pub fn preprocess_source(source: &Source, size: usize, order: ConvertOrder) -> Result<Vec<u8>> {
    let (width, height) = (source.width, source.height);
    if order == ConvertOrder::First {
        return preprocess_bytes(&source.to_image(), size);
    }
    if source.mode == Mode::Palette {
        return Ok(nearest_centre(source, shorter_side(width, height, size)));
    }
    let channels = source.mode.channels();
    let mut samples = source.samples.clone();
    multiply_alpha(&mut samples, source.mode);
    let planes = centre(&Columns::new(&samples, channels, width, height), size, Interpolation::Bicubic)?;
    // Back to interleaved samples, where the conversions are written.
    let pixels = size * size;
    let mut samples = vec![0; planes.len()];
    for (i, pixel) in samples.chunks_exact_mut(channels).enumerate() {
        pixel.iter_mut().enumerate().for_each(|(c, value)| *value = planes[c * pixels + i]);
    }
    divide_alpha(&mut samples, source.mode);
    let scaled = Source { width: size, height: size, mode: source.mode, samples };
    let rgb = scaled.to_image().rgb;
    Ok((0..3).flat_map(|c| rgb.iter().skip(c).step_by(3).copied()).collect())
}

/// Palette images take the nearest pixel; positions are summed up step by step, as PIL does.
fn nearest_centre(source: &Source, output: Output) -> Vec<u8> {
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

fn multiply_alpha(samples: &mut [u8], mode: Mode) {
    if !mode.has_alpha() {
        return;
    }
    for pixel in samples.chunks_exact_mut(mode.channels()) {
        if let Some((alpha, colours)) = pixel.split_last_mut() {
            colours.iter_mut().for_each(|c| *c = multiply(*c, *alpha));
        }
    }
}

fn divide_alpha(samples: &mut [u8], mode: Mode) {
    if !mode.has_alpha() {
        return;
    }
    for pixel in samples.chunks_exact_mut(mode.channels()) {
        if let Some((&mut alpha @ 1..=254, colours)) = pixel.split_last_mut() {
            colours.iter_mut().for_each(|c| *c = (255 * u32::from(*c) / u32::from(alpha)).min(255) as u8);
        }
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
        let output = shorter_side(200, 31, 224);
        assert_eq!((output.width, output.height, output.window.left, output.window.top), (1445, 224, 610, 0));
        assert_eq!(shorter_side(57, 83, 32).window.top, 7);
        assert_eq!(shorter_side(3, 3, 7).window, Crop::whole(7, 7));
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
        let source =
            Source { width: 2, height: 2, mode: Mode::Rgba, samples: [255, 0, 0, 255, 0, 0, 255, 0].repeat(2) };
        let first = preprocess_source(&source, 1, ConvertOrder::First).unwrap();
        let last = preprocess_source(&source, 1, ConvertOrder::Last).unwrap();
        assert_eq!((first, last), (vec![128, 0, 128], vec![255, 0, 0]));
    }
}
