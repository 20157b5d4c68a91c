//! A few labelled training images with their features: what a landscape's training loss and an analysis rest on.

use super::model::Model;
use crate::Result;
use crate::data::Dataset;
use crate::data::few_shot::{FewShot, Pool, Sampler};
use crate::landscape::Probe;
use crate::model::Features;
use flatclip_tensor::Matrix;

/// The images of every class that tuning draws for the same seed, as unit-norm features.
pub(crate) struct ShotFeatures {
    pub(crate) classes: Vec<String>,
    pub(crate) features: Matrix,
    pub(crate) labels: Vec<usize>,
}

/// The samples of `shots` images per class that tuning draws for this seed; classes with fewer give all.
pub(crate) fn draw_shots(dataset: &Dataset, shots: usize, seed: u64) -> Result<Vec<usize>> {
    let ids: Vec<String> = dataset.samples.iter().map(|s| s.id.clone()).collect();
    let labels: Vec<usize> = dataset.samples.iter().map(|s| s.label).collect();
    let source = if dataset.spec.is_empty() { &dataset.name } else { &dataset.spec };
    let pool = Pool { source, ids: &ids, labels: &labels, classes: &dataset.classes };
    let few = FewShot { shots, held_out: 0, seed, sampler: Sampler::Portable, allow_fewer: true };
    Ok(few.draw(&pool)?.train)
}

impl ShotFeatures {
    pub(crate) fn draw(model: &Model, dataset: &Dataset, shots: usize, seed: u64, exif: Option<bool>) -> Result<Self> {
        let drawn = draw_shots(dataset, shots, seed)?;
        let decode = dataset.decode_options(exif);
        let pictures = drawn.iter().map(|&i| dataset.samples[i].picture(&decode));
        let features = Features::unit(model.plain_features(pictures)?).0;
        let labels = drawn.iter().map(|&i| dataset.samples[i].label).collect();
        Ok(Self { classes: dataset.classes.clone(), features, labels })
    }

    /// As something whose cross-entropy can be looked at.
    pub(crate) fn probe(&self, name: String) -> Probe {
        Probe { name, features: self.features.clone(), labels: Some(self.labels.clone()) }
    }
}
