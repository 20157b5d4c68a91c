//! MaPLe's text side: prompts that replace the context's rows before deeper blocks.
//!
//! The replaced rows lie in the shared prefix, so deep prompts take the same fast path as a plain context.

use super::context::{ClassTokens, Context, Position};
use super::context_pass::raw_gradient;
use super::plan::Plan;
use super::prefix::Run;
use super::text::TextKernels;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// Bytes of activations that stay for the backward pass. Less than a plain context's pass may keep: who tunes deep prompts has the image
/// tower's weights in memory both ways round, and that tower takes most of the time. Enough for the block inputs of 1000 classes: a
/// chunk without them runs again as a whole, with all of its tapes at once.
const KEPT_BYTES: usize = 104 << 20;

/// Text features for a context with deep prompts, and what is needed for the gradients of both.
#[derive(Debug)]
pub struct DeepRun {
    tower: Arc<TextKernels>,
    plan: Plan,
    context: [Context; 1],
    deep: Vec<Matrix>,
    run: Run,
    features: Vec<Matrix>,
    norms: Vec<f32>,
}

impl DeepRun {
    pub(super) fn new(
        tower: Arc<TextKernels>,
        tokens: &ClassTokens,
        context: &Context,
        deep: &[Matrix],
    ) -> Result<Self> {
        check(&tower, tokens, context, deep)?;
        let context = [context.clone()];
        let plan = tower.plan(tokens, &context)?;
        let run = Run::forward(&tower, &plan, &context, deep, Some(tower.activation_budget().min(KEPT_BYTES)));
        let (features, norms) = run.features(1);
        Ok(Self { tower, plan, context, deep: deep.to_vec(), run, features, norms })
    }

    /// Unit-norm text features `[K, D]`.
    pub fn features(&self) -> &Matrix {
        &self.features[0]
    }

    /// The gradients with respect to the context and to each deep prompt.
    pub fn gradient(&self, d_features: &Matrix) -> Result<(Context, Vec<Matrix>)> {
        let d_raw = raw_gradient(&self.features, &self.norms, std::slice::from_ref(d_features))?;
        let (mut contexts, deep) = self.run.backward(&self.tower, &self.plan, &self.context, &self.deep, &d_raw);
        Ok((contexts.swap_remove(0), deep))
    }
}

/// Unit-norm text features `[K, D]` alone: nothing is kept for a backward pass.
pub(super) fn deep_features(
    tower: &TextKernels,
    tokens: &ClassTokens,
    context: &Context,
    deep: &[Matrix],
) -> Result<Matrix> {
    check(tower, tokens, context, deep)?;
    let context = std::slice::from_ref(context);
    let plan = tower.plan(tokens, context)?;
    Ok(Run::forward(tower, &plan, context, deep, None).features(1).0.swap_remove(0))
}

fn check(tower: &TextKernels, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<()> {
    if !tower.config.form.causal {
        return Err(Error::config("model", "deep prompts need a causal text tower, expected that of a CLIP"));
    }
    if tokens.position != Position::End || context.classes.is_some() {
        let reason = "deep prompts need a shared context and the class name at the end";
        return Err(Error::config("context", reason));
    }
    if deep.len() >= tower.blocks.len() {
        let reason = format!("{} deep prompts, but only {} blocks", deep.len(), tower.blocks.len());
        return Err(Error::config("deep prompts", reason));
    }
    let expected = (tokens.n_ctx, tower.width());
    if let Some(wrong) = deep.iter().find(|deep| (deep.rows(), deep.cols()) != expected) {
        let reason = format!("shape {:?}, expected {expected:?}", (wrong.rows(), wrong.cols()));
        return Err(Error::config("deep prompts", reason));
    }
    Ok(())
}
