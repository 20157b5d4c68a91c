//! Optimisers with torch's arithmetic. Parameters, gradients and state are f32 in torch; the scalars are f64, as here.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// One rule that moves a list of tensors; the state belongs to tensors by their place in the list.
pub trait Optimiser {
    /// One step: `gradients[i]` belongs to `parameters[i]`.
    fn step(&mut self, parameters: &mut [&mut [f32]], gradients: &[&[f32]]);

    fn set_lr(&mut self, lr: f64);
}

/// AdamW with decoupled weight decay, as `torch.optim.AdamW`:
/// `p *= 1 - lr wd; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps)`.
#[derive(Clone, Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    /// What a checkpoint keeps.
    pub state: AdamWState,
}

/// The numbers of [`AdamW`]; the defaults are torch's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamWSettings {
    pub lr: f64,
    /// Decay of the two moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// What the steps of [`AdamW`] have changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdamWState {
    /// Steps taken.
    pub steps: i32,
    /// First and second moments of each tensor; empty before the first step.
    pub moments: Vec<(Vec<f32>, Vec<f32>)>,
}

impl AdamWSettings {
    /// torch's defaults at a learning rate.
    pub const fn new(lr: f64) -> Self {
        Self { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01 }
    }
}

impl AdamW {
    pub fn new(settings: AdamWSettings) -> Self {
        Self { settings, state: AdamWState::default() }
    }

    /// torch's defaults with another weight decay, as TPT and its kin use them.
    pub fn with_decay(lr: f64, weight_decay: f64) -> Self {
        Self::new(AdamWSettings { weight_decay, ..AdamWSettings::new(lr) })
    }
}

impl Optimiser for AdamW {
    fn step(&mut self, parameters: &mut [&mut [f32]], gradients: &[&[f32]]) {
        let AdamWSettings { lr, betas: (b1, b2), eps, weight_decay } = self.settings;
        let AdamWState { steps, moments } = &mut self.state;
        if moments.is_empty() {
            *moments = parameters.iter().map(|p| (vec![0.0; p.len()], vec![0.0; p.len()])).collect();
        }
        *steps += 1;
        let keep = (1.0 - lr * weight_decay) as f32;
        let size = (lr / (1.0 - b1.powi(*steps))) as f32;
        let root = (1.0 - b2.powi(*steps)).sqrt() as f32;
        let (one_b1, b2_f, one_b2, eps) = ((1.0 - b1) as f32, b2 as f32, (1.0 - b2) as f32, eps as f32);
        for ((p, g), (m, v)) in parameters.iter_mut().zip(gradients).zip(moments) {
            for (((p, &g), m), v) in p.iter_mut().zip(*g).zip(m).zip(v) {
                *p *= keep;
                *m += (g - *m) * one_b1;
                *v = *v * b2_f + g * g * one_b2;
                *p -= size * *m / (v.sqrt() / root + eps);
            }
        }
    }

    fn set_lr(&mut self, lr: f64) {
        self.settings.lr = lr;
    }
}

/// SGD with momentum and coupled weight decay, as `torch.optim.SGD` without dampening:
/// `g += wd p; buf = g (first step) or momentum buf + g; p -= lr buf`.
#[derive(Clone, Debug)]
pub struct Sgd {
    lr: f64,
    momentum: f64,
    weight_decay: f64,
    /// Momentum, for a checkpoint; empty before the first step.
    pub buffers: Vec<Vec<f32>>,
}

impl Sgd {
    pub fn new(lr: f64, momentum: f64, weight_decay: f64) -> Self {
        Self { lr, momentum, weight_decay, buffers: Vec::new() }
    }
}

impl Optimiser for Sgd {
    fn step(&mut self, parameters: &mut [&mut [f32]], gradients: &[&[f32]]) {
        let first = self.buffers.is_empty();
        if first {
            self.buffers = parameters.iter().map(|p| vec![0.0; p.len()]).collect();
        }
        let (lr, momentum, decay) = (self.lr as f32, self.momentum as f32, self.weight_decay as f32);
        for ((p, g), buffer) in parameters.iter_mut().zip(gradients).zip(&mut self.buffers) {
            for ((p, &g), b) in p.iter_mut().zip(*g).zip(buffer) {
                let g = g + decay * *p;
                *b = if first { g } else { momentum * *b + g };
                *p -= lr * *b;
            }
        }
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

/// Refuses a gradient that is not finite: the step would destroy the parameters.
pub fn require_finite(place: impl Fn() -> String, gradients: &[&[f32]]) -> Result<()> {
    if gradients.iter().all(|g| g.iter().all(|x| x.is_finite())) {
        return Ok(());
    }
    Err(Error::NotFinite {
        place: place(),
        reason: "the gradient is not finite; look at the prompt and the pixels".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::assert_close;

    #[test]
    fn first_adamw_step_is_the_closed_form() {
        let mut p = vec![0.3f32, -0.2, 0.1];
        let g = [2.0f32, -1e-3, 0.0];
        AdamW::new(AdamWSettings::new(5e-3)).step(&mut [&mut p], &[&g]);
        for (index, &start) in [0.3f64, -0.2, 0.1].iter().enumerate() {
            let g = f64::from(g[index]);
            let expected = start * (1.0 - 5e-5) - 5e-3 * g / (g.abs() + 1e-8);
            assert!((f64::from(p[index]) - expected).abs() < 1e-7, "{index}");
        }
    }

    #[test]
    fn later_adamw_steps_match_torch() {
        // torch.optim.AdamW([1.0], lr=0.1), gradients 1, -0.5, 0.25.
        let mut p = vec![1.0f32];
        let mut adamw = AdamW::new(AdamWSettings::new(0.1));
        let mut seen = Vec::new();
        for g in [1.0f32, -0.5, 0.25] {
            adamw.step(&mut [&mut p], &[&[g]]);
            seen.push(p[0]);
        }
        assert_close(&seen, &[0.899, 0.871_467_35, 0.836_553], 1e-6);
    }

    #[test]
    fn sgd_momentum_starts_with_the_gradient_and_decays_weights() {
        let mut p = vec![1.0f32];
        let mut sgd = Sgd::new(0.1, 0.9, 0.5);
        sgd.step(&mut [&mut p], &[&[1.0]]);
        assert!((p[0] - 0.85).abs() < 1e-6);
        sgd.step(&mut [&mut p], &[&[0.0]]);
        // buffer = 0.9 * 1.5 + 0.5 * 0.85
        assert!((p[0] - (0.85 - 0.1 * (1.35 + 0.425))).abs() < 1e-6);
    }
}
