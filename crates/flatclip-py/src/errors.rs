//! The library's errors as Python exceptions. `python/flatclip/errors.py` defines the classes and maps error codes to them.

use flatclip::{Error, Hint};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

/// Converts an error to an exception: its code selects the class, and its hint is written as Python code.
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyErr {
    if error.code() == "interrupted" {
        return PyKeyboardInterrupt::new_err(error.to_string());
    }
    let hint = error.hint().map(in_python);
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
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for flatclip::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, error))
    }
}

/// A hint, which does not depend on the interface, as Python keyword arguments and calls.
fn in_python(hint: &Hint) -> String {
    match hint {
        Hint::Model => "give a model: flatclip.load(...)".to_owned(),
        Hint::TextFeatures => "give class embeddings as prompt=array".to_owned(),
        Hint::Tune(tuner) => format!("make one with flatclip.tune(method={tuner:?}, ...)"),
        Hint::ImportPrompt => "give it as class embeddings: prompt=array".to_owned(),
        Hint::Statistics => "make them with `flatclip stats`, then give statistics=FILE".to_owned(),
        Hint::Generated => "give generated=FOLDER".to_owned(),
        Hint::Resume => "resume=True goes on".to_owned(),
        Hint::ResumeOrElsewhere => "give resume=True to continue it, or another out=".to_owned(),
        Hint::Elsewhere => "give another out=".to_owned(),
        Hint::AllowErrors(count) => format!("fix them, or skip them: max_errors={count}"),
        Hint::FewerShots => "lower shots=, or give allow_fewer=True".to_owned(),
        Hint::HeldOut => "give held_out=N, or set the values".to_owned(),
        Hint::DataRoot(name) => format!("give root=FOLDER, or paths={{{name:?}: FOLDER}}"),
        Hint::List(what) => match *what {
            "models" => "flatclip.list_models() lists them".to_owned(),
            "methods" => "flatclip.list_methods() lists them".to_owned(),
            other => format!("list the {other}"),
        },
        Hint::OtherModel => "load the model it was learned with, or give any_model=True".to_owned(),
        other => other.to_string(),
    }
}
