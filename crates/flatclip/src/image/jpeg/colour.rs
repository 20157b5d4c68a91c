//! From components to pixels: upsampling with the triangle filter, and the conversion to RGB.

use super::{Component, Frame, Mode};

/// A component at full size: rows of `frame.width` samples.
pub(super) fn upsample(samples: &[u8], component: &Component, frame: &Frame) -> Result<Vec<u8>, String> {
    let (width, height) = (frame.width, frame.height);
    if !frame.most_across.is_multiple_of(component.across) || !frame.most_down.is_multiple_of(component.down) {
        return Err("sampling factors that do not divide each other".into());
    }
    let (across, down) = (frame.most_across / component.across, frame.most_down / component.down);
    let stride = component.block_columns * 8;
    let row = |y: usize| &samples[y * stride..][..component.width];
    // Narrow pictures are not filtered along x.
    let wide = component.width > 2;
    let mut out = Vec::with_capacity(width * height);
    let mut line = vec![0u8; 2 * component.width.max(width)];
    let mut sums = vec![0u16; component.width];
    for y in 0..height {
        let source = y / down;
        // The neighbour above for the upper half of a row, below for the lower; the edge repeats itself.
        let (near, bias) = if y.is_multiple_of(2) { (source.saturating_sub(1), 1) } else { (source + 1, 2) };
        let near = near.min(component.height - 1);
        match (across, down) {
            (1, 1) => line[..component.width].copy_from_slice(row(source)),
            (2, 1) if wide => double(row(source), &mut line),
            (1, 2) => {
                for (to, (&a, &b)) in line.iter_mut().zip(row(source).iter().zip(row(near))) {
                    *to = ((u16::from(a) * 3 + u16::from(b) + bias) >> 2) as u8;
                }
            }
            (2, 2) if wide => {
                for (sum, (&a, &b)) in sums.iter_mut().zip(row(source).iter().zip(row(near))) {
                    *sum = u16::from(a) * 3 + u16::from(b);
                }
                double_sums(&sums, &mut line);
            }
            _ => line
                .iter_mut()
                .zip(row(source).iter().flat_map(|v| std::iter::repeat_n(v, across)))
                .for_each(|(to, v)| *to = *v),
        }
        out.extend_from_slice(&line[..width]);
    }
    Ok(out)
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

/// Interleaved samples. Three planes are RGB or (`has_luma`) YCbCr, four are CMYK or YCCK, stored inverted as Adobe does.
pub(super) fn interleave(planes: &[Vec<u8>], has_luma: bool) -> (Mode, Vec<u8>) {
    match planes {
        [y, cb, cr] => {
            let pixels = y.iter().zip(cb).zip(cr);
            let convert = |y: u8, cb: u8, cr: u8| if has_luma { rgb(y, cb, cr) } else { [y, cb, cr] };
            let mut out = vec![0; 3 * y.len()];
            out.chunks_exact_mut(3)
                .zip(pixels)
                .for_each(|(to, ((&y, &cb), &cr))| to.copy_from_slice(&convert(y, cb, cr)));
            (Mode::Rgb, out)
        }
        [c, m, y, k] => {
            let pixels = c.iter().zip(m).zip(y).zip(k);
            let ink = |c: u8, m: u8, y: u8| if has_luma { rgb(c, m, y) } else { [255 - c, 255 - m, 255 - y] };
            let pixel = |(((&c, &m), &y), &k): (((&u8, &u8), &u8), &u8)| {
                let [c, m, y] = ink(c, m, y);
                [c, m, y, 255 - k]
            };
            (Mode::Cmyk, pixels.flat_map(pixel).collect())
        }
        _ => (Mode::Luma, planes.first().cloned().unwrap_or_default()),
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
