//! Lists methods, models and error codes.

use crate::errors::OrRaise as _;
use crate::{own, values};
use flatclip::Error;
use flatclip_lab::tuners::{TUNERS, tuner};
use pyo3::prelude::*;
use serde_json::json;

/// Names of the methods: adapters and tuners, or one of the two.
#[pyfunction]
#[pyo3(signature = (role=None))]
pub(crate) fn list_methods(py: Python<'_>, role: Option<&str>) -> PyResult<Vec<&'static str>> {
    let (adapters, tuners) = match role {
        None => (true, true),
        Some("adapter") => (true, false),
        Some("tuner") => (false, true),
        Some(other) => return Err(Error::unknown("role", other, ["adapter", "tuner"])).or_raise(py),
    };
    let registry = own::registry().or_raise(py)?;
    let tuners = TUNERS.iter().map(|spec| spec.name).filter(|_| tuners);
    let adapters = registry.adapters().iter().map(|spec| spec.name).filter(|_| adapters);
    Ok(tuners.chain(adapters).collect())
}

/// Describes a method: role, kind, needs, summary, documentation, options.
#[pyfunction]
pub(crate) fn method_info<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let registry = own::registry().or_raise(py)?;
    let adapter = registry.adapter(name);
    let info = match &adapter {
        Ok(spec) => json!({
            "name": spec.name, "aliases": spec.aliases, "role": "adapter", "kind": spec.kind(), "needs": spec.needs,
            "summary": spec.summary, "docs": spec.docs, "options": spec.options, "defaults": spec.defaults(),
            "implementation": spec.identity(),
        }),
        Err(_) => match tuner(name) {
            Ok(spec) => json!({
                "name": spec.name, "aliases": spec.aliases, "role": "tuner", "kind": "training",
                "needs": { "vit": spec.vit }, "summary": spec.summary, "docs": spec.docs, "options": spec.options,
                "defaults": flatclip::options::defaults(spec.options),
            }),
            Err(_) => {
                let adapters = registry.adapters().iter().map(|spec| spec.name);
                let known = adapters.chain(TUNERS.iter().map(|spec| spec.name));
                return Err(Error::unknown("method", name, known)).or_raise(py);
            }
        },
    };
    values::from_json(py, &info)
}

/// Names of the models: the embedded ones, then the published ones, which are searched on disk or downloaded.
#[pyfunction]
pub(crate) fn list_models() -> Vec<&'static str> {
    let known = flatclip::weights::KNOWN.iter().map(|known| known.name);
    ["pocket", "pocket-vit"].into_iter().chain(known).collect()
}

/// Every error code with its meaning.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<(&'static str, &'static str)> {
    Error::CODES.to_vec()
}
