//! Rotation and mirroring per EXIF.

use super::Source;
use ::image::metadata::Orientation;

/// Turns and mirrors, pixel by pixel, from where each pixel of the result comes.
pub(super) fn turned(source: Source, orientation: Orientation) -> Source {
    use Orientation as O;
    let (width, height, channels) = (source.width, source.height, source.mode.channels());
    let swaps = matches!(orientation, O::Rotate90 | O::Rotate270 | O::Rotate90FlipH | O::Rotate270FlipH);
    let (wide, high) = if swaps { (height, width) } else { (width, height) };
    let from = |x: usize, y: usize| match orientation {
        O::NoTransforms => (x, y),
        O::FlipHorizontal => (width - 1 - x, y),
        O::Rotate180 => (width - 1 - x, height - 1 - y),
        O::FlipVertical => (x, height - 1 - y),
        O::Rotate90 => (y, height - 1 - x),
        O::Rotate270 => (width - 1 - y, x),
        O::Rotate90FlipH => (y, x),
        O::Rotate270FlipH => (width - 1 - y, height - 1 - x),
    };
    let places = (0..high).flat_map(|y| (0..wide).map(move |x| (x, y)));
    let pixel = |(x, y)| {
        let (x, y) = from(x, y);
        &source.samples[(y * width + x) * channels..][..channels]
    };
    let samples = places.flat_map(pixel).copied().collect();
    Source { width: wide, height: high, samples, ..source }
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;
    use ::image::DynamicImage;

    #[test]
    fn turning_equals_the_image_crate() {
        let source = Source::new(3, 2, Mode::Luma, vec![1, 2, 3, 4, 5, 6]);
        for code in 1..=8 {
            let orientation = Orientation::from_exif(code).unwrap();
            let mut expected =
                DynamicImage::ImageLuma8(::image::GrayImage::from_raw(3, 2, source.samples.clone()).unwrap());
            expected.apply_orientation(orientation);
            assert_eq!(turned(source.clone(), orientation).samples, expected.into_bytes(), "{orientation:?}");
        }
    }
}
