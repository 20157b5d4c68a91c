//! The image classifier and its stream. The scikit-learn estimator (`python/flatclip/_classifier.py`) is built on it.

use crate::answers::{Answer, Answers};
use crate::errors::OrRaise as _;
use crate::images::{self, Input};
use crate::model::{Model, strings};
use crate::{arrays, lock, own, prompt, values, work};
use flatclip::methods::Kind;
use flatclip::{Error, Progress};
use numpy::{PyArray3, PyArrayDyn, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A model, class names, a prompt and a method, ready to answer.
#[pyclass(module = "flatclip._native", frozen)]
pub(crate) struct Engine {
    classifier: flatclip::Classifier,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (model, *, classes, method, prompt, views, certainty, view_policy, seed, options, statistics, generated, cache,
        exif, any_model, progress))]
    fn new(
        py: Python<'_>,
        model: &Bound<'_, Model>,
        classes: Option<&Bound<'_, PyAny>>,
        method: Option<&str>,
        prompt: Option<&Bound<'_, PyAny>>,
        views: Option<usize>,
        certainty: Option<f64>,
        view_policy: &str,
        seed: u64,
        options: Option<&Bound<'_, PyDict>>,
        statistics: Option<PathBuf>,
        generated: Option<PathBuf>,
        cache: Option<PathBuf>,
        exif: bool,
        any_model: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut builder = flatclip::Classifier::builder(&model.get().model)
            .registry(own::registry().or_raise(py)?)
            .options(values::table(options)?)
            .view_policy(view_policy.parse().or_raise(py)?)
            .seed(seed)
            .exif(exif)
            .any_model(any_model);
        if let Some(method) = method {
            builder = builder.method(method);
        }
        if let Some(classes) = classes {
            builder = builder.classes(strings(classes, "classes")?);
        }
        if let Some(prompt) = prompt {
            builder = builder.prompt(prompt::given(prompt)?);
        }
        if let Some(views) = views {
            builder = builder.views(views);
        }
        if let Some(certainty) = certainty {
            builder = builder.any_time(certainty);
        }
        if let Some(folder) = generated {
            builder = builder.generated(folder);
        }
        if let Some(folder) = cache {
            builder = builder.cache(folder);
        }
        let classifier = work::run(py, progress, move |_| {
            if let Some(file) = statistics {
                builder = builder.statistics(Arc::new(flatclip::load_statistics(&file)?));
            }
            builder.build()
        })?;
        Ok(Self { classifier })
    }

    /// Name of the method.
    #[getter]
    fn method(&self) -> &'static str {
        self.classifier.method()
    }

    /// episodic, online or batch.
    #[getter]
    fn kind(&self) -> &'static str {
        self.classifier.kind().name()
    }

    /// Class names, in the order of the probabilities.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.classifier.classes().to_vec()
    }

    /// Views per image.
    #[getter]
    fn views(&self) -> usize {
        self.classifier.views()
    }

    /// One answer per image: independently, as one stream in input order, or as one set, depending on the method. With `skip`,
    /// images that cannot be read get no answer; with `explain`, the score of every view is computed.
    #[pyo3(signature = (images, *, skip=false, explain=false, progress=None))]
    fn answer(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyAny>,
        skip: bool,
        explain: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Answers> {
        let (inputs, classifier) = (images::many(images, self.exif())?, self.classifier.explaining(explain));
        let (answers, skipped) = work::run(py, progress, move |watch| answer_all(&classifier, &inputs, skip, watch))?;
        Ok(Answers::some(answers, skipped))
    }

    /// Unit-norm features `[n, views, width]` of the views of images.
    fn features<'py>(&self, py: Python<'py>, images: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray3<f32>>> {
        let (inputs, classifier) = (images::many(images, self.exif())?, self.classifier.clone());
        let count = inputs.len();
        let (views, width, data) = work::run(py, None, move |watch| {
            let (mut shape, mut data) = ((0, 0), Vec::new());
            for input in &inputs {
                stop_if_asked(watch)?;
                let views = classifier.view_features(&opened(&classifier, input)?)?.unit;
                shape = (views.rows(), views.cols());
                data.extend(views.into_vec());
            }
            Ok((shape.0, shape.1, data))
        })?;
        arrays::cube(py, [count, views, width], data)
    }

    /// Pixels `[views, 3, size, size]` of one image's views, as the image tower takes them.
    fn view_pixels<'py>(&self, py: Python<'py>, image: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let (input, classifier) = (images::one(image, self.exif())?, self.classifier.clone());
        let pixels = work::run(py, None, move |_| classifier.view_pixels(&opened(&classifier, &input)?))?;
        let side = ((pixels.len() / 3 / self.classifier.views().max(1)) as f64).sqrt().round() as usize;
        arrays::vector(py, pixels).reshape(vec![self.classifier.views(), 3, side, side])
    }

    /// All views of an image as a contact sheet (PNG), each with its score and its own prediction; selected views are framed.
    #[pyo3(signature = (image, answer, *, columns=8, side=112))]
    fn sheet<'py>(
        &self,
        py: Python<'py>,
        image: &Bound<'py, PyAny>,
        answer: &Answer,
        columns: usize,
        side: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (input, classifier, answer) =
            (images::one(image, self.exif())?, self.classifier.clone(), answer.answer.clone());
        let png = work::run(py, None, move |_| {
            let decoded_image = opened(&classifier, &input)?;
            classifier.view_sheet(&decoded_image, &answer, columns, side)
        })?;
        Ok(PyBytes::new(py, &png))
    }

    /// A stream that learns from its images, for online methods.
    fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        let stream = self.classifier.stream().or_raise(py)?;
        Ok(Stream { stream: Arc::new(Mutex::new(stream)), method: self.classifier.method() })
    }
}

