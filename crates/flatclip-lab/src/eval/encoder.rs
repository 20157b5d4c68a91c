//! What the pipeline needs of a model: the views of a sample and their features.

use super::cache::FeatureKey;
use crate::data::{Dataset, Sample};
use flatclip::classify::{ClipEncoder, PIXEL_VERSION};
use flatclip::digest::matrix_hash;
use flatclip::image::views::{Pixels, ViewKey};
use flatclip::{Error, Result, ViewFeatures};
use flatclip_tensor::Matrix;
use std::ops::Range;

/// Makes views and encodes them. Both must depend on the sample alone, not on batch, thread or order.
pub(crate) trait Encoder: Sync {
    fn views(&self) -> usize;

    /// Views that make a full batch.
    fn batch_views(&self) -> usize {
        64
    }

    /// Decodes the image and makes all views: pixels `[views, 3, H, W]`.
    fn pixels(&self, sample: &Sample) -> Result<Pixels>;

    fn encode(&self, pixels: &[f32], count: usize) -> Result<ViewFeatures>;

    /// Features of `count` views of some samples.
    fn encode_pixels(&self, samples: &[&Pixels], count: usize) -> Result<ViewFeatures> {
        self.encode(&samples.iter().filter_map(|pixels| pixels.floats()).collect::<Vec<_>>().concat(), count)
    }

    /// Features of a range of the views in `pixels`.
    fn encode_range(&self, pixels: &[f32], range: Range<usize>) -> Result<ViewFeatures> {
        let view = pixels.len() / self.views();
        self.encode(&pixels[range.start * view..range.end * view], range.len())
    }

    /// Unit-norm features of generated images of the sample, for methods that take them.
    fn generated(&self, _sample: &Sample) -> Result<Option<Matrix>> {
        Ok(None)
    }
}

impl Encoder for ClipEncoder {
    fn views(&self) -> usize {
        self.views.count
    }

    /// Views are drawn by content, as a classifier draws them: the same for every loader of the same files.
    fn pixels(&self, sample: &Sample) -> Result<Pixels> {
        let image = sample.image(&self.decode)?;
        self.pixels_of(&image, ViewKey::of_content(self.seed, &image.digest()))
    }

    fn encode(&self, pixels: &[f32], count: usize) -> Result<ViewFeatures> {
        self.encode(pixels, count)
    }

    fn encode_pixels(&self, samples: &[&Pixels], count: usize) -> Result<ViewFeatures> {
        self.encode_pixels(samples, count)
    }

    fn batch_views(&self) -> usize {
        self.clip.vision().batch_views()
    }

    fn generated(&self, sample: &Sample) -> Result<Option<Matrix>> {
        self.generated_named(&sample.id)
    }
}

/// In the place of towers: whatever is asked of it was not imported, or is damaged on disk.
pub(super) struct NoTowers {
    pub(super) views: usize,
}

impl Encoder for NoTowers {
    fn views(&self) -> usize {
        self.views
    }

    fn pixels(&self, sample: &Sample) -> Result<Pixels> {
        let reason = "its stored features are missing or damaged: import them again".to_owned();
        Err(Error::Data { path: sample.path().to_path_buf(), reason })
    }

    fn encode(&self, _pixels: &[f32], _count: usize) -> Result<ViewFeatures> {
        Err(Error::config("features", "there is no image tower"))
    }
}

/// What the features of a data set are kept under.
pub(crate) fn feature_key(encoder: &ClipEncoder, dataset: &Dataset, precision: &str) -> FeatureKey {
    let v = &encoder.views;
    let hashes: Vec<String> = encoder.visual_prompts.iter().map(matrix_hash).collect();
    let rotated = if encoder.decode.exif { " rotated per EXIF" } else { "" };
    let tower = if hashes.is_empty() { String::new() } else { format!(" with visual prompts {}", hashes.join(" ")) };
    FeatureKey {
        weights: encoder.clip.features_id(),
        dataset: dataset.name.clone(),
        split: dataset.split.name().to_owned(),
        views: format!(
            "{} x{} {}px {:?}/{:?}{tower}{rotated}",
            v.policy.name(),
            v.count,
            v.size,
            v.preprocess.filter,
            v.interpolation
        ),
        seed: if v.count == 1 { 0 } else { encoder.seed },
        precision: precision.to_owned(),
        pixels: PIXEL_VERSION.to_owned(),
    }
}
