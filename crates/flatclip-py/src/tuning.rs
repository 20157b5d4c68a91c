//! Tuning: in a run directory, or on images in memory; and sharpness-aware steps for custom training loops.

use crate::dataset::{Dataset, in_memory};
use crate::errors::OrRaise as _;
use crate::model::{Model, strings};
use crate::prompt::Prompt;
use crate::tower::Elsewhere;
use crate::values::Given;
use crate::{arrays, images, own, values, work};
use flatclip::methods::sam::Shaped;
use flatclip::model::Precision;
use flatclip::{Error, Matrix};
use flatclip_lab::TuneRequest;
use flatclip_lab::data::few_shot::Sampler;
use flatclip_lab::tuners::OwnLoss;
use numpy::{PyArrayDyn, PyArrayMethods as _, PyUntypedArrayMethods as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

fn request(given: &Given<'_>) -> PyResult<TuneRequest> {
    let wrong = PyValueError::new_err::<String>;
    let sampler = match given.get::<String>("sampler")?.as_str() {
        "portable" => Sampler::Portable,
        "python" => Sampler::Python,
        other => return Err(wrong(format!("sampler: expected portable or python, found {other:?}"))),
    };
    let text_precision = match given.get::<Option<String>>("text_precision")?.as_deref() {
        None | Some("auto") => None,
        Some(name) => Some(
            Precision::from_name(name)
                .ok_or_else(|| wrong(format!("text_precision: expected auto, f32, i16 or bf16, found {name:?}")))?,
        ),
    };
    Ok(TuneRequest {
        method: given.get("method")?,
        shots: given.get("shots")?,
        held_out: given.get("held_out")?,
        seed: given.get("seed")?,
        sampler,
        allow_fewer: given.get("allow_fewer")?,
        list: given.get("list")?,
        max_errors: given.get("max_errors")?,
        search: given.get("search")?,
        checkpoint_every: given.get("checkpoint_every")?,
        overrides: vec![given.options()?],
        exif: given.get("exif")?,
        text_precision,
        out: given.get("out")?,
        resume: given.get("resume")?,
        ..TuneRequest::default()
    })
}

/// Tunes a prompt on a data set; returns the contents of `summary.json`.
#[pyfunction]
#[pyo3(signature = (model, train, setup, *, test=None, text=None, loss=None, progress=None))]
pub(crate) fn tune<'py>(
    py: Python<'py>,
    model: &Bound<'py, Model>,
    train: &Bound<'py, Dataset>,
    setup: Given<'py>,
    test: Option<&Bound<'py, Dataset>>,
    text: Option<(Py<PyAny>, Py<PyAny>)>,
    loss: Option<(String, Py<PyAny>)>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut request = request(&setup)?;
    request.test = test.map(|data| data.get().data.clone());
    if let Some((forward, gradient)) = text {
        request.text = Some(Arc::new(Elsewhere { forward, gradient }));
    }
    if let Some((identity, callable)) = loss {
        request.loss = Some(Arc::new(CalledLoss { identity, callable }));
    }
    if request.check().or_raise(py)? && request.test.is_none() {
        let reason =
            format!("{} with search = \"test\" chooses on test images: give test=Dataset(...)", request.method);
        return Err(PyValueError::new_err(reason));
    }
    let (model, train) = (model.get().model.clone(), train.get().data.clone());
    let summary = work::run(py, progress, move |watch| flatclip_lab::tune(&request, &model, &train, watch))?;
    values::from_json(py, &json!(summary))
}

/// A loss function implemented in Python.
#[derive(Debug)]
struct CalledLoss {
    identity: String,
    callable: Py<PyAny>,
}

