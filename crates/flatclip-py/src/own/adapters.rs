//! Adapters that wrap Python functions and classes, one for each kind. They acquire the GIL on pool threads; the thread that
//! waits for the work has released it.

use super::Own;
use super::call::{answers, failed, generator, keywords, shared_text, stacked};
use crate::arrays;
use flatclip::digest::Digest;
use flatclip::methods::{Adapter, AnyAdapter, BatchAdapter, Decision, Fork, Kind, OnlineAdapter, Task, ViewSet};
use flatclip::{Error, Matrix, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;

pub(super) fn build(own: &'static Own, options: &toml::Table) -> Result<AnyAdapter> {
    let called = Called { own, callable: own.callable(), options: options.clone(), text: None };
    Ok(match own.kind {
        Kind::Episodic => AnyAdapter::Episodic(Box::new(called)),
        Kind::Online => AnyAdapter::Online(Box::new(Streamed { called, state: None })),
        Kind::Batch => AnyAdapter::Batch(Box::new(called)),
    })
}

#[derive(Clone)]
struct Called {
    own: &'static Own,
    callable: Arc<Py<PyAny>>,
    options: toml::Table,
    text: Option<Arc<Py<PyAny>>>,
}

/// Identifies an image by its first view, so that the key is the same in an evaluation, a classifier or a list of features.
fn key(features: &Matrix) -> String {
    Digest::default().floats(features.row(0)).key()
}

fn place(image: &ViewSet<'_>) -> String {
    if image.id.is_empty() { String::new() } else { format!("image `{}`: ", flatclip::error::quoted(image.id)) }
}

impl Called {
    fn load_text(&mut self, task: &Task) -> Result<()> {
        let text = Python::attach(|py| shared_text(py, task).map_err(|error| failed(py, &self.own.name, "", &error)))?;
        self.text = Some(Arc::new(text));
        Ok(())
    }

    fn text(&self) -> Result<&Py<PyAny>> {
        let text = self.text.as_deref();
        text.ok_or_else(|| Error::config("method", format!("`{}` was asked before it was prepared", self.own.name)))
    }

    /// The options, and the random number generator if the function takes one.
    fn keywords<'py>(
        &self,
        py: Python<'py>,
        rng: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyDict>> {
        let made = keywords(py, &self.options).and_then(|keywords| {
            if self.own.rng {
                keywords.set_item("rng", rng()?)?;
            }
            Ok(keywords)
        });
        made.map_err(|error| failed(py, &self.own.name, "", &error))
    }

    fn together(&self, task: &Task, images: &[ViewSet<'_>], one_generator: bool) -> Result<Vec<Decision>> {
        let name = &self.own.name;
        Python::attach(|py| {
            let keys: Vec<String> = images.iter().map(|image| key(image.features)).collect();
            let keywords = self.keywords(py, || {
                if one_generator {
                    return generator(py, task.seed, name, &keys.iter().map(String::as_str).collect::<Vec<_>>());
                }
                let each = keys.iter().map(|key| generator(py, task.seed, name, &[key]));
                Ok(PyList::new(py, each.collect::<PyResult<Vec<_>>>()?)?.into_any())
            })?;
            let arguments = (stacked(py, self.own, images)?, self.text()?.bind(py), task.logit_scale);
            answers(self.own, self.callable.bind(py), arguments, Some(&keywords), (Some(images.len()), task, ""))
        })
    }
}

impl Adapter for Called {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.load_text(task)
    }

    fn is_vectorised(&self) -> bool {
        self.own.vectorised
    }

    fn adapt_many(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        if self.own.vectorised {
            return self.together(task, images, false);
        }
        images.iter().map(|image| Adapter::adapt(self, task, image)).collect()
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        if self.own.vectorised {
            return one(self.together(task, std::slice::from_ref(image), false)?);
        }
        let (name, place) = (&self.own.name, place(image));
        Python::attach(|py| {
            let keywords = self.keywords(py, || generator(py, task.seed, name, &[&key(image.features)]))?;
            let raised = |error: PyErr| failed(py, name, &place, &error);
            let views = arrays::rows(py, image.features.clone()).map_err(raised)?;
            let arguments = (views, self.text()?.bind(py), task.logit_scale);
            one(answers(self.own, self.callable.bind(py), arguments, Some(&keywords), (None, task, &place))?)
        })
    }
}

impl BatchAdapter for Called {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.load_text(task)
    }

    fn adapt(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        self.together(task, images, true)
    }
}

/// An object that learns from a stream.
struct Streamed {
    called: Called,
    /// The object once it is prepared, or the reason why it could not be copied.
    state: Option<std::result::Result<Py<PyAny>, String>>,
}

impl OnlineAdapter for Streamed {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.called.load_text(task)?;
        let (name, called) = (&self.called.own.name, &self.called);
        let object = Python::attach(|py| {
            let keywords = called.keywords(py, || generator(py, task.seed, name, &[]))?;
            let arguments = (called.text()?.bind(py), task.logit_scale);
            let made = called.callable.bind(py).call(arguments, Some(&keywords));
            made.map(Bound::unbind).map_err(|error| failed(py, name, "", &error))
        })?;
        self.state = Some(Ok(object));
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        let (own, place) = (self.called.own, place(image));
        let wrong = |reason: &str| Error::MethodFailed { method: own.name.clone(), reason: format!("{place}{reason}") };
        let object = match &self.state {
            Some(Ok(object)) => object,
            Some(Err(reason)) => return Err(wrong(reason)),
            None => return Err(wrong("it was asked before it was prepared")),
        };
        Python::attach(|py| {
            let raised = |error: PyErr| failed(py, &own.name, &place, &error);
            let views = arrays::rows(py, image.features.clone()).map_err(raised)?;
            let answer = object.bind(py).getattr("answer").map_err(raised)?;
            one(answers(own, &answer, (views,), None, (None, task, &place))?)
        })
    }
}

impl Fork for Streamed {
    fn fork(&self) -> Box<dyn OnlineAdapter> {
        let copied = |object: &Py<PyAny>| {
            Python::attach(|py| {
                let copied = py.import("copy").and_then(|copy| copy.call_method1("deepcopy", (object.bind(py),)));
                copied.map(Bound::unbind)
            })
            .map_err(|error| format!("its state cannot be copied for a stream of its own: {error}"))
        };
        let state = self.state.as_ref().map(|state| state.as_ref().map_err(Clone::clone).and_then(copied));
        Box::new(Self { called: self.called.clone(), state })
    }
}

fn one(mut decisions: Vec<Decision>) -> Result<Decision> {
    decisions.pop().ok_or_else(|| Error::config("method", "expected one answer, found none"))
}
