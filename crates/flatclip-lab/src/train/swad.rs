//! SWAD (Cha et al., SWAD: Domain Generalization by Seeking Flat Minima, NeurIPS 2021): the mean of every step inside
//! the valley of the held-out loss. An evaluation closes a segment of steps; here every epoch is one.
//!
//! | rule | the valley | without convergence |
//! |---|---|---|
//! | `paper` | Algorithm 1: from the first of `converge` losses that none of the others undercuts, to the step before `tolerance` losses in a row above the threshold, or to the end | all steps (t_s = 0, t_e = T) |
//! | `compat` | `LossValley` of the published code, line by line: earlier segments below the threshold count, too, each segment has the same weight, and the first ones may count more than once | the last segment |

use super::averaging::{Averager, Mean, Segment};
use crate::tuners::{Average, Recipe, SwadRule};

impl Averager {
    /// Algorithm 1, after an evaluation.
    pub(super) fn evaluated_as_in_the_paper(&mut self, recipe: &Recipe) {
        let threshold = match self.threshold {
            Some(threshold) => threshold,
            None => {
                let excess = self.segments.len().saturating_sub(recipe.swad_converge);
                self.segments.drain(..excess).for_each(|segment| self.earlier.merge(&segment.mean));
                let Some(threshold) = converged(&self.segments, recipe) else { return };
                self.earlier = Mean::default();
                self.threshold = Some(threshold);
                self.converged_at = self.evaluations - recipe.swad_converge as u64;
                self.take_up_to_the_last_within(threshold);
                return;
            }
        };
        self.take_up_to_the_last_within(threshold);
        if let Some(inside) = self.segments.len().checked_sub(recipe.swad_tolerance) {
            self.segments.drain(..inside).for_each(|segment| self.valley.merge(&segment.mean));
            self.segments.clear();
            self.done = true;
        }
    }

    /// What is followed by a loss within the threshold, or has one itself, is part of the valley.
    fn take_up_to_the_last_within(&mut self, threshold: f64) {
        let inside = self.segments.iter().rposition(|s| s.loss <= threshold).map_or(0, |last| last + 1);
        self.segments.drain(..inside).for_each(|segment| self.valley.merge(&segment.mean));
    }

    /// The valley, or all steps where it has not begun. One that has not ended reaches to the last step.
    pub(super) fn valley_of_the_paper(&self) -> Mean {
        let mut all = self.earlier.clone();
        all.merge(&self.valley);
        if !self.done {
            self.segments.iter().for_each(|segment| all.merge(&segment.mean));
            all.merge(&self.mean);
        }
        all
    }

    /// `LossValley.update_and_evaluate`.
    pub(super) fn evaluated_as_in_the_code(&mut self, recipe: &Recipe) {
        let (converge, tolerance) = (recipe.swad_converge, recipe.swad_tolerance);
        let excess = self.segments.len().saturating_sub(converge.max(tolerance));
        self.segments.drain(..excess);
        let smooth = newest(&self.segments, tolerance);
        if let Some(threshold) = self.threshold {
            let oldest = self.evaluations - smooth.len() as u64;
            if oldest < self.converged_at {
                return;
            }
            if smooth.iter().all(|s| s.loss > threshold) {
                self.done = true;
                return;
            }
            self.valley.add(smooth[0].mean.values.iter().copied());
            return;
        }
        let recent = newest(&self.segments, converge);
        let Some(threshold) = converged(recent, recipe) else { return };
        // A copy that counts as nothing yet: the first segment that is added replaces it.
        self.valley = Mean { count: 0, values: recent[0].mean.values.clone() };
        let added = if tolerance < converge {
            &recent[1..=converge - tolerance]
        } else if tolerance > converge {
            let early = &smooth[..smooth.len().min(tolerance - converge + 1)];
            let start = early.iter().rposition(|s| s.loss > threshold).map_or(0, |last| last + 1);
            early.get(start + 1..).unwrap_or_default()
        } else {
            &[]
        };
        added.iter().for_each(|segment| self.valley.add(segment.mean.values.iter().copied()));
        self.threshold = Some(threshold);
        self.converged_at = self.evaluations - converge as u64;
    }

    /// `LossValley.get_final_model`.
    pub(super) fn valley_of_the_code(&self, recipe: &Recipe) -> Mean {
        let Some(threshold) = self.threshold else {
            return self.segments.last().map_or_else(|| self.mean.clone(), |segment| segment.mean.clone());
        };
        let mut valley = self.valley.clone();
        let mut left = newest(&self.segments, recipe.swad_tolerance);
        while let (false, [_, rest @ ..]) = (self.done, left) {
            if rest.iter().all(|s| s.loss > threshold) {
                break;
            }
            valley.add(rest[0].mean.values.iter().copied());
            left = rest;
        }
        valley
    }

    /// What to say of a SWAD run whose held-out loss never converged.
    pub(crate) fn without_convergence(&self, recipe: &Recipe) -> Option<String> {
        if recipe.average != Average::Swad || self.threshold.is_some() || self.evaluations == 0 {
            return None;
        }
        let result = match recipe.swad_rule {
            SwadRule::Paper => "all steps are averaged, as SWAD's paper defines it",
            SwadRule::Compat => "the result is the mean of the last epoch, as in SWAD's published code",
        };
        let (evaluations, converge) = (self.evaluations, recipe.swad_converge);
        Some(format!(
            "SWAD found no valley: in {evaluations} evaluations the held-out loss never went {converge} without improving \
             (train.swad_converge); {result}"
        ))
    }

