//! Answers: predicted class, probabilities and selected views.

use crate::{arrays, values};
use flatclip::methods::{Decision, Explanation};
use flatclip::{AnswerOrigin, Matrix};
use numpy::{PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};
use std::sync::Arc;

/// The answer for one image.
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

    /// The class list, in the order of the probabilities.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.answer.classes().to_vec()
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

    /// The selected views, best first, by their numbers.
    #[getter]
    fn selected(&self) -> Vec<usize> {
        self.answer.explanation().selected.clone()
    }

    /// The scores by which the method ranked the views, lower is better; None for methods that do not rank views.
    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        filled(py, &self.answer.explanation().scores)
    }

    /// Views whose score is only a lower bound, which is enough to know that they are not selected.
    #[getter]
    fn bounds(&self) -> Vec<usize> {
        self.answer.explanation().bounds.clone()
    }

    /// Entropy of each view's own probabilities in nats.
    #[getter]
    fn entropies<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        filled(py, &self.answer.explanation().entropies)
    }

    /// Sigmoid score of each class on its own, for models with a logit bias (SigLIP); they do not sum to 1. None for others.
    #[getter]
    fn sigmoid<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        filled(py, &self.answer.explanation().sigmoid)
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

    /// The selected views, best first: index, score, entropy, label.
    fn selected_views<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let row = |view: flatclip::ViewScore<'_>| {
            let row = PyDict::new(py);
            row.set_item("index", view.index)?;
            row.set_item("score", view.score)?;
            row.set_item("entropy", view.entropy)?;
            row.set_item("label", view.label)?;
            Ok(row)
        };
        self.answer.selected().into_iter().map(row).collect()
    }

    /// The record that `flatclip predict --json` writes for an image, without the image name.
    #[pyo3(signature = (top=5))]
    fn to_dict<'py>(&self, py: Python<'py>, top: usize) -> PyResult<Bound<'py, PyAny>> {
        values::from_json(py, &serde_json::json!(self.answer.report(top)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Origin, State<'py>))> {
        let answer = &slf.get().answer;
        let state = (Origin::of(answer), State::of(slf.py(), answer));
        Ok((slf.get_type().getattr("_from_state")?, state))
    }

    #[staticmethod]
    fn _from_state(origin: Origin, state: State<'_>) -> PyResult<Self> {
        Ok(Self { answer: state.answer(&origin.restored())? })
    }

    fn __repr__(&self) -> String {
        format!("<flatclip.Answer {}>", named(&self.answer))
    }
}

fn named(answer: &flatclip::Answer) -> String {
    format!("{} {:.4}", answer.label(), answer.confidence())
}

/// Pickle state that all answers of one classifier share.
#[derive(Default, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
struct Origin {
    classes: Vec<String>,
    method: String,
    precision: Option<String>,
    read: Option<String>,
}

impl Origin {
    fn of(answer: &flatclip::Answer) -> Self {
        Self {
            classes: answer.classes().to_vec(),
            method: answer.method().to_owned(),
            precision: answer.precision().map(str::to_owned),
            read: answer.read().map(str::to_owned),
        }
    }

    fn restored(self) -> Arc<AnswerOrigin> {
        Arc::new(AnswerOrigin {
            classes: self.classes.into(),
            method: self.method.into(),
            precision: self.precision.map(Into::into),
            read: self.read.map(Into::into),
        })
    }
}

/// Pickle state of a single answer.
#[derive(FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
struct State<'py> {
    index: usize,
    probabilities: Bound<'py, PyArray1<f32>>,
    class_scores: Bound<'py, PyArray1<f32>>,
    selected: Vec<usize>,
    scores: Bound<'py, PyArray1<f32>>,
    bounds: Vec<usize>,
    entropies: Bound<'py, PyArray1<f32>>,
    predictions: Vec<usize>,
    sigmoid: Bound<'py, PyArray1<f32>>,
    views: Option<usize>,
}

impl<'py> State<'py> {
    fn of(py: Python<'py>, answer: &flatclip::Answer) -> Self {
        let (decision, why) = (answer.decision(), answer.explanation());
        Self {
            index: decision.prediction,
            probabilities: arrays::vector(py, decision.probabilities.clone()),
            class_scores: arrays::vector(py, decision.class_scores.clone()),
            selected: why.selected.clone(),
            scores: arrays::vector(py, why.scores.clone()),
            bounds: why.bounds.clone(),
            entropies: arrays::vector(py, why.entropies.clone()),
            predictions: why.predictions.clone(),
            sigmoid: arrays::vector(py, why.sigmoid.clone()),
            views: answer.views(),
        }
    }

