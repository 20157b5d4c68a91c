//! Models whose towers Python computes: weights read by flatclip, the check against flatclip's kernels, and models made of
//! the user's functions.

use crate::bridge::{Bridge, ImageBridge, TextBridge};
use crate::errors::OrRaise as _;
use crate::model::{How, Model};
use crate::{arrays, values, work};
use flatclip::architecture::Preprocess;
use flatclip::model::{Clip, ClipConfig, Device, ImageConfig, LoadOptions, TextTower, lowest_cosine};
use flatclip::text::Tokenizer;
use flatclip::weights::Checkpoint;
use flatclip::{Error, Result};
use numpy::{PyArrayDyn, PyArrayMethods as _};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// An open checkpoint: its architecture, and its tensors one at a time.
#[pyclass(module = "flatclip._native", frozen)]
pub(crate) struct Weights {
    pub(crate) checkpoint: Arc<Checkpoint>,
    how: How,
}

/// Opens the checkpoint of a model without loading it.
#[pyfunction]
#[pyo3(signature = (name, *, model_dir=None, offline=false, activation=None, progress=None))]
pub(crate) fn open_weights(
    py: Python<'_>,
    name: String,
    model_dir: Option<PathBuf>,
    offline: bool,
    activation: Option<String>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Weights> {
    let how = How::f32(name, model_dir, offline, activation);
    let builder = how.builder()?;
    let checkpoint = work::run(py, progress, move |watch| builder.open(watch))?;
    Ok(Weights { checkpoint: Arc::new(checkpoint), how })
}

#[pymethods]
impl Weights {
    /// The name that was passed to `open_weights`.
    #[getter]
    fn name(&self) -> &str {
        &self.how.name
    }

    /// The architecture and the preprocessing.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::from_json(py, &serde_json::json!(self.checkpoint.config()))
    }

    /// Names of all tensors, as OpenAI's checkpoints have them.
    fn names(&self) -> Vec<String> {
        self.checkpoint.names().map(str::to_owned).collect()
    }

    /// The values of a tensor.
    fn tensor<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let checkpoint = Arc::clone(&self.checkpoint);
        let (shape, values) = work::run(py, None, move |_| checkpoint.tensor(&name))?;
        arrays::vector(py, values).reshape(shape)
    }
}

/// Description of the device, from Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct About {
    name: String,
    dtype: String,
    versions: String,
    /// Minimum cosine similarity with flatclip's kernels that is accepted.
    bound: f64,
}

/// A model of these weights whose towers a Python object computes, checked against flatclip's f32 kernels.
#[pyfunction]
#[pyo3(signature = (weights, towers, about, *, name=None, progress=None))]
pub(crate) fn model_on(
    py: Python<'_>,
    weights: &Bound<'_, Weights>,
    towers: &Bound<'_, PyAny>,
    about: About,
    name: Option<String>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Model> {
    let (checkpoint, how) = (Arc::clone(&weights.get().checkpoint), weights.get().how.clone());
    let config = checkpoint.config().clone();
    let bridge = Bridge::new(towers, config.image_size, config.embed_dim)?;
    let name = name.unwrap_or_else(|| how.name.clone());
    let made = work::run(py, progress, move |_| {
        let tokenizer = Tokenizer::of(&checkpoint)?;
        let About { name: device, dtype, versions, bound } = about;
        let mut device = Device { name: device, dtype, versions, lowest_cosine: None };
        let hash = checkpoint.hash()?;
        let made = || clip(&bridge, &config, &hash, &device, false);
        let reference = Clip::load(&checkpoint, LoadOptions::default())?;
        let lowest = lowest_cosine(&made(), &reference, &tokenizer)?;
        if lowest.is_nan() || lowest < bound {
            let reason = format!(
                "the lowest cosine of its features with those of our f32 kernels is {lowest:.6}, expected at least \
                 {bound}; nothing is computed on it"
            );
            return Err(Error::Device { call: device.arithmetic(), reason });
        }
        device.lowest_cosine = Some((lowest * 1e6).round() / 1e6);
        Ok(flatclip::Model::from_parts(name, clip(&bridge, &config, &hash, &device, false), tokenizer))
    })?;
    Ok(Model { model: made, how, towers: Some(Arc::new(towers.clone().unbind())) })
}

/// Description of an encoder made of the user's functions.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Setup {
    fingerprint: String,
    size: usize,
    width: usize,
    mean: [f32; 3],
    std: [f32; 3],
    logit_scale: f32,
    logit_bias: Option<f32>,
    /// Whether there is a text function, and whether it takes texts.
    text: bool,
    strings: bool,
    /// Width of the token embedding; 0 if contexts are not supported.
    text_width: usize,
    context_length: usize,
    device: String,
    dtype: String,
    versions: String,
    lowest_cosine: Option<f64>,
}

/// The model made of an encoder.
#[pyfunction]
#[pyo3(signature = (name, setup, towers))]
pub(crate) fn model_of(py: Python<'_>, name: String, setup: Setup, towers: &Bound<'_, PyAny>) -> PyResult<Model> {
    let config = setup.config().or_raise(py)?;
    let bridge = Bridge::new(towers, setup.size, setup.width)?;
    let device =
        Device { name: setup.device, dtype: setup.dtype, versions: setup.versions, lowest_cosine: setup.lowest_cosine };
    let clip = clip(&bridge, &config, &setup.fingerprint, &device, setup.strings);
    let how = How::f32(name.clone(), None, true, None);
    let model = flatclip::Model::from_parts(name, clip, Tokenizer::clip());
    Ok(Model { model, how, towers: Some(Arc::new(towers.clone().unbind())) })
}

impl Setup {
    fn config(&self) -> Result<ClipConfig> {
        let known = ClipConfig::named("ViT-B-16").ok_or_else(|| Error::config("model", "no released architecture"))?;
        let text = known.text.clone().filter(|_| self.text).map(|mut text| {
            (text.width, text.context_length) = (self.text_width, self.context_length);
            text
        });
        Ok(ClipConfig {
            embed_dim: self.width,
            image_size: self.size,
            image: ImageConfig::Other,
            text,
            logit_scale: self.logit_scale,
            logit_bias: self.logit_bias,
            preprocess: Preprocess { mean: self.mean, std: self.std, ..Preprocess::CLIP },
            ..known
        })
    }
}

pub(crate) fn clip(
    bridge: &Arc<Bridge>,
    config: &ClipConfig,
    hash: &str,
    device: &Device,
    takes_strings: bool,
) -> Clip {
    let text = config.text.as_ref().map(|text| {
        let (width, context_length) = (text.width, text.context_length);
        Box::new(TextBridge { bridge: Arc::clone(bridge), width, context_length, takes_strings }) as Box<dyn TextTower>
    });
    let image = Box::new(ImageBridge(Arc::clone(bridge)));
    Clip::from_towers(config.clone(), hash.to_owned(), device.clone(), image, text)
}
