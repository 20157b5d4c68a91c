//! The library's errors as Python exceptions. `python/flatclip/errors.py` defines the classes and maps error codes to them.

use crate::hints;
use flatclip::Error;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

/// Converts an error to an exception: its code selects the class, and its hint is written as Python code.
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyErr {
    if error.code() == "interrupted" {
        return PyKeyboardInterrupt::new_err(error.to_string());
    }
    let hint = error.hint().map(hints::in_python);
    make(py, error.code(), &error.to_string(), hint.as_deref())
}

/// The exception for a panic: a bug in flatclip, never the caller's mistake.
pub(crate) fn internal(py: Python<'_>, what: &str) -> PyErr {
    make(py, "internal", &format!("a fault in flatclip itself: {what}; please report it"), None)
}

fn make(py: Python<'_>, code: &str, message: &str, hint: Option<&str>) -> PyErr {
    let made = py.import("flatclip.errors").and_then(|module| module.call_method1("make", (code, message, hint)));
    made.map_or_else(|_| PyRuntimeError::new_err(message.to_owned()), PyErr::from_value)
}

/// Converts results of calls that run on the calling thread.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for flatclip::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, error))
    }
}
