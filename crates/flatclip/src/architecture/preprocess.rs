//! How an image becomes the input of the image tower. It belongs to the model: with another crop, filter or scale of the
//! pixels every feature is a little wrong, without an error.

use serde::{Deserialize, Serialize};

/// How pixels between pixels are made. Down-scaling widens the filter (it is antialiased), as in PIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interpolation {
    /// Triangle filter.
    Bilinear,
    /// Cubic filter with a = -0.5.
    Bicubic,
}

/// How an image of any aspect fits into the tower's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResizeMode {
    /// The shorter side to the size of the input, then the centre.
    Shortest,
    /// Both sides to the size of the input; the aspect changes, nothing is cut off.
    Squash,
    /// The longer side to the size of the input, the rest filled on both sides.
    Longest,
}

/// Resizing, filter and pixel scale of a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preprocess {
    /// How the image fits.
    pub resize: ResizeMode,
    /// The filter.
    pub filter: Interpolation,
    /// The byte of the fill, for [`ResizeMode::Longest`].
    pub fill: u8,
    /// Pixel mean, RGB in 0..1.
    pub mean: [f32; 3],
    /// Pixel standard deviation.
    pub std: [f32; 3],
}

impl Preprocess {
    /// OpenAI's, and most others'.
    pub const CLIP: Self = Self {
        resize: ResizeMode::Shortest,
        filter: Interpolation::Bicubic,
        fill: 0,
        mean: [0.48145466, 0.4578275, 0.40821073],
        #[allow(clippy::excessive_precision)] // as published
        std: [0.26862954, 0.26130258, 0.27577711],
    };
    /// CLIP's without a crop: DFN-5B.
    pub const SQUASH: Self = Self { resize: ResizeMode::Squash, ..Self::CLIP };
    /// CLIP's with pixels in -1..1: LAION's ViT-L-14.
    pub const HALF: Self = Self { mean: [0.5; 3], std: [0.5; 3], ..Self::CLIP };
    /// SigLIP and SigLIP 2.
    pub const SIGLIP: Self = Self { resize: ResizeMode::Squash, ..Self::HALF };
    /// PE-Core.
    pub const PE: Self = Self { filter: Interpolation::Bilinear, ..Self::SIGLIP };

    /// In words: `shortest side, centre crop, bicubic; mean 0.481 0.458 0.408, std 0.269 0.261 0.276`.
    pub fn describe(&self) -> String {
        let resize = match self.resize {
            ResizeMode::Shortest => "shortest side, centre crop".to_owned(),
            ResizeMode::Squash => "squash, no crop".to_owned(),
            ResizeMode::Longest => format!("longest side, filled with {}", self.fill),
        };
        let filter = match self.filter {
            Interpolation::Bilinear => "bilinear",
            Interpolation::Bicubic => "bicubic",
        };
        let short = |x: &f32| format!("{:.3}", x).trim_end_matches('0').trim_end_matches('.').to_owned();
        let three = |values: &[f32; 3]| values.iter().map(short).collect::<Vec<_>>().join(" ");
        format!("{resize}, {filter}; mean {}, std {}", three(&self.mean), three(&self.std))
    }
}

impl Default for Preprocess {
    fn default() -> Self {
        Self::CLIP
    }
}
