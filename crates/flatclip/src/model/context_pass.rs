//! A forward pass through the text tower that can be differentiated with respect to the contexts and to deep prompts.

use super::context::Context;
use super::plan::Plan;
use super::prefix::{Input, Run};
use super::text::TextKernels;
use super::towers::{ContextPass, DeepPass};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::normalise_backward;
use std::slice::from_ref;
use std::sync::Arc;

/// Text features for some contexts, and what is needed for the gradient of anything computed from them.
#[derive(Debug)]
pub(super) struct TextRun {
    tower: Arc<TextKernels>,
    plan: Plan,
    contexts: Vec<Context>,
    deep: Vec<Matrix>,
    run: Run,
    features: Vec<Matrix>,
    norms: Vec<f32>,
}

impl TextRun {
    /// `kept` is how many bytes of activations may stay for the gradient.
    pub(super) fn new(
        tower: &Arc<TextKernels>,
        plan: Plan,
        contexts: &[Context],
        deep: &[Matrix],
        kept: usize,
    ) -> Self {
        let run = Input { tower, plan: &plan, contexts, deep }.forward(Some(kept));
        let (features, norms) = run.features(contexts.len());
        Self { tower: Arc::clone(tower), plan, contexts: contexts.to_vec(), deep: deep.to_vec(), run, features, norms }
    }

    /// The gradients with respect to each context and each deep prompt.
    fn backward(&self, d_features: &[Matrix]) -> Result<(Vec<Context>, Vec<Matrix>)> {
        let d_raw = self.raw_gradient(d_features)?;
        let Self { tower, plan, contexts, deep, .. } = self;
        Ok(Input { tower, plan, contexts, deep }.backward(&self.run, &d_raw))
    }

    /// Through the L2 normalisation.
    fn raw_gradient(&self, d_features: &[Matrix]) -> Result<Vec<f32>> {
        let shapes = |all: &[Matrix]| all.iter().map(|m| (m.rows(), m.cols())).collect::<Vec<_>>();
        let (found, expected) = (shapes(d_features), shapes(&self.features));
        if found != expected {
            return Err(Error::config("feature gradient", format!("shapes {found:?}, expected {expected:?}")));
        }
        let mut d_raw = Vec::with_capacity(self.features.iter().map(|f| f.data().len()).sum());
        let mut first = 0;
        for (unit, d) in self.features.iter().zip(d_features) {
            let mut part = vec![0.0; d.data().len()];
            normalise_backward(unit.data(), &self.norms[first..first + unit.rows()], d.data(), &mut part);
            d_raw.extend(part);
            first += unit.rows();
        }
        Ok(d_raw)
    }
}

impl ContextPass for TextRun {
    fn features(&self) -> &[Matrix] {
        &self.features
    }

    fn gradient(&self, d_features: &[Matrix]) -> Result<Vec<Context>> {
        Ok(self.backward(d_features)?.0)
    }
}

/// Of one context.
impl DeepPass for TextRun {
    fn features(&self) -> &Matrix {
        &self.features[0]
    }

    fn gradient(&self, d_features: &Matrix) -> Result<(Context, Vec<Matrix>)> {
        let (mut contexts, deep) = self.backward(from_ref(d_features))?;
        Ok((contexts.swap_remove(0), deep))
    }
}
