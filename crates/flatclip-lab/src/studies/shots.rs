//! A few labelled training images with their features: what a landscape's training loss and an analysis rest on.

use crate::data::Dataset;
use crate::data::few_shot::draw_shots;
use crate::flatness::Probe;
use flatclip::model::Features;
use flatclip::{Matrix, Model, Result};

/// The images of every class that tuning draws for the same seed, as unit-norm features.
pub(crate) struct ShotFeatures {
    pub(crate) classes: Vec<String>,
    pub(crate) features: Matrix,
    pub(crate) labels: Vec<usize>,
}

impl ShotFeatures {
    pub(crate) fn draw(model: &Model, dataset: &Dataset, shots: usize, seed: u64, exif: Option<bool>) -> Result<Self> {
        let drawn = draw_shots(dataset, shots, seed)?;
        let decode = dataset.decode_options(exif);
        let images = drawn.iter().map(|&i| dataset.samples[i].image(&decode));
        let features = Features::unit(model.plain_features(images)?).0;
        let labels = drawn.iter().map(|&i| dataset.samples[i].label).collect();
        Ok(Self { classes: dataset.classes.clone(), features, labels })
    }

    /// As something whose cross-entropy can be looked at.
    pub(crate) fn probe(&self, name: String) -> Probe {
        Probe { name, features: self.features.clone(), labels: Some(self.labels.clone()) }
    }
}
