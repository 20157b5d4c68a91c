//! What a run evaluates: a model with a prompt, or features that were imported.

use super::cache::Imported;
use super::encoder::Encoder;
use crate::data::Sample;
use flatclip::ViewFeatures;
use flatclip::image::views::Pixels;
use flatclip::{Error, Model, Result};

/// Where the features of images and classes come from.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Towers and a prompt.
    Model(&'a Model),
    /// Made elsewhere: what needs no tower runs with them.
    Features(&'a Imported),
}

impl<'a> From<&'a Model> for Subject<'a> {
    fn from(model: &'a Model) -> Self {
        Self::Model(model)
    }
}

impl<'a> From<&'a Imported> for Subject<'a> {
    fn from(features: &'a Imported) -> Self {
        Self::Features(features)
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

    fn pixels(&self, _dataset: &str, sample: &Sample) -> Result<Pixels> {
        let reason = "its stored features are missing or damaged: import them again".to_owned();
        Err(Error::Data { path: sample.path().to_path_buf(), reason })
    }

    fn encode(&self, _pixels: &[f32], _count: usize) -> Result<ViewFeatures> {
        Err(Error::config("features", "there is no image tower"))
    }
}
