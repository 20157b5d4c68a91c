//! Converts plain values between Python, TOML (options) and JSON (results).

use crate::errors::OrRaise as _;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A dictionary of arguments, which Python's signatures give.
#[derive(FromPyObject)]
#[pyo3(transparent)]
pub(crate) struct Given<'py>(Bound<'py, PyDict>);

impl<'py> Given<'py> {
    pub(crate) fn get<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        let value = self.0.as_any().get_item(name)?;
        value.extract().map_err(|error| PyTypeError::new_err(format!("{name}: {}", Into::<PyErr>::into(error))))
    }

    /// A text that the library parses.
    pub(crate) fn parsed<T: std::str::FromStr<Err = flatclip::Error>>(&self, name: &str) -> PyResult<Option<T>> {
        let text: Option<String> = self.get(name)?;
        text.map(|text| text.parse().or_raise(self.0.py())).transpose()
    }

    pub(crate) fn options(&self) -> PyResult<toml::Table> {
        table(self.get::<Option<Bound<'py, PyDict>>>("options")?.as_ref())
    }
}

/// A dictionary of options as the library takes them; `"stss.radius"` is the option `radius` of the table `stss`.
pub(crate) fn table(options: Option<&Bound<'_, PyDict>>) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in options.into_iter().flatten() {
        let key: String = key.extract()?;
        let value = toml_value(&key, &value)?;
        match key.split_once('.') {
            None => drop(table.insert(key, value)),
            Some((head, rest)) => {
                let inner = table.entry(head).or_insert_with(|| toml::Table::new().into());
                let inner = inner.as_table_mut().ok_or_else(|| {
                    PyTypeError::new_err(format!("option {key}: `{head}` is a value already, it cannot have parts"))
                })?;
                inner.insert(rest.to_owned(), value);
            }
        }
    }
    Ok(table)
}

fn toml_value(key: &str, value: &Bound<'_, PyAny>) -> PyResult<toml::Value> {
    // Check `bool` before `int`: in Python, `bool` is a subclass of `int`.
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(value.is_true().into());
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(value.extract::<i64>()?.into());
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(value.extract::<f64>()?.into());
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(value.extract::<String>()?.into());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values = value.try_iter()?.map(|item| toml_value(key, &item?));
        return Ok(toml::Value::Array(values.collect::<PyResult<_>>()?));
    }
    if let Ok(value) = value.cast::<PyDict>() {
        return Ok(table(Some(value))?.into());
    }
    // Convert a numpy or torch scalar to a Python value.
    if value.hasattr("item")? && value.getattr("shape").and_then(|shape| shape.len()).is_ok_and(|rank| rank == 0) {
        return toml_value(key, &value.call_method0("item")?);
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("option {key}: expected bool, int, float, str or a list of them, found {found}")))
}

/// The name of a value's type, for messages.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string())
}

/// The item at an index of Python; negative ones count from the end.
pub(crate) fn at<'a, T>(items: &'a [T], index: isize, what: &str) -> PyResult<&'a T> {
    let count = items.len();
    let at = if index < 0 { index + count as isize } else { index };
    let found = usize::try_from(at).ok().and_then(|at| items.get(at));
    found.ok_or_else(|| PyIndexError::new_err(format!("{what} {index} of {count}")))
}

/// Converts a JSON value to Python dictionaries and lists.
pub(crate) fn from_json<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}
