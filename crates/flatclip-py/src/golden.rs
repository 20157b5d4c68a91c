//! Golden cases on towers that Python computes: the checks of `flatclip-lab`, with a bridge in place of our kernels. For tests
//! only (feature `golden`), so that every method, tuner and gradient that goes through the bridge is compared with its original.

#[path = "../../flatclip-lab/tests/golden/cases.rs"]
#[allow(dead_code, reason = "written for a test binary, which uses all of it")]
mod cases;

use crate::bridge::Bridge;
use crate::device::{self, Weights};
use crate::work;
use cases::case::{Case, method_of};
use flatclip::model::Device;
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The checkpoint of a case's model; None for a case without towers.
#[pyfunction]
pub(crate) fn golden_model(file: PathBuf) -> PyResult<Option<PathBuf>> {
    let case = Case::load(&file).map_err(PyAssertionError::new_err)?;
    let known = method_of(&file).is_ok_and(|method| cases::check_of(&method).is_some());
    if !known || case.spec["model"].is_null() {
        return Ok(None);
    }
    case.model_path().map(Some).map_err(PyAssertionError::new_err)
}

/// Runs the check of a case on these towers; returns its summary, or an error that lists the differences.
#[pyfunction]
pub(crate) fn golden_case(
    py: Python<'_>,
    file: PathBuf,
    weights: &Bound<'_, Weights>,
    towers: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let config = weights.get().checkpoint.config().clone();
    let bridge = Bridge::new(towers, config.image_size, config.embed_dim)?;
    let outcome = work::run(py, None, move |_| {
        let clip = device::clip(&bridge, &config, "golden", &Device::default(), false);
        Ok((|| {
            let method = method_of(&file)?;
            let check = cases::check_of(&method).ok_or_else(|| format!("no check for {method}"))?;
            let case = Case::load(&file)?.on(clip);
            check(&case).map_err(|error| error.to_string())?.verdict()
        })())
    })?;
    outcome.map_err(PyAssertionError::new_err)
}
