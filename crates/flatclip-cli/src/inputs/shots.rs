//! A few labelled training images with their features: what a landscape's training loss and an analysis rest on.

use super::model::Model;
use anyhow::Result;
use flatclip::data::few_shot::{FewShot, Pool, Sampler};
use flatclip::data::{self, OpenOptions, Split};
use flatclip::image::DecodeOptions;
use flatclip::landscape::Probe;
use flatclip::model::Features;
use std::path::PathBuf;

/// Which images.
pub(crate) struct ShotsAsk<'a> {
    pub(crate) data: &'a str,
    pub(crate) root: Option<PathBuf>,
    pub(crate) shots: usize,
    pub(crate) seed: u64,
}

/// The images of every class that the sampler of `flatclip tune` draws for the same seed, as unit-norm features.
pub(crate) struct ShotFeatures {
    pub(crate) classes: Vec<String>,
    pub(crate) features: flatclip_tensor::Matrix,
    pub(crate) labels: Vec<usize>,
}

impl ShotFeatures {
    pub(crate) fn draw(model: &Model, ask: &ShotsAsk<'_>) -> Result<Self> {
        let options = OpenOptions { root: ask.root.clone(), split: Split::Train, ..OpenOptions::default() };
        let dataset = data::open(ask.data, &options)?;
        let ids: Vec<String> = dataset.samples.iter().map(|s| s.id.clone()).collect();
        let labels: Vec<usize> = dataset.samples.iter().map(|s| s.label).collect();
        let pool = Pool { source: ask.data, ids: &ids, labels: &labels, classes: &dataset.classes };
        let few =
            FewShot { shots: ask.shots, held_out: 0, seed: ask.seed, sampler: Sampler::Portable, allow_fewer: true };
        let shots = few.draw(&pool)?.train;
        let pictures = shots.iter().map(|&i| Ok(dataset.samples[i].picture(&DecodeOptions::default())?));
        let features = Features::unit(model.plain_features(pictures)?).0;
        let labels = shots.iter().map(|&i| labels[i]).collect();
        Ok(Self { classes: dataset.classes.clone(), features, labels })
    }

    /// As something whose cross-entropy can be looked at.
    pub(crate) fn probe(&self, name: String) -> Probe {
        Probe { name, features: self.features.clone(), labels: Some(self.labels.clone()) }
    }
}
