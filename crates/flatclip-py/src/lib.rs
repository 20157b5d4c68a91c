//! `flatclip._native`: the compiled part of the Python package. A thin layer over the library's facade: it converts Python
//! values to requests and answers to Python values; all computation is in `flatclip`.

mod answers;
mod arrays;
mod bridge;
mod classifier;
mod dataset;
mod device;
mod errors;
mod features;
#[cfg(feature = "golden")]
mod golden;
mod images;
mod imports;
mod listing;
mod model;
mod own;
mod prompt;
mod reproduce;
mod runs;
mod tower;
mod tuning;
mod values;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Panics of work are caught, so a poisoned lock never means an incomplete change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The compiled part of flatclip.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[cfg(feature = "golden")]
    #[pymodule_export]
    use crate::golden::{golden_case, golden_model};
    #[pymodule_export]
    use crate::{
        answers::{Answer, Answers},
        classifier::{Engine, Stream},
        dataset::{Dataset, reopen},
        device::{Weights, model_of, model_on, open_weights},
        features::{FeatureEngine, FeatureStream, TextBank, perturbed_contexts},
        imports::{Features, import_features},
        listing::{error_codes, list_methods, list_models, method_info},
        model::{Model, load, reload},
        own::{register_adapter, unregister_adapter},
        prompt::Prompt,
        reproduce::{plan, recipe_model, reproduce},
        runs::{demo, evaluate, landscape, merge, report, sweep},
        tower::TextTower,
        tuning::{fit, sam_epsilon, tune},
        work::{get_num_threads, set_num_threads},
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
