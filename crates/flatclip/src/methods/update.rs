//! Updaters: how a loss on logits moves what made the text features.

use super::Task;
use super::optim::{AdamW, Optimiser, require_finite};
use super::probability::{Loss, logits, normalise_rows, scaled};
use super::task::TextSide;
use crate::Result;
use crate::model::{Context, ContextPass};
use flatclip_tensor::Matrix;
use flatclip_tensor::gemm::product_nn;

/// The gradient with respect to text features `[K, D]` of a loss whose gradient on `logits = scale * F Tᵀ` is known.
pub fn text_gradient(features: &Matrix, logit_gradient: &Matrix, scale: f32) -> Matrix {
    image_gradient(features, &logit_gradient.transpose(), scale)
}

/// The same with respect to image features `[V, D]`.
pub fn image_gradient(text: &Matrix, logit_gradient: &Matrix, scale: f32) -> Matrix {
    let (rows, cols) = (logit_gradient.rows(), text.cols());
    let mut out = Matrix::zeros(rows, cols);
    product_nn(logit_gradient.data(), rows, text.data(), cols, text.rows(), out.data_mut());
    scaled(out, scale)
}

/// A loss on the logits of image features, as a loss on text features.
pub fn on_text(features: &Matrix, text: &Matrix, scale: f32, loss: impl Fn(&Matrix) -> Loss) -> Loss {
    let at = loss(&logits(features, text, scale));
    Loss { value: at.value, gradient: text_gradient(features, &at.gradient, scale) }
}

/// A loss on text features `[K, D]` with its gradient with respect to them.
pub type Objective<'o> = &'o dyn Fn(&Matrix) -> Loss;

#[derive(Clone, Debug)]
pub struct Step {
    pub loss: f32,
    pub text_features: Matrix,
    /// The gradient that the optimiser was given.
    pub gradient: Context,
    pub context: Context,
}

#[derive(Clone, Debug)]
pub struct Tuned {
    pub text_features: Matrix,
    pub steps: Vec<Step>,
}

/// Tunes the context that a task starts from by a loss on the logits of some views.
pub(super) fn tune_on(
    task: &Task,
    method: &str,
    views: &Matrix,
    loss: impl Fn(&Matrix) -> Loss,
    steps: usize,
    optimiser: AdamW,
) -> Result<Tuned> {
    tune_start(task, method, &[&|text: &Matrix| on_text(views, text, task.logit_scale, &loss)], steps, optimiser)
}

/// The same by objectives on the text features.
pub(super) fn tune_start(
    task: &Task,
    method: &str,
    objectives: &[Objective<'_>],
    steps: usize,
    mut optimiser: AdamW,
) -> Result<Tuned> {
    let (start, first) = (task.start_context(method)?, task.start_pass(method)?);
    tune_context(task.text_side(method)?, start, first, objectives, steps, &mut optimiser)
}

/// Tunes the context of `first` (a pass at one context): `steps` rounds, in each one step on every objective in turn.
pub fn tune_context(
    side: TextSide<'_>,
    start: &Context,
    first: &dyn ContextPass,
    objectives: &[Objective<'_>],
    steps: usize,
    optimiser: &mut dyn Optimiser,
) -> Result<Tuned> {
    let mut context = start.clone();
    let mut done: Vec<Step> = Vec::new();
    for objective in (0..steps).flat_map(|_| objectives) {
        let later;
        let pass = if done.is_empty() {
            first
        } else {
            later = side.pass(&context)?;
            later.as_ref()
        };
        let text_features = pass.features()[0].clone();
        let loss = objective(&text_features);
        let gradient = pass.gradient(&[loss.gradient])?.swap_remove(0);
        require_finite(|| format!("step {}", done.len()), &[&gradient.data])?;
        optimiser.step(&mut [&mut context.data], &[&gradient.data]);
        done.push(Step { loss: loss.value, text_features, gradient, context: context.clone() });
    }
    let text_features = match done.is_empty() {
        true => first.features()[0].clone(),
        false => side.encode(&context)?,
    };
    Ok(Tuned { text_features, steps: done })
}

/// `normalise(base + shift)` and the norms before.
pub fn shifted(base: &Matrix, shift: &Matrix) -> (Matrix, Vec<f32>) {
    let mut moved = base.clone();
    moved.data_mut().iter_mut().zip(shift.data()).for_each(|(m, s)| *m += s);
    let norms = normalise_rows(&mut moved);
    (moved, norms)
}
