//! Answers: which class, how sure, and which views decided.

use crate::{arrays, values};
use flatclip::Matrix;
use numpy::{PyArray1, PyArray2};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The answer for one picture.
#[pyclass(name = "Answer", module = "flatclip", frozen)]
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) answer: flatclip::Answer,
}

#[pymethods]
impl Answer {
    /// Name of the answered class.
    #[getter]
    fn label(&self) -> &str {
        self.answer.label()
    }

    /// Its index in the class list.
    #[getter]
    fn index(&self) -> usize {
        self.answer.index()
    }

    /// Its probability.
    #[getter]
    fn confidence(&self) -> f32 {
        self.answer.confidence()
    }

    /// One probability per class, in the order of the class list.
    #[getter]
    fn probabilities<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        arrays::vector(py, self.answer.probabilities().to_vec())
    }

    /// The views that decided, best first, by their numbers.
    #[getter]
    fn selected(&self) -> Vec<usize> {
        self.answer.explanation().selected.clone()
    }

    /// What the method ranked the views by, lower is better; None for methods that rank none.
    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        filled(py, &self.answer.explanation().scores)
    }

    /// Entropy of each view's own probabilities in nats.
    #[getter]
    fn entropies<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        filled(py, &self.answer.explanation().entropies)
    }

    /// Views that were encoded for this answer; None when features were given.
    #[getter]
    fn views(&self) -> Option<usize> {
        self.answer.views()
    }

    /// The most probable classes as (name, probability).
    #[pyo3(signature = (count=5))]
    fn top(&self, count: usize) -> Vec<(String, f32)> {
        self.answer.ranked(count).into_iter().map(|(_, name, p)| (name.to_owned(), p)).collect()
    }

    /// The kept views, best first: index, score, entropy, label.
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let row = |view: flatclip::ViewScore<'_>| {
            let row = PyDict::new(py);
            row.set_item("index", view.index)?;
            row.set_item("score", view.score)?;
            row.set_item("entropy", view.entropy)?;
            row.set_item("label", view.label)?;
            Ok(row)
        };
        self.answer.kept().into_iter().map(row).collect()
    }

    /// What `flatclip predict --json` writes for a picture, without its name.
    #[pyo3(signature = (top=5))]
    fn to_dict<'py>(&self, py: Python<'py>, top: usize) -> PyResult<Bound<'py, PyAny>> {
        values::from_json(py, &self.answer.to_json(top))
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.Answer {} {:.4}>", self.answer.label(), self.answer.confidence())
    }
}

fn filled<'py>(py: Python<'py>, values: &[f32]) -> Option<Bound<'py, PyArray1<f32>>> {
    (!values.is_empty()).then(|| arrays::vector(py, values.to_vec()))
}

/// The answers for some pictures, in their order.
#[pyclass(name = "Answers", module = "flatclip", frozen, sequence)]
pub(crate) struct Answers {
    pub(crate) answers: Vec<flatclip::Answer>,
}

#[pymethods]
impl Answers {
    /// `[n, classes]`.
    #[getter]
    fn probabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let classes = self.answers.first().map_or(0, |answer| answer.probabilities().len());
        let mut values = Vec::with_capacity(self.answers.len() * classes);
        self.answers.iter().for_each(|answer| values.extend_from_slice(answer.probabilities()));
        arrays::rows(py, Matrix::from_vec(self.answers.len(), classes, values))
    }

    /// Indices of the answered classes, `[n]`.
    #[getter]
    fn predictions<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        arrays::vector(py, self.answers.iter().map(|answer| answer.index() as i64).collect())
    }

    /// Names of the answered classes.
    #[getter]
    fn labels(&self) -> Vec<&str> {
        self.answers.iter().map(flatclip::Answer::label).collect()
    }

    /// Probabilities of the answered classes, `[n]`.
    #[getter]
    fn confidences<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        arrays::vector(py, self.answers.iter().map(flatclip::Answer::confidence).collect())
    }

    fn __len__(&self) -> usize {
        self.answers.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Answer> {
        let at = if index < 0 { index + self.answers.len() as isize } else { index };
        let found = usize::try_from(at).ok().and_then(|at| self.answers.get(at));
        let answer =
            found.cloned().ok_or_else(|| PyIndexError::new_err(format!("answer {index} of {}", self.answers.len())))?;
        Ok(Answer { answer })
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.Answers for {} pictures>", self.answers.len())
    }
}
