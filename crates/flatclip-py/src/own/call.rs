//! Calls the user's functions: passes arrays, checks the returned answers and converts exceptions to errors.

use super::Own;
use crate::{arrays, values};
use flatclip::methods::{Decision, Task};
use flatclip::rng::Stream;
use flatclip::{Error, Matrix};
use numpy::PyUntypedArrayMethods as _;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Converts an exception of the user's code to an error that names the method, the image and the source line.
pub(crate) fn failed(py: Python<'_>, method: &str, place: &str, error: &PyErr) -> Error {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Error::Interrupted(format!("inside {method}"));
    }
    let kind = error.get_type(py).name().map_or_else(|_| "error".to_owned(), |name| name.to_string());
    let line = last_line(py, error).unwrap_or_default();
    let text = format!("{place}{kind}: {}{line}", error.value(py));
    Error::MethodFailed { method: method.to_owned(), reason: text }
}

/// File, line and function in which an exception was raised.
fn last_line(py: Python<'_>, error: &PyErr) -> Option<String> {
    let mut at = error.traceback(py)?.into_any();
    while let Ok(next) = at.getattr("tb_next")
        && !next.is_none()
    {
        at = next;
    }
    let code = at.getattr("tb_frame").ok()?.getattr("f_code").ok()?;
    let (file, name) = (code.getattr("co_filename").ok()?, code.getattr("co_name").ok()?);
    Some(format!(" ({file}, line {}, in {name})", at.getattr("tb_lineno").ok()?))
}

/// A numpy generator whose draws depend only on the seed, the method and `keys`.
pub(super) fn generator<'py>(py: Python<'py>, seed: u64, method: &str, keys: &[&str]) -> PyResult<Bound<'py, PyAny>> {
    let mut stream = Stream::new(seed, &[&["own", method], keys].concat());
    let words: Vec<u64> = (0..4).map(|_| stream.bits()).collect();
    py.import("numpy")?.getattr("random")?.call_method1("default_rng", (words,))
}

/// Text features as a read-only array, because all images share it.
pub(super) fn shared_text(py: Python<'_>, task: &Task) -> PyResult<Py<PyAny>> {
    let array = arrays::rows(py, task.text_features().clone())?.into_any();
    let keywords = PyDict::new(py);
    keywords.set_item("write", false)?;
    array.call_method("setflags", (), Some(&keywords))?;
    Ok(array.unbind())
}

pub(super) fn keywords<'py>(py: Python<'py>, options: &toml::Table) -> PyResult<Bound<'py, PyDict>> {
    Ok(values::from_json(py, &serde_json::json!(options))?.cast_into::<PyDict>()?)
}

/// Calls `callable` with positional arguments and keywords, and reads `count` rows with one value per class.
pub(super) fn answers<'py>(
    own: &Own,
    callable: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
    keywords: Option<&Bound<'py, PyDict>>,
    (count, task, place): (Option<usize>, &Task, &str),
) -> flatclip::Result<Vec<Decision>> {
    let py = callable.py();
    let raised = |error: PyErr| failed(py, &own.name, place, &error);
    let arguments = arguments.into_pyobject(py).map_err(raised)?;
    let found = callable.call(arguments, keywords).map_err(raised)?;
    let classes = task.class_count();
    let wrong = |reason: String| Error::MethodFailed { method: own.name.clone(), reason: format!("{place}{reason}") };
    let array = arrays::floats(&found, "answer").map_err(|error| wrong(format!("{}", error.value(py))))?;
    let expected: Vec<usize> = count.into_iter().chain([classes]).collect();
    if array.shape() != expected {
        return Err(wrong(format!("expected an answer of shape {expected:?}, found {:?}", array.shape())));
    }
    let values = array.as_slice().map_err(|error| wrong(error.to_string()))?;
    let one = |(row, values)| {
        decision(own, values).map_err(|reason| match count {
            Some(_) => wrong(format!("row {row}: {reason}")),
            None => wrong(reason),
        })
    };
    values.chunks(classes.max(1)).enumerate().map(one).collect()
}

/// Checks one answer: values must be finite; probabilities must also be non-negative and not all zero.
fn decision(own: &Own, values: &[f32]) -> Result<Decision, String> {
    if let Some(class) = values.iter().position(|value| !value.is_finite()) {
        return Err(format!("the answer of class {class} is {}, expected a finite number", values[class]));
    }
    if own.logits {
        return Ok(Decision::from_logits(values));
    }
    if let Some(class) = values.iter().position(|&value| value < 0.0) {
        let value = values[class];
        return Err(format!(
            "the probability of class {class} is {value}, expected 0 or more; a method that answers logits says returns=\"logits\""
        ));
    }
    let votes: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
    let sum: f64 = votes.iter().sum();
    if !(sum.is_finite() && sum > 0.0) {
        return Err(format!("the probabilities sum to {sum}, which cannot be scaled to 1"));
    }
    let prediction = flatclip::methods::probability::argmax(values);
    Ok(Decision::from_votes(&votes, prediction))
}

/// The views of several images as `[N, V, D]`; all images must have the same number of views.
pub(super) fn stacked<'py>(
    py: Python<'py>,
    own: &Own,
    images: &[flatclip::methods::ViewSet<'_>],
) -> flatclip::Result<Bound<'py, PyAny>> {
    let first: &Matrix =
        images.first().map(|image| image.features).ok_or_else(|| Error::config("images", "expected at least one"))?;
    let (views, width) = (first.rows(), first.cols());
    if let Some(other) = images.iter().find(|image| image.features.rows() != views) {
        let reason = format!("images of {views} and of {} views cannot be stacked", other.features.rows());
        return Err(Error::MethodFailed { method: own.name.clone(), reason });
    }
    let data = images.iter().flat_map(|image| image.features.data().iter().copied()).collect();
    let array = arrays::cube(py, [images.len(), views, width], data);
    array.map(Bound::into_any).map_err(|error| failed(py, &own.name, "", &error))
}
