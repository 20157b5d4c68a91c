//! What the pipeline needs of a model: the views of a sample and their features.

use super::cache::ViewFeatures;
use crate::Result;
use crate::data::Sample;
use flatclip_tensor::Matrix;
use std::ops::Range;

/// Makes views and encodes them. Both must depend on the sample alone, not on batch, thread or order.
pub(crate) trait Encoder: Sync {
    /// Views per sample.
    fn views(&self) -> usize;

    /// Decodes the picture and makes all views: normalised pixels `[views, 3, H, W]`.
    fn pixels(&self, dataset: &str, sample: &Sample) -> Result<Vec<f32>>;

    /// Features of `count` views.
    fn encode(&self, pixels: &[f32], count: usize) -> Result<ViewFeatures>;

    /// Features of a range of the views in `pixels`.
    fn encode_range(&self, pixels: &[f32], range: Range<usize>) -> Result<ViewFeatures> {
        let view = pixels.len() / self.views();
        self.encode(&pixels[range.start * view..range.end * view], range.len())
    }

    /// Unit-norm features of generated pictures of the sample, for methods that take them.
    fn generated(&self, _sample: &Sample) -> Result<Option<Matrix>> {
        Ok(None)
    }
}
