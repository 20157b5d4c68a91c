//! Random crops and flips with torchvision's meaning, from draws of our own streams.

use super::Crop;
use crate::rng::Stream;

/// Attempts at a random crop before the centre is taken.
const ATTEMPTS: usize = 10;

/// The range of a random crop.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CropRange {
    /// Least and largest share of the image's area.
    pub scale: (f64, f64),
    /// Least and largest width over height, drawn on a logarithmic scale.
    pub ratio: (f64, f64),
}

impl Default for CropRange {
    fn default() -> Self {
        Self { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) }
    }
}

impl CropRange {
    /// A crop of a `width x height` image (torchvision's `RandomResizedCrop`): the area, the aspect and, when the crop
    /// fits, its top and left are drawn in this order.
    pub fn draw(&self, width: usize, height: usize, stream: &mut Stream) -> Crop {
        let area = (width * height) as f64;
        for _ in 0..ATTEMPTS {
            let target = area * stream.uniform(self.scale.0, self.scale.1);
            let aspect = stream.uniform(self.ratio.0.ln(), self.ratio.1.ln()).exp();
            let wide = (target * aspect).sqrt().round_ties_even() as usize;
            let high = (target / aspect).sqrt().round_ties_even() as usize;
            if (1..=width).contains(&wide) && (1..=height).contains(&high) {
                let top = stream.below(height - high + 1);
                let left = stream.below(width - wide + 1);
                return Crop { top, left, height: high, width: wide };
            }
        }
        self.centre(width, height)
    }

    /// The largest centred crop whose aspect is allowed.
    pub fn centre(&self, width: usize, height: usize) -> Crop {
        let aspect = width as f64 / height as f64;
        let round = |v: f64, limit: usize| (v.round_ties_even() as usize).clamp(1, limit);
        let (wide, high) = if aspect < self.ratio.0 {
            (width, round(width as f64 / self.ratio.0, height))
        } else if aspect > self.ratio.1 {
            (round(height as f64 * self.ratio.1, width), height)
        } else {
            (width, height)
        };
        Crop { top: (height - high) / 2, left: (width - wide) / 2, height: high, width: wide }
    }
}

/// Mirrors planes of rows left to right.
pub fn flip(planes: &mut [u8], width: usize) {
    planes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crops_lie_inside_and_keep_their_range() {
        let range = CropRange::default();
        let mut stream = Stream::new(1, &["crops"]);
        for _ in 0..2000 {
            let crop = range.draw(50, 37, &mut stream);
            assert!(crop.left + crop.width <= 50 && crop.top + crop.height <= 37);
            let share = (crop.width * crop.height) as f64 / (50.0 * 37.0);
            assert!((0.06..=1.0).contains(&share), "{crop:?}");
        }
    }

    #[test]
    fn an_aspect_that_never_fits_falls_back_to_the_centre() {
        let crop = CropRange::default().draw(1000, 3, &mut Stream::new(1, &["thin"]));
        assert_eq!(crop, Crop { top: 0, left: 498, height: 3, width: 4 });
        assert_eq!(CropRange::default().centre(30, 100), Crop { top: 30, left: 0, height: 40, width: 30 });
    }
}
