//! SAR's steps on any parameters: filter, gradient, ascent, second filter, second gradient, optimiser.

use super::{Base, Filter, Objective, Sar};
use crate::methods::adapters::prelude::*;
use crate::methods::optim::{AdamW, Optimiser, Sgd, require_finite};
use crate::methods::probability::{Loss, entropies, marginal_entropy, mean_entropy};
use crate::methods::sam::{Ascent, Shaped};
use crate::model::{BatchNorms, Context, NormAffine};

/// Parameters that SAR can move: a list of tensors.
pub trait Parameters: Clone {
    fn tensors(&self) -> Vec<&[f32]>;
    fn tensors_mut(&mut self) -> Vec<&mut [f32]>;
}

impl Parameters for Context {
    fn tensors(&self) -> Vec<&[f32]> {
        vec![&self.data]
    }
    fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.data]
    }
}

impl Parameters for NormAffine {
    fn tensors(&self) -> Vec<&[f32]> {
        Self::tensors(self)
    }
    fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        Self::tensors_mut(self)
    }
}

impl Parameters for BatchNorms {
    fn tensors(&self) -> Vec<&[f32]> {
        Self::tensors(self)
    }
    fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        Self::tensors_mut(self)
    }
}

/// From a gradient on logits to one on parameters.
pub type Backward<'f, P> = Box<dyn Fn(&Matrix) -> Result<P> + 'f>;

/// The logits of all views at some parameters, and the backward pass.
pub struct Forward<'f, P> {
    /// `[V, K]`.
    pub logits: Matrix,
    /// From a gradient on the logits to one on the parameters.
    pub gradient: Backward<'f, P>,
}

#[derive(Clone, Debug)]
pub struct Outcome<P> {
    /// The gradient at the start of the first step.
    pub first_gradient: Option<P>,
    /// The gradient at the perturbed place of the first step.
    pub second_gradient: Option<P>,
    /// Logits before the last step: what the original returns.
    pub logits_before: Matrix,
    /// The views that were reliable in the last step.
    pub reliable: Vec<usize>,
    /// After the last step, before a recovery.
    pub updated: P,
    pub parameters: P,
    /// Whether a recovery undid a step.
    pub recovered: bool,
}

impl Sar {
    fn reliable(&self, logits: &Matrix) -> Vec<usize> {
        let views = ViewLogits::from_logits(logits.clone());
        let limit = self.margin * (logits.cols() as f64).ln();
        let sure = |v: &usize| f64::from(views.entropies[*v]) < limit;
        let lowest = || LowestScore::of_scores(self.fraction, self.score.of_views(&views)).selected;
        let mut kept: Vec<usize> = match self.filter {
            Filter::Margin => (0..logits.rows()).filter(sure).collect(),
            Filter::Top => lowest(),
            Filter::Both => lowest().into_iter().filter(sure).collect(),
        };
        kept.sort_unstable();
        kept
    }

    /// Of reliable views those that still are.
    fn still_reliable(&self, first: &[usize], entropies: &[f32], classes: usize) -> Vec<usize> {
        let limit = self.margin * (classes as f64).ln();
        let keep = |v: &usize| self.filter == Filter::Top || f64::from(entropies[*v]) < limit;
        first.iter().copied().filter(keep).collect()
    }

    fn base(&self) -> Box<dyn Optimiser> {
        match self.optimiser {
            Base::Adamw => Box::new(AdamW::with_decay(self.lr, self.weight_decay)),
            Base::Sgd => Box::new(Sgd::new(self.lr, self.momentum, self.weight_decay)),
        }
    }

    /// The loss on the listed views, its gradient on the logits of all.
    fn loss_on(&self, all: &Matrix, views: &[usize]) -> Loss {
        let part = match self.loss {
            Objective::Mean => mean_entropy(&all.select_rows(views)),
            Objective::Marginal => marginal_entropy(&all.select_rows(views)),
        };
        let mut gradient = Matrix::zeros(all.rows(), all.cols());
        for (row, &view) in views.iter().enumerate() {
            gradient.row_mut(view).copy_from_slice(part.gradient.row(row));
        }
        Loss { value: part.value, gradient }
    }

