//! Evaluation, sweeps, merging and reports; loss landscapes and the demo.

use crate::dataset::Dataset;
use crate::errors::OrRaise as _;
use crate::imports::Features;
use crate::model::{Model, strings};
use crate::values::Given;
use crate::{images, own, prompt, values, work};
use flatclip_lab::demo::DemoRequest;
use flatclip_lab::eval::{GridAxis, preset};
use flatclip_lab::report::{Cell, RowOrder, Run, Table, against_paper, benchmark_table, find_runs};
use flatclip_lab::report::{metrics_table, paired_table, reliability, top1_bars};
use flatclip_lab::run_dir::RunDir;
use flatclip_lab::{
    EvaluateRequest, LandscapeOf, LandscapeRequest, NamedPrompt, PromptChoice, Subject, SweepRequest, ViewChoice,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

fn request(py: Python<'_>, given: &Given<'_>) -> PyResult<EvaluateRequest> {
    let mut request = EvaluateRequest::new(given.get::<PathBuf>("out")?).or_raise(py)?;
    request.methods = given.get("methods")?;
    request.options = given.options()?;
    if given.get("own_templates")? {
        request.prompt = PromptChoice::OwnTemplates;
    } else if let Some(prompt) = given.get::<Option<Bound<'_, PyAny>>>("prompt")? {
        request.prompt = PromptChoice::One(prompt::given(&prompt)?.into());
    }
    request.views = given.get("views")?;
    request.certainty = given.get::<Option<f64>>("certainty")?.map(Into::into);
    request.view_policy = match given.get::<String>("view_policy")?.as_str() {
        "published" => ViewChoice::Published,
        name => ViewChoice::Policy(name.parse().or_raise(py)?),
    };
    request.seeds = given.get("seeds")?;
    request.order_seed = given.get("order_seed")?;
    request.limit = given.get("limit")?;
    request.shard = given.parsed("shard")?;
    request.max_errors = given.get("max_errors")?;
    request.keep_probabilities = given.get("keep_probabilities")?;
    request.generated = given.get("generated")?;
    let statistics: Option<PathBuf> = given.get("statistics")?;
    let statistics = statistics.map(|file| flatclip::load_statistics(&file).or_raise(py)).transpose()?;
    request.statistics = statistics.map(Arc::new);
    request.cache = given.get("cache")?;
    request.any_model = given.get("any_model")?;
    request.exif = given.get("exif")?;
    request.compat = given.get("compat")?;
    request.resume = given.get("resume")?;
    request.registry = own::registry().or_raise(py)?;
    Ok(request)
}

/// What is evaluated: a model on data sets, or imported features.
#[derive(FromPyObject)]
#[allow(clippy::large_enum_variant, reason = "one per call")]
pub(crate) enum Evaluated {
    Model(Model),
    Features(Features),
}

impl Evaluated {
    fn request(&self, setup: &Given<'_>, py: Python<'_>) -> PyResult<EvaluateRequest> {
        let says_prompt = setup.get::<Option<Bound<'_, PyAny>>>("prompt")?.is_some() || setup.get("own_templates")?;
        let mut request = request(py, setup)?;
        if matches!(self, Self::Features(_)) && !says_prompt {
            request.prompt = PromptChoice::Imported;
        }
        Ok(request)
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Self::Model(model) => (&model.model).into(),
            Self::Features(features) => (&features.features).into(),
        }
    }

    /// The data sets to evaluate: imported features include theirs.
    fn datasets<'a>(&'a self, given: &'a [flatclip_lab::data::Dataset]) -> &'a [flatclip_lab::data::Dataset] {
        match self {
            Self::Model(_) => given,
            Self::Features(features) => std::slice::from_ref(features.features.dataset()),
        }
    }
}

fn opened(datasets: &[Bound<'_, Dataset>]) -> Vec<flatclip_lab::data::Dataset> {
    datasets.iter().map(|data| data.get().data.clone()).collect()
}

/// A finished run with its recorded settings.
fn row(run: flatclip_lab::EvaluatedRun) -> flatclip::Result<Value> {
    let config = RunDir::open(&run.dir)?.config_table()?;
    Ok(json!({
        "dir": run.dir, "views": run.views, "config": config, "summary": run.summary, "timing": run.timing,
    }))
}

/// Evaluates every combination of method, seed and data set; returns one dictionary per run.
#[pyfunction]
#[pyo3(signature = (subject, datasets, setup, *, progress=None))]
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    subject: Evaluated,
    datasets: Vec<Bound<'py, Dataset>>,
    setup: Given<'py>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let request = subject.request(&setup, py)?;
    let datasets = opened(&datasets);
    let done = work::run(py, progress, move |watch| {
        let runs = flatclip_lab::evaluate(&request, subject.subject(), subject.datasets(&datasets), watch)?;
        runs.into_iter().map(row).collect::<flatclip::Result<Vec<_>>>()
    })?;
    values::from_json(py, &Value::Array(done))
}

/// Runs a grid of settings; one table for each data set.
#[pyfunction]
#[pyo3(signature = (subject, datasets, setup, *, axes, ablation=None, progress=None))]
pub(crate) fn sweep<'py>(
    py: Python<'py>,
    subject: Evaluated,
    datasets: Vec<Bound<'py, Dataset>>,
    setup: Given<'py>,
    axes: Vec<(String, Vec<String>)>,
    ablation: Option<&str>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let base = subject.request(&setup, py)?;
    let datasets = opened(&datasets);
    let mut axes: Vec<GridAxis> = axes.into_iter().map(|(key, values)| GridAxis { key, values }).collect();
    if let Some(name) = ablation {
        axes.extend(preset(name).or_raise(py)?);
    }
    let request = SweepRequest { base, axes };
    let swept = work::run(py, progress, move |watch| {
        flatclip_lab::sweep(&request, subject.subject(), subject.datasets(&datasets), watch)
    })?;
    let row = |data: flatclip_lab::SweptData| json!({ "dataset": data.dataset, "table": table_json(&data.table), "failed": data.failed });
    values::from_json(py, &swept.into_iter().map(row).collect::<Value>())
}

