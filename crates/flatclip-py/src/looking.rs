//! Loss landscapes and the demo.

use crate::dataset::Dataset;
use crate::errors::OrRaise as _;
use crate::model::{Model, strings};
use crate::runs::named;
use crate::{images, values, work};
use flatclip_lab::demo::DemoRequest;
use flatclip_lab::{LandscapeOf, LandscapeRequest};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::json;
use std::path::PathBuf;

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
