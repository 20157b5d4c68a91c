//! Methods on features of another model: `adapt`, text banks, streams.

use crate::answers::{Answer, Answers};
use crate::errors::OrRaise as _;
use crate::{arrays, lock, own, values, work};
use flatclip::methods::Kind;
use flatclip::methods::adapters::stss;
use flatclip::model::Context;
use flatclip::{Matrix, TextFeatures, ViewFeatures};
use numpy::{PyArray3, PyReadonlyArrayDyn, PyUntypedArrayMethods as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex};

/// The result of `__reduce__`: a callable and its arguments.
type Pickled<'py> = (Bound<'py, PyAny>, (Bound<'py, PyArray3<f32>>,));

/// Text features of a prompt and of its perturbations, which STSS needs: `[1 + perturbations, classes, width]`.
#[pyclass(module = "flatclip._native", frozen, subclass)]
#[derive(Clone)]
pub(crate) struct TextBank {
    bank: flatclip::methods::bank::TextBank,
}

#[pymethods]
impl TextBank {
    /// From precomputed features, those of the unperturbed prompt first; rows are scaled to unit norm.
    #[new]
    fn new(py: Python<'_>, features: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = arrays::floats(features, "text bank")?;
        let &[count, classes, width] = array.shape() else {
            return Err(arrays::shape_error("text bank", "[1 + perturbations, classes, width]", array.shape()));
        };
        let rows = Matrix::from_vec(count * classes, width, array.as_slice()?.to_vec());
        Ok(Self { bank: flatclip::methods::bank::TextBank::new(rows, classes).or_raise(py)? })
    }

    /// `[1 + perturbations, classes, width]`, unit norm.
    #[getter]
    fn features<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f32>>> {
        let (classes, width) = (self.bank.base().rows(), self.bank.base().cols());
        arrays::cube(py, [1 + self.bank.perturbed().len(), classes, width], self.bank.to_rows().into_vec())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Pickled<'py>> {
        Ok((slf.get_type().into_any(), (slf.get().features(slf.py())?,)))
    }

    fn __repr__(&self) -> String {
        let base = self.bank.base();
        let around = self.bank.perturbed().len();
        format!("<flatclip.TextBank of {} classes, width {}, {around} perturbations>", base.rows(), base.cols())
    }
}

/// The context and its random perturbations, `[1 + perturbations, ...]`, from which a text bank is encoded. Options and
/// random draws are those of the method `stss`.
#[pyfunction]
#[pyo3(signature = (context, *, seed=0, options=None))]
pub(crate) fn perturbed_contexts<'py>(
    py: Python<'py>,
    context: &Bound<'py, PyAny>,
    seed: u64,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let how = stss::Config::read(&values::table(options)?).or_raise(py)?.perturbation();
    let array = arrays::floats(context, "context")?;
    let values = array.as_slice()?.to_vec();
    let (rows, width, context) = match *array.shape() {
        [tokens, width] if tokens * width > 0 => (tokens, width, Context::shared(tokens, width, values)),
        [classes, tokens, width] if classes * tokens * width > 0 => {
            (classes * tokens, width, Context::per_class(classes, tokens, width, values))
        }
        _ => return Err(arrays::shape_error("context", "[tokens, width] or [classes, tokens, width]", array.shape())),
    };
    let mut data = context.data.clone();
    how.draw(&context, seed).iter().for_each(|noise| data.extend(how.apply(&context, noise).data));
    arrays::cube(py, [1 + how.count, rows, width], data)
}

/// A method over class embeddings or a text bank, ready to answer features.
#[pyclass(module = "flatclip._native", frozen)]
pub(crate) struct FeatureEngine {
    classifier: flatclip::Classifier,
}

