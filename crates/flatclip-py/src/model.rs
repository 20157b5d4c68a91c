//! Models.

use crate::errors::OrRaise as _;
use crate::{arrays, images, work};
use flatclip::architecture::Activation;
use flatclip::model::{Features, Precision};
use flatclip::{Error, Matrix, ModelBuilder, Progress as _};
use numpy::PyArray2;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::sync::Arc;

/// A loaded model: two towers, the tokenizer and the preprocessing that belong together.
#[pyclass(name = "Model", module = "flatclip", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) model: flatclip::Model,
    pub(crate) how: How,
    /// The Python object that computes the towers; `None` for flatclip's own kernels.
    pub(crate) towers: Option<Arc<Py<PyAny>>>,
}

/// The arguments of `load`, so that unpickling in another process loads the same model.
#[derive(Clone, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct How {
    pub(crate) name: String,
    model_dir: Option<PathBuf>,
    offline: bool,
    precision: String,
    activation: Option<String>,
}

impl How {
    /// With the precision in which a device is checked.
    pub(crate) fn f32(name: String, model_dir: Option<PathBuf>, offline: bool, activation: Option<String>) -> Self {
        Self { name, model_dir, offline, precision: "f32".to_owned(), activation }
    }

    pub(crate) fn builder(&self) -> PyResult<ModelBuilder> {
        let mut builder = flatclip::Model::builder(&self.name).offline(self.offline);
        if let Some(folder) = &self.model_dir {
            builder = builder.model_dir(folder);
        }
        if self.precision != "auto" {
            builder = builder.precision(Precision::from_name(&self.precision).ok_or_else(|| {
                let found = &self.precision;
                PyValueError::new_err(format!("precision: expected auto, f32, bf16 or i16, found {found:?}"))
            })?);
        }
        if let Some(word) = &self.activation {
            builder = builder.activation(Activation::parse(word).ok_or_else(|| {
                PyValueError::new_err(format!("activation: expected quick-gelu or gelu, found {word:?}"))
            })?);
        }
        Ok(builder)
    }

    fn load(self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<Model> {
        let builder = self.builder()?;
        let model = work::run(py, progress, move |watch| builder.load(watch))?;
        Ok(Model { model, how: self, towers: None })
    }
}

/// Loads a model by name, folder or file.
#[pyfunction]
#[pyo3(signature = (name, *, model_dir=None, offline=false, precision="auto".to_owned(), activation=None, progress=None))]
pub(crate) fn load(
    py: Python<'_>,
    name: String,
    model_dir: Option<PathBuf>,
    offline: bool,
    precision: String,
    activation: Option<String>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Model> {
    How { name, model_dir, offline, precision, activation }.load(py, progress)
}

/// Unpickles a model: loads it with the same arguments; an error if the weights have changed.
#[pyfunction]
pub(crate) fn reload(py: Python<'_>, how: How, hash: &str) -> PyResult<Model> {
    let name = how.name.clone();
    let model = how.load(py, None)?;
    if model.model.hash() == hash {
        return Ok(model);
    }
    let reason = format!("the pickled model had weights {hash}, what is there now has {}", model.model.hash());
    Err(Error::Weights { path: name.into(), reason }).or_raise(py)
}

#[pymethods]
impl Model {
    /// The name under which the model was loaded.
    #[getter]
    fn name(&self) -> &str {
        self.model.name()
    }

    /// The architecture in one line.
    #[getter]
    fn description(&self) -> String {
        self.model.describe()
    }

    /// Hash of the weights: the same for the same values, whatever file they came from.
    #[getter]
    fn hash(&self) -> &str {
        self.model.hash()
    }

    /// Width of the features.
    #[getter]
    fn width(&self) -> usize {
        self.model.width()
    }

    /// Input size of the image tower in pixels.
    #[getter]
    fn image_size(&self) -> usize {
        self.model.config().image_size
    }

    /// The factor on cosine similarities: 100 for OpenAI's weights.
    #[getter]
    fn logit_scale(&self) -> f32 {
        self.model.logit_scale()
    }

    /// Precision of the image tower.
    #[getter]
    fn precision(&self) -> String {
        self.model.clip().precision()
    }

    /// Features `[n, width]` of images, one un-augmented view each.
    #[pyo3(signature = (images, *, normalize=true, exif=true))]
    fn encode_image<'py>(
        &self,
        py: Python<'py>,
        images: &Bound<'py, PyAny>,
        normalize: bool,
        exif: bool,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (inputs, model) = (images::many(images, exif)?, self.model.clone());
        let features = work::run(py, None, move |watch| {
            let decoded = inputs.iter().map(|input| match watch.cancelled() {
                true => Err(Error::Interrupted("encoding images".to_owned())),
                false => input.image(exif),
            });
            scaled(model.plain_features(decoded)?, normalize)
        })?;
        arrays::rows(py, features)
    }

    /// Features `[n, width]` of texts.
    #[pyo3(signature = (texts, *, normalize=true, truncate=false))]
    fn encode_text<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        normalize: bool,
        truncate: bool,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let texts: Vec<String> =
            if texts.is_instance_of::<PyString>() { vec![texts.extract()?] } else { strings(texts, "texts")? };
        let model = self.model.clone();
        let features = work::run(py, None, move |_| scaled(model.raw_text_features(&texts, truncate)?, normalize))?;
        arrays::rows(py, features)
    }

    /// Token embeddings `[tokens, width of the text tower]` of words, for example to initialise a context.
    fn embed_words<'py>(&self, py: Python<'py>, words: &str) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let tower = self.model.clip().text().or_raise(py)?;
        let ids = self.model.tokenizer().encode(words);
        arrays::rows(py, tower.embed(&ids).or_raise(py)?)
    }

    /// Device, dtype and library versions of the towers, and the check against flatclip's kernels; None for flatclip's kernels.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::values::from_json(py, &serde_json::json!(self.model.clip().device()))
    }

    /// Unpickling loads the model with the same arguments; towers computed by Python provide their own `rebuild`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        if let Some(towers) = &self.towers {
            return towers.bind(py).call_method0("rebuild")?.extract();
        }
        let reload = py.import("flatclip._native")?.getattr("reload")?;
        Ok((reload, (self.how.clone(), self.model.hash().to_owned()).into_pyobject(py)?.into_any()))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.model.hash() == other.model.hash()
            && self.how.precision == other.how.precision
            && self.model.clip().device() == other.model.clip().device()
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.model.hash().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.Model {}: {}>", self.model.name(), self.model.describe())
    }
}

fn scaled(raw: Matrix, normalize: bool) -> flatclip::Result<Matrix> {
    Ok(if normalize { Features::unit(raw).0 } else { raw })
}

/// A list of texts. A single text is refused instead of being split into characters.
pub(crate) fn strings(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        let reason = format!("{name}: expected a list of texts, found one text: {}", value.repr()?);
        return Err(PyTypeError::new_err(reason));
    }
    let found: Vec<String> = value.try_iter()?.map(|item| item?.extract()).collect::<PyResult<_>>()?;
    if found.is_empty() {
        return Err(PyValueError::new_err(format!("{name}: expected at least one, found none")));
    }
    Ok(found)
}