impl Engine {
    /// Whether images are rotated per EXIF and 16-bit grey is scaled; otherwise they are read as Pillow does.
    fn exif(&self) -> bool {
        self.classifier.decode_options().exif
    }
}

/// A stream of images; holds the state of an online method.
#[pyclass(module = "flatclip", frozen)]
pub(crate) struct Stream {
    stream: Arc<Mutex<flatclip::Stream>>,
    method: &'static str,
}

#[pymethods]
impl Stream {
    /// The answer for the next image.
    fn answer(&self, py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let exif = lock(&self.stream).classifier().decode_options().exif;
        let (input, stream) = (images::one(image, exif)?, Arc::clone(&self.stream));
        let answer = work::run(py, None, move |_| next(&mut lock(&stream), &input))?;
        Ok(Answer { answer })
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.Stream of {}>", self.method)
    }
}

/// Answers in input order, and the skipped images with position and reason.
type Answered = (Vec<flatclip::Answer>, Vec<(usize, String)>);

/// Answers all images as `flatclip predict` does: as one stream, or as one set for batch methods.
fn answer_all(
    classifier: &flatclip::Classifier,
    inputs: &[Input],
    skip: bool,
    watch: &dyn Progress,
) -> flatclip::Result<Answered> {
    watch.start(classifier.method(), Some(inputs.len() as u64));
    let mut skipped = Vec::new();
    let answers = if classifier.kind() == Kind::Batch {
        let one = |input: &Input| classifier.view_features(&opened(classifier, input)?);
        let set = of_each(inputs, skip, watch, &mut skipped, one)?;
        if set.is_empty() { Vec::new() } else { classifier.answer_set(&set)? }
    } else {
        let mut stream = classifier.stream()?;
        of_each(inputs, skip, watch, &mut skipped, |input| next(&mut stream, input))?
    };
    watch.finish();
    Ok((answers, skipped))
}

/// Applies `one` to every image; with `skip`, images that cannot be read are added to `skipped` instead of causing an error.
fn of_each<T>(
    inputs: &[Input],
    skip: bool,
    watch: &dyn Progress,
    skipped: &mut Vec<(usize, String)>,
    mut one: impl FnMut(&Input) -> flatclip::Result<T>,
) -> flatclip::Result<Vec<T>> {
    let mut made = Vec::with_capacity(inputs.len());
    for (position, input) in inputs.iter().enumerate() {
        stop_if_asked(watch)?;
        match one(input) {
            Ok(found) => made.push(found),
            Err(error) if skip && is_of_the_image(&error) => skipped.push((position, error.to_string())),
            Err(error) => return Err(error),
        }
        watch.advance(position as u64 + 1, "");
    }
    Ok(made)
}

/// Whether an error concerns one image only: its file is missing, damaged or too large.
fn is_of_the_image(error: &Error) -> bool {
    ["image.", "file.", "limit."].iter().any(|kind| error.code().starts_with(kind))
}

fn next(stream: &mut flatclip::Stream, input: &Input) -> flatclip::Result<flatclip::Answer> {
    match input {
        Input::Path(path) => stream.answer(path),
        Input::Bytes(bytes) => stream.answer(bytes.as_slice()),
        Input::Image(image) => stream.answer(image),
    }
}

/// Decodes an image with the classifier's settings.
fn opened(classifier: &flatclip::Classifier, input: &Input) -> flatclip::Result<flatclip::Image> {
    match input {
        Input::Path(path) => classifier.open(path),
        Input::Bytes(bytes) => classifier.decode(bytes),
        Input::Image(image) => Ok(image.clone()),
    }
}

fn stop_if_asked(watch: &dyn Progress) -> flatclip::Result<()> {
    if watch.cancelled() { Err(Error::Interrupted("stopped between two images".to_owned())) } else { Ok(()) }
}