#[pymethods]
impl FeatureEngine {
    #[new]
    #[pyo3(signature = (text, logit_scale, *, method, classes=None, seed=0, options=None))]
    fn new(
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        logit_scale: f64,
        method: &str,
        classes: Option<&Bound<'_, PyAny>>,
        seed: u64,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let scale = arrays::finite(py, logit_scale, "logit_scale")?;
        let builder = match text.cast::<TextBank>() {
            Ok(bank) => flatclip::Classifier::from_text_bank(bank.get().bank.clone(), scale).or_raise(py)?,
            Err(_) => {
                let text = TextFeatures::new(arrays::matrix(text, "text_features")?, scale).or_raise(py)?;
                flatclip::Classifier::from_text_features(text)
            }
        };
        let registry = own::registry().or_raise(py)?;
        let mut builder = builder.registry(registry).method(method).seed(seed).options(values::table(options)?);
        if let Some(classes) = classes {
            builder = builder.classes(crate::model::strings(classes, "classes")?);
        }
        Ok(Self { classifier: work::run(py, None, move |_| builder.build())? })
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

    /// One answer per image of `[n, views, width]`.
    #[pyo3(signature = (view_features, *, progress=None))]
    fn answer(
        &self,
        py: Python<'_>,
        view_features: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Answers> {
        let numbers = arrays::numbers(view_features, "view_features")?;
        let (count, views, width) = match *numbers.shape() {
            [views, width] => {
                self.refuse_two_readings(py, views, width)?;
                (1, views, width)
            }
            [count, views, width] => (count, views, width),
            _ => {
                let expected = "[views, width] or [n, views, width]";
                return Err(arrays::shape_error("view_features", expected, numbers.shape()));
            }
        };
        if count * views * width == 0 {
            return Err(arrays::shape_error("view_features", "at least one image, view and column", numbers.shape()));
        }
        let (values, classifier) = (numbers.values()?, &self.classifier);
        let answers = work::run_borrowing(py, progress, |watch| {
            let one = |index: usize| {
                let values = values.floats(index * views * width..(index + 1) * views * width);
                ViewFeatures::new(Matrix::from_vec(views, width, values))
            };
            classifier.answer_many(count, one, watch)
        })?;
        Ok(Answers::all(answers))
    }

    /// A stream that learns from its images, for online methods.
    fn stream(&self, py: Python<'_>) -> PyResult<FeatureStream> {
        let stream = self.classifier.stream().or_raise(py)?;
        Ok(FeatureStream { stream: Arc::new(Mutex::new(stream)), method: self.classifier.method() })
    }
}

impl FeatureEngine {
    /// Methods that use several views read `[N, D]` as one image with N views. For methods that use one view per image or a set
    /// of images it is ambiguous (usually N images are meant), so it is refused.
    fn refuse_two_readings(&self, py: Python<'_>, rows: usize, width: usize) -> PyResult<()> {
        let method = self.classifier.method();
        let needs = own::registry().or_raise(py)?.adapter(method).or_raise(py)?.needs;
        let why = match (self.classifier.kind(), needs.default_views) {
            (Kind::Batch, _) => "answers a set of images at once",
            (_, 1) => "looks at one view of each image",
            _ => return Ok(()),
        };
        if rows < 2 {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "view_features: [{rows}, {width}] has two readings for the method {method}, which {why}. {rows} images of one view \
             each: give view_features[:, None, :], of shape [{rows}, 1, {width}]. One image with {rows} views: give \
             view_features[None], of shape [1, {rows}, {width}]"
        )))
    }
}

/// A stream of features; holds the state of an online method.
#[pyclass(module = "flatclip", frozen)]
pub(crate) struct FeatureStream {
    stream: Arc<Mutex<flatclip::Stream>>,
    method: &'static str,
}

#[pymethods]
impl FeatureStream {
    /// The answer for the next image, from the features `[views, width]` of its views.
    fn answer(&self, py: Python<'_>, view_features: &Bound<'_, PyAny>) -> PyResult<Answer> {
        let array: PyReadonlyArrayDyn<'_, f32> = arrays::floats(view_features, "view_features")?;
        let &[views, width] = array.shape() else {
            return Err(arrays::shape_error("view_features", "[views, width]", array.shape()));
        };
        let values = array.as_slice()?.to_vec();
        let stream = Arc::clone(&self.stream);
        let answer = work::run(py, None, move |_| {
            let views = ViewFeatures::new(Matrix::from_vec(views, width, values))?;
            lock(&stream).answer(&views)
        })?;
        Ok(Answer { answer })
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.FeatureStream of {}>", self.method)
    }
}