impl OwnLoss for CalledLoss {
    fn loss(&self, logits: &Matrix, labels: &[usize]) -> flatclip::Result<(f64, Matrix)> {
        let wrong = |reason: String| Error::MethodFailed { method: self.identity.clone(), reason };
        Python::attach(|py| {
            let raised = |error: PyErr| own::failed(py, &self.identity, "", &error);
            let array = arrays::rows(py, logits.clone()).map_err(raised)?;
            let labels = arrays::vector(py, labels.iter().map(|&label| label as i64).collect());
            let found = self.callable.bind(py).call1((array, labels)).map_err(raised)?;
            let expected = "expected (loss, d_logits): a number and an array of the shape of the logits";
            let (value, gradient): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                found.extract().map_err(|_| wrong(format!("{expected}, found {}", values::type_name(&found))))?;
            let value = value.call_method0("__float__").and_then(|value| value.extract::<f64>());
            let value = value.map_err(|_| wrong(format!("{expected}, found a loss that is not one number")))?;
            let gradient = arrays::matrix(&gradient, "d_logits").map_err(raised)?;
            let (shape, own) = ((logits.rows(), logits.cols()), (gradient.rows(), gradient.cols()));
            if own != shape {
                return Err(wrong(format!("d_logits: expected shape {shape:?}, found {own:?}")));
            }
            if !value.is_finite() || gradient.data().iter().any(|d| !d.is_finite()) {
                return Err(wrong(format!("the loss is {value} or its gradient holds NaN or infinity")));
            }
            Ok((value, gradient))
        })
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

/// Tunes a prompt on images in memory; returns the prompt and the run summary.
#[pyfunction]
#[pyo3(signature = (model, images, labels, classes, *, method, shots, seed, options, exif, out, progress))]
pub(crate) fn fit<'py>(
    py: Python<'py>,
    model: &Bound<'py, Model>,
    images: &Bound<'py, PyAny>,
    labels: Vec<usize>,
    classes: &Bound<'py, PyAny>,
    method: String,
    shots: Option<usize>,
    seed: u64,
    options: Option<&Bound<'py, PyDict>>,
    exif: bool,
    out: PathBuf,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Prompt, Bound<'py, PyAny>)> {
    let inputs = images::many(images, exif)?;
    let train = in_memory(py, inputs, &labels, strings(classes, "classes")?, "images", exif)?;
    let most = train.class_counts().into_iter().max().unwrap_or(1);
    let overrides = vec![values::table(options)?];
    // Use all images of every class unless the caller sets `shots`.
    let request = TuneRequest {
        method,
        shots: Some(shots.unwrap_or(most)),
        held_out: Some(0),
        seed,
        allow_fewer: shots.is_none(),
        exif: Some(exif),
        overrides,
        out,
        ..TuneRequest::default()
    };
    let model = model.get().model.clone();
    let (prompt, summary) = work::run(py, progress, move |watch| {
        let summary = flatclip_lab::tune(&request, &model, &train, watch)?;
        Ok((flatclip::Prompt::open(&request.out)?, summary))
    })?;
    Ok((Prompt { prompt }, values::from_json(py, &json!(summary))?))
}

/// The perturbation eps of a sharpness-aware step, one array for each parameter.
#[pyfunction]
#[pyo3(signature = (parameters, gradients, *, options))]
pub(crate) fn sam_epsilon<'py>(
    py: Python<'py>,
    parameters: Vec<Bound<'py, PyAny>>,
    gradients: Vec<Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<Bound<'py, PyArrayDyn<f32>>>> {
    if parameters.len() != gradients.len() {
        let reason =
            format!("{} parameters and {} gradients: expected as many of both", parameters.len(), gradients.len());
        return Err(PyValueError::new_err(reason));
    }
    let all = |values: &[Bound<'py, PyAny>], name: &str| -> PyResult<Vec<(Vec<usize>, Vec<f32>)>> {
        let one = |value: &Bound<'py, PyAny>| {
            let array = arrays::floats(value, name)?;
            Ok((array.shape().to_vec(), array.as_slice()?.to_vec()))
        };
        values.iter().map(one).collect()
    };
    let (parameters, gradients) = (all(&parameters, "parameters")?, all(&gradients, "gradients")?);
    if let Some(at) = parameters.iter().zip(&gradients).position(|(p, g)| p.0 != g.0) {
        let (p, g) = (&parameters[at].0, &gradients[at].0);
        return Err(PyValueError::new_err(format!("gradient {at} has shape {g:?}, its parameter {p:?}")));
    }
    let config = flatclip_lab::tuners::SaptConfig::read(&values::table(options)?).or_raise(py)?;
    let shaped: Vec<Shaped<'_>> = parameters.iter().map(|(shape, values)| (&shape[..], &values[..])).collect();
    let slopes: Vec<&[f32]> = gradients.iter().map(|(_, values)| values.as_slice()).collect();
    let epsilon = config.ascent().epsilon_of(&shaped, &slopes);
    let back =
        |(values, (shape, _)): (Vec<f32>, &(Vec<usize>, Vec<f32>))| arrays::vector(py, values).reshape(shape.clone());
    epsilon.into_iter().zip(&parameters).map(back).collect()
}
