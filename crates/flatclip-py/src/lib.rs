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

use pyo3::prelude::*;

/// The compiled part of flatclip.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<answers::Answer>()?;
    module.add_class::<answers::Answers>()?;
    module.add_class::<classifier::Engine>()?;
    module.add_class::<classifier::Stream>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<device::Weights>()?;
    module.add_class::<features::FeatureEngine>()?;
    module.add_class::<features::FeatureStream>()?;
    module.add_class::<features::TextBank>()?;
    module.add_class::<imports::Features>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<prompt::Prompt>()?;
    module.add_class::<tower::TextTower>()?;
    module.add_function(wrap_pyfunction!(dataset::reopen, module)?)?;
    module.add_function(wrap_pyfunction!(device::model_of, module)?)?;
    module.add_function(wrap_pyfunction!(device::model_on, module)?)?;
    module.add_function(wrap_pyfunction!(device::open_weights, module)?)?;
    module.add_function(wrap_pyfunction!(features::perturbed_contexts, module)?)?;
    #[cfg(feature = "golden")]
    {
        module.add_function(wrap_pyfunction!(golden::golden_case, module)?)?;
        module.add_function(wrap_pyfunction!(golden::golden_model, module)?)?;
    }
    module.add_function(wrap_pyfunction!(imports::import_features, module)?)?;
    module.add_function(wrap_pyfunction!(listing::error_codes, module)?)?;
    module.add_function(wrap_pyfunction!(listing::list_methods, module)?)?;
    module.add_function(wrap_pyfunction!(listing::list_models, module)?)?;
    module.add_function(wrap_pyfunction!(listing::method_info, module)?)?;
    module.add_function(wrap_pyfunction!(looking::demo, module)?)?;
    module.add_function(wrap_pyfunction!(looking::landscape, module)?)?;
    module.add_function(wrap_pyfunction!(model::load, module)?)?;
    module.add_function(wrap_pyfunction!(model::reload, module)?)?;
    module.add_function(wrap_pyfunction!(own::register_adapter, module)?)?;
    module.add_function(wrap_pyfunction!(own::unregister_adapter, module)?)?;
    module.add_function(wrap_pyfunction!(reproduce::plan, module)?)?;
    module.add_function(wrap_pyfunction!(reproduce::recipe_model, module)?)?;
    module.add_function(wrap_pyfunction!(reproduce::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(runs::evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(runs::merge, module)?)?;
    module.add_function(wrap_pyfunction!(runs::report, module)?)?;
    module.add_function(wrap_pyfunction!(runs::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::fit, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::sam_epsilon, module)?)?;
    module.add_function(wrap_pyfunction!(tuning::tune, module)?)?;
    module.add_function(wrap_pyfunction!(work::get_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(work::set_num_threads, module)?)?;
    Ok(())
}
