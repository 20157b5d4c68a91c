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
mod hints;
mod images;
mod imports;
mod listing;
mod looking;
mod model;
mod own;
mod prompt;
mod reproduce;
mod runs;
mod tower;
mod tuning;
mod values;
mod work;

/// The compiled part of flatclip.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::answers::{Answer, Answers};
    #[pymodule_export]
    use crate::classifier::{Engine, Stream};
    #[pymodule_export]
    use crate::dataset::{Dataset, reopen};
    #[pymodule_export]
    use crate::device::{Weights, model_of, model_on, open_weights};
    #[pymodule_export]
    use crate::features::{FeatureEngine, FeatureStream, TextBank, perturbed_contexts};
    #[cfg(feature = "golden")]
    #[pymodule_export]
    use crate::golden::{golden_case, golden_model};
    #[pymodule_export]
    use crate::imports::{Features, import_features};
    #[pymodule_export]
    use crate::listing::{error_codes, list_methods, list_models, method_info};
    #[pymodule_export]
    use crate::looking::{demo, landscape};
    #[pymodule_export]
    use crate::model::{Model, load, reload};
    #[pymodule_export]
    use crate::own::{register_adapter, unregister_adapter};
    #[pymodule_export]
    use crate::prompt::Prompt;
    #[pymodule_export]
    use crate::reproduce::{plan, recipe_model, reproduce};
    #[pymodule_export]
    use crate::runs::{evaluate, merge, report, sweep};
    #[pymodule_export]
    use crate::tower::TextTower;
    #[pymodule_export]
    use crate::tuning::{fit, sam_epsilon, tune};
    #[pymodule_export]
    use crate::work::{get_num_threads, set_num_threads};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
