//! Prompts, which turn a class list into text features.

use crate::arrays;
use crate::errors::OrRaise as _;
use crate::model::strings;
use numpy::{PyArrayDyn, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::path::PathBuf;

/// Templates, a learned context, class embeddings, or the result of another tuner.
#[pyclass(name = "Prompt", module = "flatclip", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct Prompt {
    pub(crate) prompt: flatclip::Prompt,
}

/// Converts a prompt argument: a `Prompt`, a string (template or path), a list of templates, or class embeddings.
pub(crate) fn given(value: &Bound<'_, PyAny>) -> PyResult<flatclip::Prompt> {
    if let Ok(prompt) = value.cast::<Prompt>() {
        return Ok(prompt.get().prompt.clone());
    }
    let py = value.py();
    if value.is_instance_of::<PyString>() || value.hasattr("__fspath__")? {
        let word: PathBuf = value.extract()?;
        return flatclip::Prompt::parse(&word.to_string_lossy()).or_raise(py);
    }
    if value.hasattr("shape")? {
        return flatclip::Prompt::features(arrays::matrix(value, "prompt")?).or_raise(py);
    }
    flatclip::Prompt::templates(&strings(value, "prompt")?).or_raise(py)
}

#[pymethods]
impl Prompt {
    /// A template with {}, imagenet7, imagenet80, a list of templates, class embeddings, a prompt file or the directory of
    /// a tuning run.
    #[new]
    fn new(prompt: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { prompt: given(prompt)? })
    }

    /// templates, learned, features, cocoop, maple, tip-adapter or linear.
    #[getter]
    fn kind(&self) -> &'static str {
        self.prompt.kind().name()
    }

    /// Its name in tables.
    #[getter]
    fn label(&self) -> String {
        self.prompt.label()
    }

    /// The class list it was learned with; empty where it has none.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.prompt.provenance.classes.clone()
    }

    /// The learned context, `[tokens, width]` or `[classes, tokens, width]`; None where there is none.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArrayDyn<f32>>>> {
        let Some(context) = self.prompt.context() else { return Ok(None) };
        let values = arrays::vector(py, context.data.clone());
        Ok(Some(values.reshape(context.shape())?))
    }

    /// Writes the prompt file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.prompt.save(&path).or_raise(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let rebuild = py.get_type::<Self>().getattr("_from_bytes")?;
        Ok((rebuild, (PyBytes::new(py, &self.prompt.to_bytes().or_raise(py)?),)))
    }

    #[staticmethod]
    fn _from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self { prompt: flatclip::Prompt::from_bytes(bytes, "pickled prompt".as_ref()).or_raise(py)? })
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.prompt.content == other.prompt.content
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.Prompt {}: {}>", self.prompt.kind(), self.prompt.title())
    }
}
