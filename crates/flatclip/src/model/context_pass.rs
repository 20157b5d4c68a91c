//! A forward pass through the text tower that can be differentiated with respect to the contexts.

use super::context::Context;
use super::plan::Plan;
use super::prefix::Run;
use super::text::TextKernels;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::normalise_backward;
use std::sync::Arc;

/// Text features for some contexts, and what is needed for the gradient of anything computed from them.
#[derive(Debug)]
pub struct ContextRun {
    tower: Arc<TextKernels>,
    plan: Plan,
    contexts: Vec<Context>,
    run: Run,
    features: Vec<Matrix>,
    norms: Vec<f32>,
}

impl ContextRun {
    pub(super) fn new(tower: Arc<TextKernels>, plan: Plan, contexts: &[Context]) -> Self {
        let run = Run::forward(&tower, &plan, contexts, &[], Some(tower.activation_budget()));
        let (features, norms) = run.features(contexts.len());
        Self { tower, plan, contexts: contexts.to_vec(), run, features, norms }
    }

    /// Unit-norm text features `[K, D]` of each context.
    pub fn features(&self) -> &[Matrix] {
        &self.features
    }

    /// The gradient with respect to each context, from those with respect to the unit-norm features.
    pub fn gradient(&self, d_features: &[Matrix]) -> Result<Vec<Context>> {
        let d_raw = raw_gradient(&self.features, &self.norms, d_features)?;
        Ok(self.run.backward(&self.tower, &self.plan, &self.contexts, &[], &d_raw).0)
    }
}

/// Through the L2 normalisation.
pub(super) fn raw_gradient(features: &[Matrix], norms: &[f32], d_features: &[Matrix]) -> Result<Vec<f32>> {
    let shape = |m: &Matrix| (m.rows(), m.cols());
    if features.len() != d_features.len() || features.iter().zip(d_features).any(|(f, d)| shape(f) != shape(d)) {
        let shapes = |all: &[Matrix]| format!("{:?}", all.iter().map(shape).collect::<Vec<_>>());
        let reason = format!("shapes {}, expected {}", shapes(d_features), shapes(features));
        return Err(Error::config("feature gradient", reason));
    }
    let mut d_raw = Vec::with_capacity(features.iter().map(|f| f.data().len()).sum());
    let mut first = 0;
    for (unit, d) in features.iter().zip(d_features) {
        let mut part = vec![0.0; d.data().len()];
        normalise_backward(unit.data(), &norms[first..first + unit.rows()], d.data(), &mut part);
        d_raw.extend(part);
        first += unit.rows();
    }
    Ok(d_raw)
}
