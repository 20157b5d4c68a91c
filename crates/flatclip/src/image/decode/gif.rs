//! The first frame of a GIF, as PIL shows it.

use super::{File, Mode, Result, Source};
use std::io::Cursor;

impl File<'_> {
    /// The first frame. The screen grows until the frame fits; where the frame does not reach, and where it is
    /// transparent, the palette's colour shows.
    pub(super) fn gif(&self) -> Result<Source> {
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::Indexed);
        let mut decoder = options.read_info(Cursor::new(self.bytes)).map_err(|e| self.error(e))?;
        let screen = (usize::from(decoder.width()), usize::from(decoder.height()));
        let global = decoder.global_palette().map(<[u8]>::to_vec);
        let frame = decoder.next_frame_info().map_err(|e| self.error(e))?.ok_or_else(|| self.error("no frame"))?;
        let [left, top, wide, high] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
        let (interlaced, transparent) = (frame.interlaced, frame.transparent);
        let palette = frame.palette.clone().or(global).ok_or_else(|| self.error("no palette"))?;
        if wide == 0 || high == 0 {
            return Err(self.error(format!("the first frame has {wide} x {high} pixels")));
        }
        let (width, height) = (screen.0.max(left + wide), screen.1.max(top + high));
        self.check_size(width as u64, height as u64)?;

        // A palette that is the grey ramp makes a grey image. Otherwise indices are read into the last third of the
        // image's own memory and looked up from the front: a pixel is never written before its index is read.
        let ramp = palette.chunks_exact(3).enumerate().all(|(i, c)| c.iter().all(|&v| usize::from(v) == i));
        let (mode, bytes) = if ramp { (Mode::Luma, 1) } else { (Mode::Palette, 3) };
        let pixels = width * height;
        let mut samples = vec![0u8; pixels * bytes];
        let indices = &mut samples[pixels * (bytes - 1)..];
        if let Some(index) = transparent.filter(|&index| index != 0) {
            indices.fill(index);
        }
        for row in rows(high, interlaced) {
            let start = (top + row) * width + left;
            let whole = decoder.fill_buffer(&mut indices[start..start + wide]).map_err(|e| self.error(e))?;
            if !whole {
                return Err(self.error("the file ends before its image does"));
            }
        }
        if mode == Mode::Palette {
            for pixel in 0..pixels {
                let at = usize::from(samples[2 * pixels + pixel]) * 3;
                let colour = palette.get(at..at + 3).unwrap_or(&[0, 0, 0]);
                samples[3 * pixel..3 * pixel + 3].copy_from_slice(colour);
            }
        }
        Ok(Source { palette, ..Source::new(width, height, mode, samples) })
    }
}

/// The rows of a frame in the order of the file.
fn rows(height: usize, interlaced: bool) -> impl Iterator<Item = usize> {
    let passes: &[(usize, usize)] = if interlaced { &[(0, 8), (4, 8), (2, 4), (1, 2)] } else { &[(0, 1)] };
    passes.iter().flat_map(move |&(first, step)| (first..height).step_by(step))
}

#[cfg(test)]
mod tests {
    use super::super::{DecodeOptions, decode};
    use super::*;

    fn rgb(bytes: &[u8]) -> Vec<u8> {
        decode(bytes, &DecodeOptions::default()).unwrap().rgb
    }

    #[test]
    fn a_gif_shows_its_first_frame_with_the_colour_under_transparency() {
        let mut bytes = Vec::new();
        let mut encoder = gif::Encoder::new(&mut bytes, 2, 1, &[9, 8, 7, 40, 50, 60]).unwrap();
        for indices in [[0u8, 1], [1, 1]] {
            let frame = gif::Frame { transparent: Some(1), ..gif::Frame::from_indexed_pixels(2, 1, indices, None) };
            encoder.write_frame(&frame).unwrap();
        }
        drop(encoder);
        assert_eq!(rgb(&bytes), [9, 8, 7, 40, 50, 60]);
    }

    #[test]
    fn the_screen_grows_to_a_frame_outside_of_it() {
        // Screen 1 x 1, black and white; a frame of 1 x 1 at column 2.
        let bytes = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\x02\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;";
        let image = decode(bytes, &DecodeOptions::default()).unwrap();
        assert_eq!((image.width, image.height, image.rgb), (3, 1, vec![0; 9]));
        // The same with a white frame.
        let mut white = bytes.to_vec();
        white[31] = 0x4c;
        assert_eq!(rgb(&white), [0, 0, 0, 0, 0, 0, 255, 255, 255]);
    }

    #[test]
    fn interlaced_rows_are_put_in_order() {
        let palette: Vec<u8> = (0..16u8).flat_map(|i| [i, 0, 99]).collect();
        let mut bytes = Vec::new();
        let mut encoder = gif::Encoder::new(&mut bytes, 1, 16, &palette).unwrap();
        let stored: Vec<u8> = rows(16, true).map(|row| row as u8).collect();
        let frame = gif::Frame { interlaced: true, ..gif::Frame::from_indexed_pixels(1, 16, stored, None) };
        encoder.write_frame(&frame).unwrap();
        drop(encoder);
        assert_eq!(rgb(&bytes).iter().step_by(3).copied().collect::<Vec<u8>>(), (0..16).collect::<Vec<u8>>());
    }
}