/// Merges the shards of a run; the result is byte-identical to a single-process run.
#[pyfunction]
pub(crate) fn merge<'py>(py: Python<'py>, parts: Vec<PathBuf>, out: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let summary = work::run(py, None, move |_| flatclip_lab::eval::merge(&parts, &out))?;
    values::from_json(py, &json!(summary))
}

/// Finished runs as tables and figures.
#[pyfunction]
#[pyo3(signature = (paths, *, against_published=false, tolerance=0.5, paired=false, reference=None, order="paper"))]
pub(crate) fn report<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    against_published: bool,
    tolerance: f64,
    paired: bool,
    reference: Option<String>,
    order: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let order = match order {
        "paper" => RowOrder::Paper,
        "given" => RowOrder::Given,
        other => {
            let reason = format!("expected \"paper\" or \"given\", found {other:?}");
            return Err(flatclip::Error::config("order", reason)).or_raise(py);
        }
    };
    let made = work::run(py, None, move |_| {
        let mut runs = find_runs(&paths)?.iter().map(|path| Run::read(path)).collect::<flatclip::Result<Vec<_>>>()?;
        order.sort(&mut runs);
        let mut tables = vec![metrics_table(&runs), benchmark_table(&runs, "Methods by data sets")];
        tables.iter_mut().for_each(|table| table.notes.push(order.note().into()));
        if against_published {
            tables.push(against_paper(&runs, tolerance));
        }
        if paired || reference.is_some() {
            tables.push(paired_table(&runs, reference.as_deref())?);
        }
        let mut figures: Vec<String> = reliability(&runs).iter().map(|figure| figure.to_svg()).collect();
        if runs.len() > 1 {
            figures.insert(0, top1_bars(&runs).to_svg());
        }
        Ok(json!({ "runs": runs, "tables": tables.iter().map(table_json).collect::<Vec<_>>(), "figures": figures }))
    })?;
    values::from_json(py, &made)
}

/// A table in all output formats.
fn table_json(table: &Table) -> Value {
    // The number of a cell where it has one, else its text.
    let cell = |cell: &Cell| cell.value.map_or_else(|| json!(cell.text), |value| json!(value));
    let rows: Vec<Vec<Value>> = table.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    json!({
        "title": table.title, "columns": table.header, "rows": rows, "text": table.to_text(),
        "markdown": table.to_markdown(), "latex": table.to_latex(), "csv": table.to_csv(), "html": table.to_html(),
    })
}

/// Loss surfaces around prompts: the contents of `landscape.json`, and the figures as SVG.
#[pyfunction]
#[pyo3(signature = (model, prompts, *, data, shots, image, classes, points, span, scale, seed, exif, out, progress))]
pub(crate) fn landscape<'py>(
    py: Python<'py>,
    model: &Bound<'py, Model>,
    prompts: Vec<(Option<String>, Bound<'py, PyAny>)>,
    data: Option<&Bound<'py, Dataset>>,
    shots: usize,
    image: Option<&Bound<'py, PyAny>>,
    classes: Option<&Bound<'py, PyAny>>,
    points: usize,
    span: f32,
    scale: &str,
    seed: u64,
    exif: Option<bool>,
    out: PathBuf,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let of = match (data, image, classes) {
        (Some(data), None, _) => LandscapeOf::Training { data: data.get().data.clone(), shots },
        (None, Some(image), Some(classes)) => {
            let decoded_image = images::one(image, exif.unwrap_or(true))?.image(exif.unwrap_or(true)).or_raise(py)?;
            LandscapeOf::Views { image: decoded_image, classes: strings(classes, "classes")? }
        }
        _ => return Err(PyValueError::new_err("landscape: expected data=, or image= with classes=")),
    };
    let mut request = LandscapeRequest::new(of, out).or_raise(py)?;
    (request.points, request.span, request.seed, request.exif) = (points, span, seed, exif);
    request.scale = scale.parse().or_raise(py)?;
    if !prompts.is_empty() {
        request.prompts = prompts.into_iter().map(|(name, given)| named(name, &given)).collect::<PyResult<_>>()?;
    }
    let model = model.get().model.clone();
    let record = work::run(py, progress, move |watch| flatclip_lab::landscape(&request, &model, watch))?;
    let figures: Vec<String> = record.figures().iter().map(|figure| figure.to_svg()).collect();
    values::from_json(py, &json!({ "record": record, "flatness": record.flatness(), "figures": figures }))
}

/// Runs the demo on the embedded models; returns its text, its duration in seconds and the path of the HTML page.
#[pyfunction]
#[pyo3(signature = (out, *, quick=false, progress=None))]
pub(crate) fn demo(
    py: Python<'_>,
    out: PathBuf,
    quick: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(String, f64, PathBuf)> {
    work::run(py, progress, move |watch| {
        let done = flatclip_lab::demo::demo(&DemoRequest { quick, out, ..DemoRequest::default() }, watch)?;
        Ok((done.text(), done.seconds, done.report))
    })
}

/// A prompt with the name that records use.
fn named(name: Option<String>, given: &Bound<'_, PyAny>) -> PyResult<NamedPrompt> {
    let mut prompt: NamedPrompt = prompt::given(given)?.into();
    prompt.name = name.unwrap_or(prompt.name);
    Ok(prompt)
}