    fn answer(&self, origin: &Arc<AnswerOrigin>) -> PyResult<flatclip::Answer> {
        let floats = |array: &Bound<'py, PyArray1<f32>>| -> PyResult<Vec<f32>> {
            Ok(array.extract::<PyReadonlyArray1<'py, f32>>()?.as_slice()?.to_vec())
        };
        let decision = Decision {
            prediction: self.index,
            probabilities: floats(&self.probabilities)?,
            class_scores: floats(&self.class_scores)?,
            explanation: Explanation {
                selected: self.selected.clone(),
                scores: floats(&self.scores)?,
                bounds: self.bounds.clone(),
                entropies: floats(&self.entropies)?,
                predictions: self.predictions.clone(),
                sigmoid: floats(&self.sigmoid)?,
            },
        };
        Ok(flatclip::Answer::from_parts(origin, decision, self.views))
    }
}

fn filled<'py>(py: Python<'py>, values: &[f32]) -> Option<Bound<'py, PyArray1<f32>>> {
    (!values.is_empty()).then(|| arrays::vector(py, values.to_vec()))
}

/// Answers for several images, in input order.
#[pyclass(name = "Answers", module = "flatclip", frozen, sequence)]
pub(crate) struct Answers {
    answers: Vec<flatclip::Answer>,
    /// Input position of the image of each answer.
    positions: Vec<usize>,
    skipped: Vec<(usize, String)>,
}

impl Answers {
    pub(crate) fn all(answers: Vec<flatclip::Answer>) -> Self {
        Self { positions: (0..answers.len()).collect(), answers, skipped: Vec::new() }
    }

    /// Answers for all images except the skipped ones.
    pub(crate) fn some(answers: Vec<flatclip::Answer>, skipped: Vec<(usize, String)>) -> Self {
        let is_skipped = |position: &usize| skipped.iter().any(|(at, _)| at == position);
        let positions = (0..answers.len() + skipped.len()).filter(|position| !is_skipped(position)).collect();
        Self { answers, positions, skipped }
    }
}

#[derive(FromPyObject)]
enum Place<'py> {
    One(isize),
    Range(Bound<'py, PySlice>),
}

/// Pickle state of `Answers`: the shared state, the answers, their positions, the skipped images.
type Pickled<'py> = (Origin, Vec<State<'py>>, Vec<usize>, Vec<(usize, String)>);

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

    /// Input positions of the answered images; all positions unless some images were skipped.
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        arrays::vector(py, self.positions.iter().map(|&position| position as i64).collect())
    }

    /// Images that could not be read, as (position, reason); empty without errors="skip".
    #[getter]
    fn skipped(&self) -> Vec<(usize, String)> {
        self.skipped.clone()
    }

    /// The answer at a position, or the answers of a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let count = self.answers.len();
        let place = key.extract::<Place<'_>>().map_err(|_| {
            PyTypeError::new_err(format!("answers: expected a position or a slice, found {}", values::type_name(key)))
        })?;
        match place {
            Place::One(index) => {
                let answer = values::at(&self.answers, index, "answer")?.clone();
                Ok(Bound::new(py, Answer { answer })?.into_any())
            }
            Place::Range(slice) => {
                let range = slice.indices(count as isize)?;
                let places = (0..range.slicelength).map(|step| (range.start + step as isize * range.step) as usize);
                let (answers, positions) = places.map(|at| (self.answers[at].clone(), self.positions[at])).unzip();
                Ok(Bound::new(py, Self { answers, positions, skipped: Vec::new() })?.into_any())
            }
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Pickled<'py>)> {
        let (py, own) = (slf.py(), slf.get());
        let origin = own.answers.first().map_or_else(Origin::default, Origin::of);
        let states = own.answers.iter().map(|answer| State::of(py, answer)).collect();
        let state = (origin, states, own.positions.clone(), own.skipped.clone());
        Ok((slf.get_type().getattr("_from_state")?, state))
    }

    #[staticmethod]
    fn _from_state(
        origin: Origin,
        states: Vec<State<'_>>,
        positions: Vec<usize>,
        skipped: Vec<(usize, String)>,
    ) -> PyResult<Self> {
        let origin = origin.restored();
        let answers = states.iter().map(|state| state.answer(&origin)).collect::<PyResult<_>>()?;
        Ok(Self { answers, positions, skipped })
    }

    fn __repr__(&self) -> String {
        const SHOWN: usize = 3;
        let mut shown: Vec<String> = self.answers.iter().take(SHOWN).map(named).collect();
        if self.answers.len() > SHOWN {
            shown.push("...".to_owned());
        }
        let skipped = if self.skipped.is_empty() { String::new() } else { format!(", {} skipped", self.skipped.len()) };
        format!("<flatclip.Answers for {} images{skipped}: {}>", self.answers.len(), shown.join(", "))
    }
}
