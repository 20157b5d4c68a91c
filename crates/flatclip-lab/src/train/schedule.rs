//! Learning-rate schedules.

use crate::tuners::{Recipe, Schedule};
use std::f64::consts::PI;

/// The learning rate of step `step`, counted from 0 over all epochs. Only `Schedule::Epoch` has a warm-up.
pub(super) fn rate_at(recipe: &Recipe, steps_per_epoch: usize, step: usize) -> f64 {
    let cosine = |done: usize, all: usize| recipe.lr * (1.0 + (PI * done as f64 / all.max(1) as f64).cos()) / 2.0;
    match recipe.schedule {
        Schedule::Epoch => match (step / steps_per_epoch.max(1)).checked_sub(recipe.warmup_epochs) {
            None => recipe.warmup_lr,
            Some(since) => cosine(since, recipe.epochs),
        },
        Schedule::Step => cosine(step, recipe.epochs * steps_per_epoch),
        Schedule::Constant => recipe.lr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_cosine_is_that_of_dassl() {
        let close = |epochs, epoch: usize, expected: f64| {
            for step in 3 * epoch..3 * epoch + 3 {
                let found = rate_at(&Recipe { epochs, ..Recipe::default() }, 3, step);
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
        let recipe = Recipe { schedule: Schedule::Step, lr: 1e-3, epochs: 2, ..Recipe::default() };
        assert_eq!(rate_at(&recipe, 3, 0), 1e-3);
        assert!((rate_at(&recipe, 3, 3) - 5e-4).abs() < 1e-12);
        assert!(rate_at(&recipe, 3, 6).abs() < 1e-12);
    }
}