    /// Runs SAR from `start`. A step without reliable views changes nothing.
    pub fn run<'f, P: Parameters>(
        &self,
        start: &P,
        forward: impl Fn(&P) -> Result<Forward<'f, P>>,
    ) -> Result<Outcome<P>> {
        let (mut w, mut optimiser) = (start.clone(), self.base());
        let mut moving_mean: Option<f64> = None;
        let mut out = Outcome {
            first_gradient: None,
            second_gradient: None,
            logits_before: Matrix::default(),
            reliable: Vec::new(),
            updated: start.clone(),
            parameters: start.clone(),
            recovered: false,
        };
        for _ in 0..self.steps {
            let here = forward(&w)?;
            out.logits_before = here.logits.clone();
            let classes = here.logits.cols();
            out.reliable = self.reliable(&here.logits);
            if !out.reliable.is_empty() {
                let g1 = (here.gradient)(&self.loss_on(&here.logits, &out.reliable).gradient)?;
                drop(here);
                let there = forward(&ascended(&w, &g1, self.radius))?;
                out.first_gradient.get_or_insert(g1);
                let second = self.still_reliable(&out.reliable, &entropies(&there.logits), classes);
                if !second.is_empty() {
                    let loss = self.loss_on(&there.logits, &second);
                    let g2 = (there.gradient)(&loss.gradient)?;
                    require_finite(|| "sar's second gradient".into(), &g2.tensors())?;
                    optimiser.step(&mut w.tensors_mut(), &g2.tensors());
                    out.second_gradient.get_or_insert(g2);
                    let value = f64::from(loss.value);
                    moving_mean = Some(moving_mean.map_or(value, |mean| 0.9 * mean + 0.1 * value));
                }
            }
            out.updated = w.clone();
            if moving_mean.is_some_and(|mean| mean < self.recovery) {
                // As in the original, the optimiser's momentum is kept.
                w = start.clone();
                out.recovered = true;
            }
        }
        out.parameters = w;
        Ok(out)
    }
}

/// `w + eps`, SAM's step with one norm over all tensors.
fn ascended<P: Parameters>(w: &P, gradient: &P, radius: f64) -> P {
    let shapes: Vec<[usize; 1]> = w.tensors().iter().map(|t| [t.len()]).collect();
    let parameters: Vec<Shaped<'_>> = shapes.iter().map(|shape| shape.as_slice()).zip(w.tensors()).collect();
    let epsilon = Ascent::sam(radius).epsilon_of(&parameters, &gradient.tensors());
    let mut moved = w.clone();
    for (w, epsilon) in moved.tensors_mut().into_iter().zip(&epsilon) {
        w.iter_mut().zip(epsilon).for_each(|(w, e)| *w += e);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits that are the parameters themselves.
    fn forward(w: &Context) -> Result<Forward<'static, Context>> {
        let shape = w.clone();
        Ok(Forward {
            logits: Matrix::from_vec(w.tokens, w.width, w.data.clone()),
            gradient: Box::new(move |g: &Matrix| Ok(Context { data: g.data().to_vec(), ..shape.clone() })),
        })
    }

    fn start() -> Context {
        // The first view is sure, the second is not.
        Context::shared(2, 3, vec![3.0, 0.0, 0.0, 0.1, 0.0, 0.0])
    }

    #[test]
    fn only_reliable_views_move_and_radius_0_is_plain_entropy_descent() {
        let config = Sar { radius: 0.0, optimiser: Base::Sgd, lr: 1.0, weight_decay: 0.0, ..Sar::default() };
        let outcome = config.run(&start(), forward).unwrap();
        assert_eq!(outcome.reliable, [0]);
        assert_eq!(outcome.parameters.data[3..], start().data[3..]);
        assert_eq!(outcome.first_gradient.unwrap().data, outcome.second_gradient.unwrap().data);
        assert!(outcome.parameters.data[0] > 3.0);
    }

    #[test]
    fn nothing_reliable_changes_nothing_and_recovery_undoes() {
        let none = Sar { margin: 0.01, ..Sar::default() }.run(&start(), forward).unwrap();
        assert_eq!(none.parameters.data, start().data);
        let undone = Sar { recovery: 10.0, ..Sar::default() }.run(&start(), forward).unwrap();
        assert!(undone.recovered && undone.parameters.data == start().data && undone.updated.data != start().data);
    }
}
