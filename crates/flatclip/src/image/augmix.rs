//! AugMix as TPT uses it (Hendrycks et al. 2020): three short chains of mild operations, mixed with the crop itself.
//!
//! `view = m * norm(x) + (1 - m) * sum_i w_i * norm(chain_i(x))`, w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1); the mixing is
//! done on normalised numbers. Operations work on bytes and equal PIL's. Note that m weighs the crop without chains.

use super::Normalise;
use crate::rng::Stream;

/// Chains per view.
pub(crate) const CHAINS: usize = 3;

/// An operation on the bytes of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Stretches each channel to the full range.
    Autocontrast,
    /// Flattens each channel's histogram.
    Equalize,
    /// Keeps the high bits.
    Posterize,
    /// Turns about the centre.
    Rotate,
    /// Inverts what is bright.
    Solarize,
    /// Slants along x.
    ShearX,
    /// Slants along y.
    ShearY,
    /// Moves along x.
    TranslateX,
    /// Moves along y.
    TranslateY,
}

impl Operation {
    /// All nine; a chain draws from these with equal chance.
    pub const ALL: [Self; 9] = [
        Self::Autocontrast,
        Self::Equalize,
        Self::Posterize,
        Self::Rotate,
        Self::Solarize,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
    ];

    /// Whether the operation has a direction, which is drawn.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Rotate | Self::ShearX | Self::ShearY | Self::TranslateX | Self::TranslateY)
    }
}

/// An operation with its strength.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Step {
    /// What is done.
    pub operation: Operation,
    /// How strongly: 0.1 to the severity, of 10.
    pub level: f64,
    /// The other direction.
    pub negative: bool,
}

/// The draws of one view.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Mix {
    /// Three chains of one to three steps.
    pub chains: Vec<Vec<Step>>,
    /// Weight of each chain; they sum to one.
    pub weights: [f32; CHAINS],
    /// Weight of the crop without chains.
    pub own: f32,
}

impl Mix {
    /// Weights, own weight, then per chain its depth and per step operation, level and (where it has one) direction.
    pub fn draw(severity: f64, stream: &mut Stream) -> Self {
        // Exponential draws, normalised, are Dirichlet(1, 1, 1).
        let draws: [f64; CHAINS] = std::array::from_fn(|_| -(1.0 - stream.unit()).ln());
        let sum: f64 = draws.iter().sum();
        let weights = draws.map(|d| if sum > 0.0 { (d / sum) as f32 } else { 1.0 / CHAINS as f32 });
        let own = stream.unit() as f32;
        let step = |stream: &mut Stream| {
            let operation = Operation::ALL[stream.below(Operation::ALL.len())];
            let level = stream.uniform(0.1, severity);
            Step { operation, level, negative: operation.is_signed() && stream.unit() > 0.5 }
        };
        let chains = (0..CHAINS).map(|_| (0..1 + stream.below(3)).map(|_| step(stream)).collect()).collect();
        Self { chains, weights, own }
    }

    /// Mixes a crop (planes of bytes `[3, size, size]`) into normalised numbers.
    pub fn apply(&self, crop: &[u8], size: usize, normalise: &Normalise, out: &mut [f32]) {
        let mut sum = vec![0.0f32; crop.len()];
        let mut numbers = vec![0.0f32; crop.len()];
        for (chain, &weight) in self.chains.iter().zip(&self.weights) {
            let bytes = chain.iter().fold(crop.to_vec(), |bytes, step| step.apply(&bytes, size));
            normalise.planes(&mut numbers, &bytes, size, false);
            sum.iter_mut().zip(&numbers).for_each(|(s, n)| *s += weight * n);
        }
        normalise.planes(out, crop, size, false);
        out.iter_mut().zip(&sum).for_each(|(o, s)| *o = self.own * *o + (1.0 - self.own) * s);
    }
}

impl Step {
    /// The step on planes of bytes `[3, size, size]`.
    pub fn apply(&self, planes: &[u8], size: usize) -> Vec<u8> {
        let sign = if self.negative { -1.0 } else { 1.0 };
        // Whole parameters are truncated, as the original's int() does.
        let whole = |largest: f64| (self.level * largest / 10.0).trunc();
        let shear = sign * (self.level * 0.3 / 10.0);
        let shift = sign * whole(size as f64 / 3.0);
        match self.operation {
            Operation::Autocontrast => by_table(planes, size, autocontrast_table),
            Operation::Equalize => by_table(planes, size, equalize_table),
            Operation::Posterize => {
                let bits = (4.0 - whole(4.0)).clamp(0.0, 8.0) as u32;
                let mask = (0xff00u32 >> bits) as u8;
                planes.iter().map(|v| v & mask).collect()
            }
            Operation::Solarize => {
                let threshold = 256.0 - whole(256.0);
                planes.iter().map(|&v| if f64::from(v) < threshold { v } else { 255 - v }).collect()
            }
            Operation::Rotate => rotate(planes, size, sign * whole(30.0)),
            Operation::ShearX => affine(planes, size, [1.0, shear, 0.0, 0.0, 1.0, 0.0]),
            Operation::ShearY => affine(planes, size, [1.0, 0.0, 0.0, shear, 1.0, 0.0]),
            Operation::TranslateX => affine(planes, size, [1.0, 0.0, shift, 0.0, 1.0, 0.0]),
            Operation::TranslateY => affine(planes, size, [1.0, 0.0, 0.0, 0.0, 1.0, shift]),
        }
    }
}

