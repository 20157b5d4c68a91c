//! Data sets: opened by name, or made of images in memory.

use crate::errors::OrRaise as _;
use crate::images::{self, Input};
use crate::model::strings;
use crate::{arrays, values, work};
use flatclip_lab::data::{self, Compat, OpenOptions, Sample, Source};
use numpy::{PyArray1, PyArray3, PyArrayMethods as _};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Classes, templates and the samples of one split.
#[pyclass(module = "flatclip", frozen)]
pub(crate) struct Dataset {
    pub(crate) data: flatclip_lab::data::Dataset,
    /// How it was opened; None for images in memory.
    how: Option<How>,
}

#[derive(Clone, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
struct How {
    spec: String,
    split: String,
    root: Option<PathBuf>,
    paths: Option<BTreeMap<String, PathBuf>>,
    class_names: Option<PathBuf>,
    templates: Option<PathBuf>,
    compat: Vec<String>,
}

impl How {
    fn open(self, py: Python<'_>) -> PyResult<Dataset> {
        let (compat, split) = (Compat::parse(&self.compat).or_raise(py)?, self.split.parse().or_raise(py)?);
        let Self { spec, root, paths, class_names: classes, templates, .. } = self.clone();
        let paths = paths.unwrap_or_default();
        let options = OpenOptions { root, paths, split, classes, templates, compat, ..OpenOptions::default() };
        let data = work::run(py, None, move |_| data::open(&spec, &options))?;
        for note in data.notes.iter().filter(|note| note.warning) {
            work::warn(py, &format!("{}: {}", data.name, note.text))?;
        }
        Ok(Dataset { data, how: Some(self) })
    }
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (spec, *, split="test".to_owned(), root=None, paths=None, class_names=None, templates=None, compat=Vec::new()))]
    fn new(
        py: Python<'_>,
        spec: String,
        split: String,
        root: Option<PathBuf>,
        paths: Option<BTreeMap<String, PathBuf>>,
        class_names: Option<PathBuf>,
        templates: Option<PathBuf>,
        compat: Vec<String>,
    ) -> PyResult<Self> {
        How { spec, split, root, paths, class_names, templates, compat }.open(py)
    }

    /// A data set of images in memory; `labels` are indices into `classes`.
    #[staticmethod]
    #[pyo3(signature = (images, labels, classes, *, name="images", exif=true))]
    fn from_images(
        py: Python<'_>,
        images: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        classes: &Bound<'_, PyAny>,
        name: &str,
        exif: bool,
    ) -> PyResult<Self> {
        let (inputs, labels) = (images::many(images, exif)?, indices(labels)?);
        Ok(Self { data: in_memory(py, inputs, &labels, strings(classes, "classes")?, name, exif)?, how: None })
    }

    /// The name in results.
    #[getter]
    fn name(&self) -> &str {
        &self.data.name
    }

    /// train, val or test.
    #[getter]
    fn split(&self) -> &'static str {
        self.data.split.name()
    }

    /// Class names, by label.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.data.classes.clone()
    }

    /// The data set's own templates.
    #[getter]
    fn templates(&self) -> Vec<String> {
        self.data.templates.clone()
    }

    /// One label per sample.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        arrays::vector(py, self.data.samples.iter().map(|sample| sample.label as i64).collect())
    }

    /// Names of the samples, the same on every machine.
    #[getter]
    fn ids(&self) -> Vec<&str> {
        self.data.samples.iter().map(|sample| sample.id.as_str()).collect()
    }

    /// Notes of the reader about the data set.
    #[getter]
    fn notes(&self) -> Vec<&str> {
        self.data.notes.iter().map(|note| note.text.as_str()).collect()
    }

    fn __len__(&self) -> usize {
        self.data.samples.len()
    }

    /// The image `[H, W, 3]` and its label.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<(Bound<'py, PyArray3<u8>>, usize)> {
        let sample = values::at(&self.data.samples, index, "sample")?.clone();
        let (label, decode) = (sample.label, self.data.decode_options(None));
        let image = work::run(py, None, move |_| sample.image(&decode))?;
        let array = arrays::vector(py, image.rgb).reshape([image.height, image.width, 3])?;
        Ok((array, label))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (How,))> {
        let how = self.how.clone().ok_or_else(|| {
            PyTypeError::new_err("a Dataset of images in memory cannot be pickled; write them to a folder: folder:DIR")
        })?;
        Ok((py.import("flatclip._native")?.getattr("reopen")?, (how,)))
    }

    fn __repr__(&self) -> String {
        let (name, split) = (&self.data.name, self.data.split.name());
        let (samples, classes) = (self.data.samples.len(), self.data.classes.len());
        format!("<flatclip.Dataset {name} {split}: {samples} samples, {classes} classes>")
    }
}

/// Labels as indices into the class list. Names are refused: the caller must convert them to indices.
fn indices(labels: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let expected = "labels: expected indices into classes";
    let wrong = |found: &Bound<'_, PyAny>| -> PyResult<PyErr> {
        let is_name = found.is_instance_of::<PyString>();
        let help = if is_name { "; for names give [classes.index(name) for name in names]" } else { "" };
        Ok(PyTypeError::new_err(format!("{expected}, found {}{help}", found.repr()?)))
    };
    if labels.is_instance_of::<PyString>() {
        return Err(wrong(labels)?);
    }
    let mut found = Vec::new();
    for label in labels.try_iter()? {
        let label = label?;
        match label.extract() {
            Ok(index) => found.push(index),
            Err(_) => return Err(wrong(&label)?),
        }
    }
    Ok(found)
}

/// Unpickles a data set: opens it with the same arguments.
#[pyfunction]
pub(crate) fn reopen(py: Python<'_>, how: &Bound<'_, PyAny>) -> PyResult<Dataset> {
    how.extract::<How>()?.open(py)
}

/// A data set of images in memory; sample ids are input positions.
pub(crate) fn in_memory(
    py: Python<'_>,
    inputs: Vec<Input>,
    labels: &[usize],
    classes: Vec<String>,
    name: &str,
    exif: bool,
) -> PyResult<flatclip_lab::data::Dataset> {
    if inputs.len() != labels.len() {
        let reason = format!("{} images and {} labels: expected as many of both", inputs.len(), labels.len());
        return Err(PyValueError::new_err(reason));
    }
    let labels = labels.to_vec();
    let samples = work::run(py, None, move |_| {
        let sample = |(index, (input, label)): (usize, (Input, usize))| {
            let source = match input {
                Input::Path(path) => Source::File(path),
                Input::Bytes(_) => Source::Given(Arc::new(input.image(exif)?)),
                Input::Image(image) => Source::Given(Arc::new(image)),
            };
            Ok(Sample { id: format!("{index:06}"), label, source })
        };
        inputs.into_iter().zip(labels).enumerate().map(sample).collect()
    })?;
    flatclip_lab::data::Dataset::of_samples(name, classes, samples).or_raise(py)
}