    /// Whether a state after `steps` steps lacks some that may have to be averaged: earlier versions dropped them.
    pub(crate) fn lacks_steps(&self, recipe: &Recipe, steps: usize) -> bool {
        let counted = self.earlier.count + self.mean.count + self.segments.iter().map(|s| s.mean.count).sum::<u64>();
        let all = recipe.average == Average::Swad && recipe.swad_rule == SwadRule::Paper && self.threshold.is_none();
        all && counted < steps as u64
    }
}

/// The threshold, once none of the last `converge` losses is lower than the first of them.
fn converged(segments: &[Segment], recipe: &Recipe) -> Option<f64> {
    let first = segments.first().filter(|_| segments.len() == recipe.swad_converge)?.loss;
    let mean = segments.iter().map(|s| s.loss).sum::<f64>() / segments.len() as f64;
    segments.iter().all(|s| s.loss >= first).then_some(mean * (1.0 + recipe.swad_ratio))
}

fn newest(segments: &[Segment], count: usize) -> &[Segment] {
    &segments[segments.len().saturating_sub(count)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::prompt::Tensor;

    fn recipe(rule: SwadRule, converge: usize, tolerance: usize, ratio: f64) -> Recipe {
        Recipe {
            average: Average::Swad,
            swad_rule: rule,
            swad_converge: converge,
            swad_tolerance: tolerance,
            swad_ratio: ratio,
            ..Default::default()
        }
    }

    /// Segments of one step; the n-th, from 0, has the value 2^n.
    fn run(recipe: &Recipe, losses: &[f64]) -> (f64, Averager) {
        let mut average = Averager::default();
        for (step, &loss) in losses.iter().enumerate() {
            let value = Tensor::new("context", vec![1], vec![2f32.powi(step as i32)]);
            average.step(recipe, 0.0, &[value]);
            average.evaluated(recipe, loss);
        }
        (average.result(recipe).unwrap()[0], average)
    }

    fn mean(steps: std::ops::RangeInclusive<i32>) -> f64 {
        let count = steps.clone().count() as f64;
        steps.map(|step| 2f64.powi(step)).sum::<f64>() / count
    }

    #[test]
    fn the_paper_averages_from_convergence_to_the_last_step_within_the_threshold() {
        let rule = recipe(SwadRule::Paper, 2, 2, 0.1);
        // Falls until 1.0, stays flat, then rises for good: one rise is tolerated.
        let (found, average) = run(&rule, &[5.0, 3.0, 1.0, 1.0, 1.05, 9.0, 1.0, 9.0, 9.0, 1.0]);
        assert!(average.done && (found - mean(2..=6)).abs() < 1e-9, "{found}");
        // A valley that has not ended when the training does reaches to the last step.
        let (found, average) = run(&rule, &[5.0, 1.0, 1.0, 9.0]);
        assert!(!average.done && (found - mean(1..=3)).abs() < 1e-9, "{found}");
        // Losses above the threshold count from inside the window that converged.
        let (found, average) = run(&recipe(SwadRule::Paper, 3, 3, 0.0), &[5.0, 1.0, 9.0, 9.0, 9.0]);
        assert!(average.done && (found - mean(1..=1)).abs() < 1e-9, "{found}");
    }

    #[test]
    fn without_convergence_the_paper_averages_all_steps_and_says_so() {
        let rule = recipe(SwadRule::Paper, 3, 6, 0.3);
        let (found, average) = run(&rule, &[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]);
        assert!((found - mean(0..=6)).abs() < 1e-9, "{found}");
        assert!(average.without_convergence(&rule).unwrap().contains("all steps"));
        assert!(!average.lacks_steps(&rule, 7) && average.lacks_steps(&rule, 8));
        assert_eq!(run(&rule, &[1.0, 1.0, 1.0]).1.without_convergence(&rule), None);
    }

    /// Values of the published class (khanrc/swad, domainbed/swad.py) with one number as its model.
    #[test]
    fn compat_gives_the_numbers_of_the_published_code() {
        let falling_then_flat = [5.0, 4.0, 3.0, 2.5, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5];
        let rising = [[2.0, 2.1, 2.2, 2.3, 2.4, 2.5].as_slice(), &[9.0; 8]].concat();
        let dead = [[5.0, 4.0, 2.4, 2.2].as_slice(), &rising].concat();
        let at_once = [1.0, 1.1, 1.2, 1.1, 1.0, 1.2, 1.1];
        let dead_at_once = [[1.0, 1.1, 1.2].as_slice(), &[9.0; 7]].concat();
        let short = [5.0, 1.0, 1.1, 1.2, 1.0, 9.0, 1.0, 9.0, 9.0];
        let check = |losses: &[f64], (converge, tolerance, ratio), expected: f64, done: bool| {
            let rule = recipe(SwadRule::Compat, converge, tolerance, ratio);
            let (found, average) = run(&rule, losses);
            assert!((found - expected).abs() < 1e-9 && average.done == done, "{losses:?}: {found}, not {expected}");
        };
        check(&falling_then_flat, (3, 6, 0.3), 146.285_714_285_714_28, false);
        check(&dead, (3, 6, 0.3), 129.0, true);
        check(&at_once, (3, 6, 0.3), 12.272_727_272_727_273, false);
        check(&dead_at_once, (3, 6, 0.3), 2.142_857_142_857_143, true);
        check(&short, (4, 2, 0.1), 24.8, true);
        check(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], (3, 6, 0.3), 32.0, false);
        check(&[5.0, 3.0, 1.0, 1.05, 1.0, 9.0, 9.0, 9.0], (2, 2, 0.1), 12.0, true);
    }
}
