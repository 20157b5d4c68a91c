//! Models whose towers Python computes: weights read by flatclip, the check against flatclip's kernels, and models made of
//! the user's functions.

use crate::bridge::{Bridge, ImageBridge, TextBridge};
use crate::errors::OrRaise as _;
use crate::model::{How, Model};
use crate::values::Given;
use crate::{arrays, values, work};
use flatclip::Error;
use flatclip::architecture::Preprocess;
use flatclip::model::{Clip, ClipConfig, Device, ImageConfig, LoadOptions, TextTower, lowest_cosine};
use flatclip::text::Tokenizer;
use flatclip::weights::Checkpoint;
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

/// A model of these weights whose towers a Python object computes, checked against flatclip's f32 kernels.
#[pyfunction]
#[pyo3(signature = (weights, towers, about, *, name=None, progress=None))]
pub(crate) fn model_on(
    py: Python<'_>,
    weights: &Bound<'_, Weights>,
    towers: &Bound<'_, PyAny>,
    about: Given<'_>,
    name: Option<String>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Model> {
    let (checkpoint, how) = (Arc::clone(&weights.get().checkpoint), weights.get().how.clone());
    let config = checkpoint.config().clone();
    let bridge = Bridge::new(towers, config.image_size, config.embed_dim)?;
    let name = name.unwrap_or_else(|| how.name.clone());
    let (device, dtype, versions) = (about.get("name")?, about.get("dtype")?, about.get("versions")?);
    let mut device = Device { name: device, dtype, versions, lowest_cosine: None };
    // The lowest cosine similarity with flatclip's kernels that is accepted.
    let bound: f64 = about.get("bound")?;
    let made = work::run(py, progress, move |_| {
        let tokenizer = Tokenizer::of(&checkpoint)?;
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

/// The model made of an encoder.
#[pyfunction]
#[pyo3(signature = (name, setup, towers))]
pub(crate) fn model_of(py: Python<'_>, name: String, setup: Given<'_>, towers: &Bound<'_, PyAny>) -> PyResult<Model> {
    let known = ClipConfig::named("ViT-B-16").ok_or_else(|| Error::config("model", "no released architecture"));
    let known = known.or_raise(py)?;
    let (mean, std): ([f32; 3], [f32; 3]) = (setup.get("mean")?, setup.get("std")?);
    let mut config = ClipConfig {
        embed_dim: setup.get("width")?,
        image_size: setup.get("size")?,
        image: ImageConfig::Other,
        logit_scale: setup.get("logit_scale")?,
        logit_bias: setup.get("logit_bias")?,
        preprocess: Preprocess { mean, std, ..Preprocess::CLIP },
        ..known
    };
    if !setup.get::<bool>("text")? {
        config.text = None;
    } else if let Some(text) = &mut config.text {
        // The width of the token embedding is 0 if contexts are not supported.
        (text.width, text.context_length) = (setup.get("text_width")?, setup.get("context_length")?);
    }
    let bridge = Bridge::new(towers, config.image_size, config.embed_dim)?;
    let device = Device {
        name: setup.get("device")?,
        dtype: setup.get("dtype")?,
        versions: setup.get("versions")?,
        lowest_cosine: setup.get("lowest_cosine")?,
    };
    let fingerprint: String = setup.get("fingerprint")?;
    let clip = clip(&bridge, &config, &fingerprint, &device, setup.get("strings")?);
    let how = How::f32(name.clone(), None, true, None);
    let model = flatclip::Model::from_parts(name, clip, Tokenizer::clip());
    Ok(Model { model, how, towers: Some(Arc::new(towers.clone().unbind())) })
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
