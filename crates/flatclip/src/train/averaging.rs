//! Weight averaging of what is trained: EMA, SWA, and SWAD (Cha et al. 2021).

use crate::methods::tuners::{Average, Recipe};
use crate::prompt::Tensor;
use crate::{Error, Result};

/// A running mean of parameter vectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    /// How many vectors.
    pub count: u64,
    /// Their mean; f64, so that the order of a long sum does not show.
    pub values: Vec<f64>,
}

impl Mean {
    fn add(&mut self, values: &[f32]) {
        self.values.resize(values.len(), 0.0);
        self.count += 1;
        for (mean, value) in self.values.iter_mut().zip(values) {
            *mean += (f64::from(*value) - *mean) / self.count as f64;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.values.resize(other.values.len(), 0.0);
        self.count += other.count;
        for (mean, value) in self.values.iter_mut().zip(&other.values) {
            *mean += (value - *mean) * other.count as f64 / self.count.max(1) as f64;
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
    /// SWAD: the last evaluations before the valley, or those inside it that wait for the verdict.
    pub segments: Vec<Segment>,
    /// SWAD: the average of the valley so far.
    pub valley: Mean,
    /// SWAD: the loss above which the valley ends, once it has begun.
    pub threshold: Option<f64>,
    /// SWAD: the valley has ended.
    pub done: bool,
}

impl Averager {
    /// After each optimiser step.
    pub(crate) fn step(&mut self, recipe: &Recipe, progress: f64, parameters: &[Tensor]) {
        let values = || flatten(parameters);
        match recipe.average {
            Average::None => {}
            Average::Swa if progress < recipe.swa_start => {}
            Average::Swa | Average::Swad => self.mean.add(&values()),
            Average::Ema => {
                let values = values();
                if self.mean.count == 0 {
                    self.mean.add(&values);
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
        match self.threshold {
            None => self.find_start(recipe),
            Some(threshold) => self.find_end(recipe, threshold),
        }
    }

    /// The valley begins at the oldest of the last `converge` segments, when none after it is lower.
    fn find_start(&mut self, recipe: &Recipe) {
        let excess = self.segments.len().saturating_sub(recipe.swad_converge);
        self.segments.drain(..excess);
        let first = self.segments[0].loss;
        if self.segments.len() < recipe.swad_converge || self.segments.iter().any(|s| s.loss < first) {
            return;
        }
        let mean = self.segments.iter().map(|s| s.loss).sum::<f64>() / self.segments.len() as f64;
        self.threshold = Some(mean * (1.0 + recipe.swad_ratio));
        for segment in std::mem::take(&mut self.segments) {
            self.valley.merge(&segment.mean);
        }
    }

    /// The valley ends when the last `tolerance` losses are all above the threshold; those segments are not part of it.
    fn find_end(&mut self, recipe: &Recipe, threshold: f64) {
        if self.segments.last().is_some_and(|s| s.loss <= threshold) {
            for segment in std::mem::take(&mut self.segments) {
                self.valley.merge(&segment.mean);
            }
        }
        self.done = self.segments.len() >= recipe.swad_tolerance;
    }

    /// The averaged parameters; `None` where the last step is the result.
    pub(crate) fn result(&self, recipe: &Recipe) -> Option<Vec<f64>> {
        let mean = match recipe.average {
            Average::None => return None,
            Average::Ema | Average::Swa => self.mean.clone(),
            Average::Swad if self.valley.count > 0 => self.valley.clone(),
            // Never converged: everything seen is the valley.
            Average::Swad => {
                let mut all = Mean::default();
                self.segments.iter().for_each(|s| all.merge(&s.mean));
                all.merge(&self.mean);
                all
            }
        };
        (mean.count > 0).then_some(mean.values)
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

    #[test]
    fn swad_averages_the_valley_only() {
        let swad = Recipe {
            average: Average::Swad,
            swad_converge: 2,
            swad_tolerance: 2,
            swad_ratio: 0.1,
            ..Default::default()
        };
        let mut average = Averager::default();
        // Falls until 1.0, stays flat, then climbs for good: the valley is the steps 3, 4, 5 (one rise is tolerated).
        for (value, loss) in
            [(1.0, 5.0), (2.0, 3.0), (3.0, 1.0), (4.0, 1.0), (5.0, 1.05), (6.0, 9.0), (7.0, 9.0), (8.0, 1.0)]
        {
            average.step(&swad, 0.0, &tensor(value));
            average.evaluated(&swad, loss);
        }
        assert!(average.done);
        assert_eq!(average.result(&swad).unwrap(), [4.0, -4.0]);
    }
}
