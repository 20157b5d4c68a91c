//! Reproduces items of the paper: plan, steps and tables.

use crate::errors::OrRaise as _;
use crate::model::Model;
use crate::{values, work};
use flatclip_lab::data::{Compat, OpenOptions};
use flatclip_lab::reproduce::{Estimate, Recipe, ReproduceRequest, Step};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The arguments of `reproduce`, as Python's signature gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Setup {
    item: Option<String>,
    recipe: Option<PathBuf>,
    root: Option<PathBuf>,
    paths: BTreeMap<String, PathBuf>,
    compat: Vec<String>,
    limit: Option<usize>,
    seeds: Vec<u64>,
    views: Option<usize>,
    methods: Vec<String>,
    datasets: Vec<String>,
    shots: Option<usize>,
    epochs: Option<usize>,
    shard: Option<String>,
    prompts: BTreeMap<String, PathBuf>,
    text_features: Option<PathBuf>,
    generated: Option<PathBuf>,
    descriptions: Option<PathBuf>,
    max_errors: usize,
    cache: Option<PathBuf>,
    out: PathBuf,
}

impl Setup {
    fn request(self, py: Python<'_>) -> PyResult<ReproduceRequest> {
        let recipe = recipe(self.item.as_deref(), self.recipe).or_raise(py)?;
        let open = OpenOptions {
            root: self.root,
            paths: self.paths,
            compat: Compat::parse(&self.compat).or_raise(py)?,
            ..OpenOptions::default()
        };
        Ok(ReproduceRequest {
            open,
            compat: self.compat,
            limit: self.limit,
            seeds: self.seeds,
            views: self.views,
            methods: self.methods,
            datasets: self.datasets,
            shots: self.shots,
            epochs: self.epochs,
            shard: self.shard.map(|text| text.parse().or_raise(py)).transpose()?,
            prompts: self.prompts,
            text_features: self.text_features,
            generated: self.generated,
            descriptions: self.descriptions,
            max_errors: self.max_errors,
            cache: self.cache,
            ..ReproduceRequest::new(recipe, self.out)
        })
    }
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
    setup: Setup,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, model) = (setup.request(py)?, model.get().model.clone());
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
    setup: Setup,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, model) = (setup.request(py)?, model.get().model.clone());
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