fn by_table(planes: &[u8], size: usize, table: fn(&[usize; 256]) -> Option<[u8; 256]>) -> Vec<u8> {
    let mut out = planes.to_vec();
    for plane in out.chunks_exact_mut(size * size) {
        let mut counts = [0usize; 256];
        plane.iter().for_each(|&v| counts[usize::from(v)] += 1);
        if let Some(table) = table(&counts) {
            plane.iter_mut().for_each(|v| *v = table[usize::from(*v)]);
        }
    }
    out
}

fn autocontrast_table(counts: &[usize; 256]) -> Option<[u8; 256]> {
    let low = counts.iter().position(|&n| n > 0)?;
    let high = counts.iter().rposition(|&n| n > 0)?;
    if high <= low {
        return None;
    }
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    // Casts truncate towards zero and saturate.
    Some(std::array::from_fn(|i| (i as f64 * scale + offset) as u8))
}

fn equalize_table(counts: &[usize; 256]) -> Option<[u8; 256]> {
    let last = counts.iter().rev().find(|&&n| n > 0)?;
    let step = (counts.iter().sum::<usize>() - last) / 255;
    if step == 0 {
        return None;
    }
    let mut sum = step / 2;
    Some(std::array::from_fn(|i| {
        let value = (sum / step).min(255) as u8;
        sum += counts[i];
        value
    }))
}

/// Counter-clockwise about the centre.
fn rotate(planes: &[u8], size: usize, degrees: f64) -> Vec<u8> {
    let degrees = degrees.rem_euclid(360.0);
    if degrees == 0.0 {
        return planes.to_vec();
    }
    // PIL rounds the entries to 15 decimals.
    let round = |v: f64| format!("{v:.15}").parse().unwrap_or(v);
    let angle = -degrees.to_radians();
    let (cos, sin): (f64, f64) = (round(angle.cos()), round(angle.sin()));
    let minus_sin: f64 = round(-angle.sin());
    let centre = size as f64 / 2.0;
    let x = cos * -centre + sin * -centre + 0.0 + centre;
    let y = minus_sin * -centre + cos * -centre + 0.0 + centre;
    affine(planes, size, [cos, sin, x, minus_sin, cos, y])
}

/// PIL's affine transform: each output pixel's centre is looked up in the input, bilinear, black outside, truncated.
fn affine(planes: &[u8], size: usize, [a, b, c, d, e, f]: [f64; 6]) -> Vec<u8> {
    let area = size * size;
    let limit = size as f64;
    let mut out = vec![0; planes.len()];
    let mut taps = Vec::with_capacity(size);
    for y in 0..size {
        taps.clear();
        for x in 0..size {
            let (px, py) = (x as f64 + 0.5, y as f64 + 0.5);
            let (sx, sy) = (a * px + b * py + c, d * px + e * py + f);
            if (0.0..limit).contains(&sx) && (0.0..limit).contains(&sy) {
                taps.push((x, Tap::new(sx - 0.5, sy - 0.5, size)));
            }
        }
        for (plane, out) in planes.chunks_exact(area).zip(out.chunks_exact_mut(area)) {
            let row = &mut out[y * size..][..size];
            taps.iter().for_each(|(x, tap)| row[*x] = tap.read(plane));
        }
    }
    out
}

/// A place between four pixels.
struct Tap {
    /// Where the pixels are: left and right in the upper row, then in the lower one.
    upper: (usize, usize),
    lower: (usize, usize),
    dx: f64,
    dy: f64,
}

impl Tap {
    fn new(x: f64, y: f64, size: usize) -> Self {
        let clip = |v: f64| v.clamp(0.0, (size - 1) as f64) as usize;
        let (left, top) = (x.floor(), y.floor());
        let (x0, x1) = (clip(left), clip(left + 1.0));
        // At an edge the row, or the column, is taken again.
        let (upper, lower) = (clip(top) * size, clip(top + 1.0) * size);
        Self { upper: (upper + x0, upper + x1), lower: (lower + x0, lower + x1), dx: x - left, dy: y - top }
    }

    #[inline]
    fn read(&self, plane: &[u8]) -> u8 {
        let along = |(left, right): (usize, usize)| {
            let (v0, v1) = (f64::from(plane[left]), f64::from(plane[right]));
            v0 + (v1 - v0) * self.dx
        };
        let upper = along(self.upper);
        // Shifts and slants along x stay in their row.
        if self.dy == 0.0 {
            return upper as u8;
        }
        (upper + (along(self.lower) - upper) * self.dy) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_paper() {
        let mut stream = Stream::new(2, &["mix"]);
        let mut depths = [0; 4];
        for _ in 0..500 {
            let mix = Mix::draw(1.0, &mut stream);
            assert!((mix.weights.iter().sum::<f32>() - 1.0).abs() < 1e-6 && (0.0..1.0).contains(&mix.own));
            mix.chains.iter().for_each(|c| depths[c.len()] += 1);
            for step in mix.chains.iter().flatten() {
                assert!((0.1..1.0).contains(&step.level) && (step.operation.is_signed() || !step.negative));
            }
        }
        assert!(depths[0] == 0 && depths[1..].iter().all(|&n| n > 400), "{depths:?}");
    }

    #[test]
    fn a_flat_image_is_left_alone_by_histograms() {
        let flat = vec![77; 3 * 16];
        for operation in [Operation::Autocontrast, Operation::Equalize] {
            assert_eq!(Step { operation, level: 0.5, negative: false }.apply(&flat, 4), flat);
        }
    }

    #[test]
    fn a_shift_moves_whole_pixels_and_fills_with_black() {
        let size = 30;
        let planes: Vec<u8> = (0..3 * size * size).map(|i| (i % size) as u8 + 1).collect();
        let moved = Step { operation: Operation::TranslateX, level: 1.0, negative: true }.apply(&planes, size);
        assert_eq!(moved[..4], [0, 1, 2, 3]);
    }
}
