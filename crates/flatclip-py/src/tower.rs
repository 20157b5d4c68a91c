//! The text tower over a class list: text features of contexts, and gradients back to them.

use crate::errors::OrRaise as _;
use crate::model::{Model, strings};
use crate::{arrays, lock, work};
use flatclip::Matrix;
use flatclip::model::{ClassTokens, Context, ContextPass, Position};
use flatclip::options::OptionValue as _;
use flatclip::prompt::class_tokens;
use flatclip_lab::tuners::RemoteText;
use numpy::{PyArray2, PyArray3, PyArrayDyn, PyArrayMethods as _, PyUntypedArrayMethods as _};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// A model's text tower with the tokens of some classes around a context: one process's part in class-parallel tuning.
#[pyclass(module = "flatclip", frozen)]
pub(crate) struct TextTower {
    model: flatclip::Model,
    tokens: Arc<ClassTokens>,
    /// The last forward pass, until its gradient is asked for.
    pass: Arc<Mutex<Option<Box<dyn ContextPass>>>>,
}

#[pymethods]
impl TextTower {
    /// The classes, the number of context tokens, and the position of the class name.
    #[new]
    #[pyo3(signature = (model, classes, *, tokens, position="end"))]
    fn new(
        py: Python<'_>,
        model: &Bound<'_, Model>,
        classes: &Bound<'_, PyAny>,
        tokens: usize,
        position: &str,
    ) -> PyResult<Self> {
        let model = model.get().model.clone();
        model.clip().text().or_raise(py)?;
        let classes = strings(classes, "classes")?;
        let place = Position::from_value(&position.into()).ok_or_else(|| {
            PyValueError::new_err(format!("position: expected end, middle or front, found {position:?}"))
        })?;
        let tokens = class_tokens(model.tokenizer(), &classes, tokens, place, "");
        Ok(Self { model, tokens: Arc::new(tokens), pass: Arc::default() })
    }

    /// Unit-norm text features `[n, classes, D]` of contexts `[n, tokens, width]`.
    fn encode<'py>(&self, py: Python<'py>, contexts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray3<f32>>> {
        let contexts = contexts_of(contexts)?;
        let (model, tokens, count) = (self.model.clone(), Arc::clone(&self.tokens), contexts.len());
        let found = work::run(py, None, move |_| model.clip().text()?.encode(&tokens, &contexts))?;
        let (classes, width) = found.first().map_or((0, 0), |features| (features.rows(), features.cols()));
        let data = found.into_iter().flat_map(Matrix::into_vec).collect();
        arrays::cube(py, [count, classes, width], data)
    }

    /// Unit-norm text features `[classes, D]` of a context; the pass is stored for one call of `gradient`.
    fn forward<'py>(&self, py: Python<'py>, context: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let contexts = contexts_of(context)?;
        if contexts.len() != 1 {
            return Err(PyValueError::new_err(format!("context: expected one, found {}", contexts.len())));
        }
        let (model, tokens, kept) = (self.model.clone(), Arc::clone(&self.tokens), Arc::clone(&self.pass));
        let features = work::run(py, None, move |_| {
            let pass = model.clip().text()?.pass(&tokens, &contexts)?;
            let features = pass.features()[0].clone();
            *lock(&kept) = Some(pass);
            Ok(features)
        })?;
        arrays::rows(py, features)
    }

    /// The gradient with respect to the context of the last `forward`, from the one with respect to its features.
    fn gradient<'py>(&self, py: Python<'py>, d_features: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let d_features = arrays::matrix(d_features, "d_features")?;
        let kept = lock(&self.pass).take();
        let pass = kept.ok_or_else(|| PyRuntimeError::new_err("gradient: call forward first"))?;
        let context = work::run(py, None, move |_| {
            let gradient = pass.gradient(&[d_features])?.pop();
            gradient.ok_or_else(|| flatclip::Error::config("gradient", "the tower gave none"))
        })?;
        arrays::rows(py, Matrix::from_vec(context.tokens, context.width, context.data))
    }
}

/// `[tokens, width]` or `[n, tokens, width]`.
fn contexts_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<Context>> {
    let array = arrays::floats(value, "contexts")?;
    let (tokens, width) = match *array.shape() {
        [tokens, width] | [_, tokens, width] if tokens * width > 0 => (tokens, width),
        _ => return Err(arrays::shape_error("contexts", "[n, tokens, width]", array.shape())),
    };
    let one = |values: &[f32]| Context::shared(tokens, width, values.to_vec());
    Ok(array.as_slice()?.chunks(tokens * width).map(one).collect())
}

/// A text tower implemented in Python: two callables.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) forward: Py<PyAny>,
    pub(crate) gradient: Py<PyAny>,
}

/// Runs on a worker, which acquires the GIL for each call; the thread that waits for the work has released it.
impl RemoteText for Elsewhere {
    fn features(&self, context: &Context) -> flatclip::Result<Matrix> {
        called(&self.forward, &context.shape(), &context.data)
    }

    fn gradient(&self, context: &Context, d_features: &Matrix) -> flatclip::Result<Context> {
        let found = called(&self.gradient, &[d_features.rows(), d_features.cols()], d_features.data())?;
        if found.data().len() != context.data.len() {
            let reason = format!("expected the shape {:?}, found {} values", context.shape(), found.data().len());
            return Err(flatclip::Error::config("gradient of the context", reason));
        }
        Ok(Context { data: found.into_vec(), ..context.clone() })
    }
}

fn called(call: &Py<PyAny>, shape: &[usize], values: &[f32]) -> flatclip::Result<Matrix> {
    let result: PyResult<Matrix> = Python::attach(|py| {
        let array: Bound<'_, PyArrayDyn<f32>> = arrays::vector(py, values.to_vec()).reshape(shape.to_vec())?;
        arrays::matrix(&call.bind(py).call1((array,))?, "text features")
    });
    result.map_err(|error| flatclip::Error::method("class-parallel tuning", error.to_string()))
}
