//! Learning-rate schedules.

use crate::tuners::{Recipe, Schedule};
use std::f64::consts::PI;

/// The learning rate of every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LearningRate {
    /// The kind of schedule.
    pub schedule: Schedule,
    /// Peak rate.
    pub peak: f64,
    /// Number of epochs.
    pub epochs: usize,
    /// Steps in one epoch.
    pub steps_per_epoch: usize,
    /// Epochs at the warm-up rate (`Schedule::Epoch` only).
    pub warmup_epochs: usize,
    /// Rate of the warm-up epochs.
    pub warmup: f64,
}

impl LearningRate {
    /// The schedule of a recipe.
    pub(crate) fn of(recipe: &Recipe, steps_per_epoch: usize) -> Self {
        Self {
            schedule: recipe.schedule,
            peak: recipe.lr,
            epochs: recipe.epochs,
            steps_per_epoch,
            warmup_epochs: recipe.warmup_epochs,
            warmup: recipe.warmup_lr,
        }
    }

    /// The rate of step `step`, counted from 0 over all epochs.
    pub(crate) fn at(&self, step: usize) -> f64 {
        let cosine = |done: usize, all: usize| self.peak * (1.0 + (PI * done as f64 / all.max(1) as f64).cos()) / 2.0;
        match self.schedule {
            Schedule::Epoch => {
                let epoch = step / self.steps_per_epoch.max(1);
                match epoch.checked_sub(self.warmup_epochs) {
                    None => self.warmup,
                    Some(since) => cosine(since, self.epochs),
                }
            }
            Schedule::Step => cosine(step, self.epochs * self.steps_per_epoch),
            Schedule::Constant => self.peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dassl(epochs: usize) -> LearningRate {
        LearningRate {
            schedule: Schedule::Epoch,
            peak: 0.002,
            epochs,
            steps_per_epoch: 3,
            warmup_epochs: 1,
            warmup: 1e-5,
        }
    }

    #[test]
    fn the_epoch_cosine_is_that_of_dassl() {
        let close = |epochs, epoch: usize, expected: f64| {
            for step in 3 * epoch..3 * epoch + 3 {
                let found = dassl(epochs).at(step);
                assert!((found - expected).abs() < 1e-9, "T={epochs} e={epoch}: {found} {expected}");
            }
        };
        for (epoch, expected) in
            [(0, 1e-5), (1, 2e-3), (2, 1.998027e-3), (3, 1.992115e-3), (48, 1.771275e-5), (49, 7.885299e-6)]
        {
            close(50, epoch, expected);
        }
        for (epoch, expected) in [(0, 1e-5), (1, 2e-3), (2, 1.809017e-3), (3, 1.309017e-3), (4, 6.909830e-4)] {
            close(5, epoch, expected);
        }
    }

    #[test]
    fn the_step_cosine_falls_every_step() {
        let rate = LearningRate { schedule: Schedule::Step, peak: 1e-3, epochs: 2, ..dassl(2) };
        assert_eq!(rate.at(0), 1e-3);
        assert!((rate.at(3) - 5e-4).abs() < 1e-12);
        assert!(rate.at(6).abs() < 1e-12);
    }
}
