//! Weight averaging of what is trained: EMA, SWA, and the state of SWAD (`swad.rs`).

use crate::tuners::{Average, Recipe, SwadRule};
use flatclip::prompt::Tensor;
use flatclip::{Error, Result};

/// A running mean of parameter vectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    pub count: u64,
    /// Their mean; f64, so that the order of a long sum does not show.
    pub values: Vec<f64>,
}

impl Mean {
    /// One more vector. With a count of 0 it replaces whatever is there.
    pub(super) fn add(&mut self, values: impl ExactSizeIterator<Item = f64>) {
        self.values.resize(values.len(), 0.0);
        self.count += 1;
        for (mean, value) in self.values.iter_mut().zip(values) {
            *mean += (value - *mean) / self.count as f64;
        }
    }

    /// All vectors of another mean.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.values.resize(other.values.len(), 0.0);
        self.count += other.count;
        for (mean, value) in self.values.iter_mut().zip(&other.values) {
            *mean += (value - *mean) * other.count as f64 / self.count as f64;
        }
    }
}

/// One evaluation interval of SWAD.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    /// Held-out loss at its end.
    pub loss: f64,
    /// Mean of its steps.
    pub mean: Mean,
}

/// The state of an average; all of it goes into a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Averager {
    /// EMA or SWA, or the SWAD steps since the last evaluation.
    pub mean: Mean,
    /// SWAD: the last evaluations before convergence, or those after it that are not decided yet.
    pub segments: Vec<Segment>,
    /// SWAD before convergence: the steps older than `segments`.
    pub earlier: Mean,
    /// SWAD: the average of the valley so far.
    pub valley: Mean,
    /// SWAD: the loss above which the valley ends, once it has begun.
    pub threshold: Option<f64>,
    /// SWAD: the valley has ended.
    pub done: bool,
    /// SWAD: evaluations so far.
    pub evaluations: u64,
    /// SWAD: the evaluation, counted from 0, at which the valley begins.
    pub converged_at: u64,
}

impl Averager {
    pub(crate) fn step(&mut self, recipe: &Recipe, progress: f64, parameters: &[Tensor]) {
        let values = || flatten(parameters);
        match recipe.average {
            Average::None => {}
            Average::Swa if progress < recipe.swa_start => {}
            Average::Swa | Average::Swad => self.mean.add(values().into_iter().map(f64::from)),
            Average::Ema => {
                let values = values();
                if self.mean.count == 0 {
                    self.mean.add(values.into_iter().map(f64::from));
                    return;
                }
                self.mean.count += 1;
                for (mean, value) in self.mean.values.iter_mut().zip(values) {
                    *mean = recipe.ema_decay * *mean + (1.0 - recipe.ema_decay) * f64::from(value);
                }
            }
        }
    }

    /// SWAD, after each evaluation on held-out data.
    pub(crate) fn evaluated(&mut self, recipe: &Recipe, loss: f64) {
        if recipe.average != Average::Swad || self.done || self.mean.count == 0 {
            return;
        }
        self.segments.push(Segment { loss, mean: std::mem::take(&mut self.mean) });
        self.evaluations += 1;
        match recipe.swad_rule {
            SwadRule::Paper => self.evaluated_as_in_the_paper(recipe),
            SwadRule::Compat => self.evaluated_as_in_the_code(recipe),
        }
    }

    /// The averaged parameters; `None` where the last step is the result.
    pub(crate) fn result(&self, recipe: &Recipe) -> Option<Vec<f64>> {
        let mean = match (recipe.average, recipe.swad_rule) {
            (Average::None, _) => return None,
            (Average::Ema | Average::Swa, _) => self.mean.clone(),
            (Average::Swad, SwadRule::Paper) => self.valley_of_the_paper(),
            (Average::Swad, SwadRule::Compat) => self.valley_of_the_code(recipe),
        };
        (!mean.values.is_empty()).then_some(mean.values)
    }
}

/// All parameters, one after the other.
pub(crate) fn flatten(parameters: &[Tensor]) -> Vec<f32> {
    parameters.iter().flat_map(|p| p.values.iter().copied()).collect()
}

/// Puts averaged values back.
pub(crate) fn restore(parameters: &mut [Tensor], values: &[f64]) -> Result<()> {
    let size: usize = parameters.iter().map(|p| p.values.len()).sum();
    if size != values.len() {
        return Err(Error::config("average", format!("expected {size} values, found {}", values.len())));
    }
    let mut values = values.iter();
    for value in parameters.iter_mut().flat_map(|p| p.values.iter_mut()) {
        *value = *values.next().unwrap_or(&0.0) as f32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(value: f32) -> Vec<Tensor> {
        vec![Tensor { name: "context".into(), shape: vec![2], values: vec![value, -value] }]
    }

    #[test]
    fn swa_is_the_mean_of_its_epochs_and_ema_forgets() {
        let swa = Recipe { average: Average::Swa, swa_start: 0.5, ..Default::default() };
        let ema = Recipe { average: Average::Ema, ema_decay: 0.5, ..Default::default() };
        let (mut a, mut b) = (Averager::default(), Averager::default());
        for (step, value) in [9.0, 2.0, 4.0].into_iter().enumerate() {
            a.step(&swa, step as f64 / 2.0, &tensor(value));
            b.step(&ema, 0.0, &tensor(value));
        }
        assert_eq!(a.result(&swa).unwrap(), [3.0, -3.0]);
        assert_eq!(b.result(&ema).unwrap(), [4.75, -4.75]);
    }
}
