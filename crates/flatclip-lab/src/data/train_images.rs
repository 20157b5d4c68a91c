//! The shots as input of a tuner: random views of each image, new in every epoch, or encoded once into a bank.

use super::Sample;
use super::feature_bank::FeatureBank;
use flatclip::image::views::{ViewKey, ViewOptions, make_views};
use flatclip::image::{DecodeOptions, ImageChanges, ImageNotes};
use flatclip::model::Clip;
use flatclip::options::mismatch;
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use rayon::prelude::*;

/// Images that the image tower takes at once.
const CHUNK: usize = 32;

flatclip::options! {
    /// How training views are made: the `[views]` table. Random crop (with the model's filter) and flip, as CoOp and Dassl train.
    pub struct TrainViews for "views", check TrainViews::scale_is_ordered {
        /// Views of each image that are encoded once and drawn from in every epoch; 0 encodes new views in every step.
        bank: usize = 8, from "choice";
        /// Encode new views in every step, even with a bank, which then makes Tip-Adapter's keys alone.
        fresh: bool = false, from "choice: published trainings encode new crops in every step";
        /// Smallest and largest part of the image that a crop takes.
        scale: [f64; 2] = [0.08, 1.0], range fraction, from "CoOp's code";
        /// Chance of a flip.
        flip: f64 = 0.5, range between(0.0, 1.0), from "CoOp's code";
    }
}

impl TrainViews {
    fn scale_is_ordered(&self) -> Result<()> {
        let [low, high] = self.scale;
        if low <= high {
            return Ok(());
        }
        Err(mismatch(Self::NAME, "scale", "the smaller part first", format!("{low}, {high}")))
    }
}

/// The shots, and how their pixels are made.
pub(crate) struct TrainImages<'a> {
    samples: &'a [Sample],
    dataset: &'a str,
    seed: u64,
    training: ViewOptions,
    plain: ViewOptions,
    decode: DecodeOptions,
}

impl<'a> TrainImages<'a> {
    /// Views of these samples for a model.
    pub(crate) fn new(
        clip: &Clip,
        dataset: &'a str,
        samples: &'a [Sample],
        views: &TrainViews,
        seed: u64,
        decode: DecodeOptions,
    ) -> Self {
        let mut training = ViewOptions::training(clip.config());
        training.range.scale = (views.scale[0], views.scale[1]);
        training.flip = views.flip;
        let plain = ViewOptions { first_is_plain: true, ..training.clone() };
        Self { samples, dataset, seed, training, plain, decode }
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(crate) fn id(&self, image: usize) -> &str {
        &self.samples[image].id
    }

    /// Pixels `[B, 3, H, W]` of the training view of each image in an epoch.
    pub(crate) fn pixels(&self, images: &[usize], epoch: usize) -> Result<Vec<f32>> {
        let one = |&image: &usize| self.views_of(image, &self.training, &format!("epoch {epoch}"));
        Ok(images.par_iter().map(one).collect::<Result<Vec<Vec<f32>>>>()?.concat())
    }

    /// Raw features `[B, D]` of un-augmented images.
    pub(crate) fn plain_features(&self, clip: &Clip) -> Result<Matrix> {
        self.encode(clip, |image| self.views_of(image, &self.plain, ""), &mut |_| Ok(()))
    }

    /// `views` training views of every image, encoded.
    pub(crate) fn bank(
        &self,
        clip: &Clip,
        views: usize,
        watch: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FeatureBank> {
        let options = ViewOptions { count: views, ..self.training.clone() };
        let raw = self.encode(clip, |image| self.views_of(image, &options, "bank"), watch)?;
        FeatureBank::new(views, raw)
    }

    /// Unit-norm `[B, D]` from the bank: one view of each image, drawn anew in each epoch.
    pub(crate) fn draw(&self, bank: &FeatureBank, images: &[usize], epoch: usize) -> Matrix {
        let pick = |&image: &usize| {
            let keys = ["bank", self.dataset, self.id(image), &epoch.to_string()];
            (image, Stream::new(self.seed, &keys).below(bank.views()))
        };
        bank.select(&images.iter().map(pick).collect::<Vec<_>>())
    }

    fn views_of(&self, image: usize, options: &ViewOptions, round: &str) -> Result<Vec<f32>> {
        let sample = &self.samples[image];
        let decoded_image = sample.image(&self.decode)?;
        let id = format!("{}/{round}", sample.id);
        make_views(&decoded_image, options, ViewKey { seed: self.seed, dataset: self.dataset, sample: &id })
    }

    /// All views of all images, image after image, to raw features.
    fn encode(
        &self,
        clip: &Clip,
        views_of: impl Fn(usize) -> Result<Vec<f32>> + Sync,
        watch: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Matrix> {
        let size = 3 * clip.image_size() * clip.image_size();
        let mut data = Vec::new();
        for start in (0..self.len()).step_by(CHUNK) {
            let images: Vec<usize> = (start..self.len().min(start + CHUNK)).collect();
            let views: Vec<Vec<f32>> = images.par_iter().map(|&image| views_of(image)).collect::<Result<_>>()?;
            for pixels in views.concat().chunks(CHUNK * size) {
                data.extend_from_slice(clip.encode_images(pixels, pixels.len() / size)?.data());
            }
            watch(start + images.len())?;
        }
        let rows = data.len() / clip.embed_dim();
        Ok(Matrix::from_vec(rows, clip.embed_dim(), data))
    }
}

/// Which samples can be read.
#[derive(Default)]
pub(crate) struct Readable {
    /// The places of those that can.
    pub(crate) good: Vec<usize>,
    /// Id and reason of every other one.
    pub(crate) bad: Vec<(String, Error)>,
    /// What is done to images when they are read.
    pub(crate) changes: ImageChanges,
}

impl Readable {
    /// Reads every sample once.
    pub(crate) fn of(samples: &[Sample], decode: &DecodeOptions) -> Self {
        let read = |sample: &Sample| Ok(sample.image_noted(decode)?.1);
        let verdicts: Vec<Result<ImageNotes>> = samples.par_iter().map(read).collect();
        let mut found = Self::default();
        for (index, verdict) in verdicts.into_iter().enumerate() {
            match verdict {
                Ok(notes) => {
                    found.good.push(index);
                    found.changes.count(notes);
                }
                Err(error) => found.bad.push((samples[index].id.clone(), error)),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn unreadable_images_are_listed_with_their_ids() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.png");
        std::fs::write(&path, b"not an image").unwrap();
        let sample = |id: &str, path: &Path| Sample {
            id: id.into(),
            label: 0,
            source: crate::data::Source::File(path.to_path_buf()),
        };
        let samples = [sample("bad", &path), sample("gone", &folder.path().join("gone.png"))];
        let Readable { good, bad, .. } = Readable::of(&samples, &DecodeOptions::default());
        assert!(good.is_empty());
        assert_eq!(bad.iter().map(|b| b.0.as_str()).collect::<Vec<_>>(), ["bad", "gone"]);
    }
}
