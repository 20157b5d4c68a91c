//! Reproduces items of the paper: plan, steps and tables.

use crate::errors::OrRaise as _;
use crate::model::Model;
use crate::values::Given;
use crate::{values, work};
use flatclip_lab::data::{Compat, OpenOptions};
use flatclip_lab::reproduce::{Estimate, Recipe, ReproduceRequest, Step};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;

fn request(py: Python<'_>, given: &Given<'_>) -> PyResult<ReproduceRequest> {
    let recipe = recipe(given.get::<Option<String>>("item")?.as_deref(), given.get("recipe")?).or_raise(py)?;
    let compat: Vec<String> = given.get("compat")?;
    Ok(ReproduceRequest {
        open: OpenOptions {
            root: given.get("root")?,
            paths: given.get("paths")?,
            compat: Compat::parse(&compat).or_raise(py)?,
            ..OpenOptions::default()
        },
        compat,
        limit: given.get("limit")?,
        seeds: given.get("seeds")?,
        views: given.get("views")?,
        methods: given.get("methods")?,
        datasets: given.get("datasets")?,
        shots: given.get("shots")?,
        epochs: given.get("epochs")?,
        shard: given.parsed("shard")?,
        prompts: given.get("prompts")?,
        text_features: given.get("text_features")?,
        generated: given.get("generated")?,
        descriptions: given.get("descriptions")?,
        max_errors: given.get("max_errors")?,
        cache: given.get("cache")?,
        ..ReproduceRequest::new(recipe, given.get::<PathBuf>("out")?)
    })
}

/// The recipe of an item of the paper, or the user's own recipe file.
fn recipe(item: Option<&str>, file: Option<PathBuf>) -> flatclip::Result<Recipe> {
    match (file, item) {
        (Some(file), _) => Recipe::read(&file),
        (None, item) => Recipe::find(item.unwrap_or_default()),
    }
}

/// The default model of an item.
#[pyfunction]
pub(crate) fn recipe_model(py: Python<'_>, item: Option<&str>, file: Option<PathBuf>) -> PyResult<String> {
    Ok(recipe(item, file).or_raise(py)?.model)
}

/// The steps of an item with their estimated cost, from measurements with this model.
#[pyfunction]
#[pyo3(signature = (model, setup, *, progress=None))]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    model: &Bound<'py, Model>,
    setup: Given<'py>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, model) = (request(py, &setup)?, model.get().model.clone());
    let found = work::run(py, progress, move |watch| {
        let (plan, states) = flatclip_lab::reproduce::plan(&request, &model)?;
        let prices = flatclip_lab::reproduce::prices(&request, &model, (&plan, &states), watch)?;
        let row = |((step, state), price): ((&Step, _), &Estimate)| json!({ "name": step.name, "state": state, "images": price.images, "seconds": price.seconds() });
        Ok(plan.steps.iter().zip(&states).zip(&prices).map(row).collect::<Value>())
    })?;
    values::from_json(py, &found)
}

/// Runs the missing steps of an item, and writes its tables and page from the available results.
#[pyfunction]
#[pyo3(signature = (model, setup, *, progress=None))]
pub(crate) fn reproduce<'py>(
    py: Python<'py>,
    model: &Bound<'py, Model>,
    setup: Given<'py>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, model) = (request(py, &setup)?, model.get().model.clone());
    let made = work::run(py, progress, move |watch| flatclip_lab::reproduce::reproduce(&request, &model, watch))?;
    values::from_json(
        py,
        &json!({
            "steps": made.plan.steps.len(), "skipped": made.skipped, "done": made.done,
            "open": made.open, "left_out": made.plan.left_out, "results": made.results.json(),
            "text": made.results.text(), "page": made.report,
        }),
    )
}
