//! How a context is perturbed: a radius, and steps of that length along directions.

use super::directions::Directions;
use crate::methods::sam::NormScope;
use crate::model::Context;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};

crate::choices! {
    /// What the radius is measured in.
    pub enum RadiusUnit {
        /// The radius itself.
        Absolute = "absolute",
        /// The length of the context (over the same entries).
        Relative = "relative",
    }
}

/// A radius around a context: its length, and the share of the context's norm that it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Radius {
    /// In the units of the context.
    pub length: f64,
    /// As a share of the context's norm.
    pub share: f64,
}

impl RadiusUnit {
    /// A radius in this unit, around a context of this norm.
    pub fn radius(self, value: f64, norm: f64) -> Radius {
        match self {
            Self::Absolute => Radius { length: value, share: value / norm.max(f64::MIN_POSITIVE) },
            Self::Relative => Radius { length: value * norm, share: value },
        }
    }

    /// The unit among the options of a method; absolute where none is said.
    pub fn of(options: &toml::Table) -> Self {
        let word = options.get("radius_unit").and_then(toml::Value::as_str);
        if word == Some("relative") { Self::Relative } else { Self::Absolute }
    }
}

/// How a context is perturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomPerturbation {
    /// How many perturbed contexts.
    pub count: usize,
    /// How far they are from the context.
    pub radius: f64,
    /// What the radius is measured in.
    pub unit: RadiusUnit,
    /// Over which entries it is measured.
    pub norm: NormScope,
    /// How directions are drawn.
    pub directions: Directions,
}

impl RandomPerturbation {
    /// `context + radius * noise / ||noise||`, group by group.
    pub fn apply(&self, context: &Context, noise: &[f32]) -> Context {
        let group = match self.norm {
            NormScope::Whole => context.data.len(),
            NormScope::PerClass => context.tokens * context.width,
            NormScope::PerToken => context.width,
        };
        let mut moved = context.clone();
        for (values, noise) in moved.data.chunks_mut(group.max(1)).zip(noise.chunks(group.max(1))) {
            let unit = match self.unit {
                RadiusUnit::Absolute => 1.0,
                RadiusUnit::Relative => l2_norm(values.iter()),
            };
            // A direction without length (it cannot be drawn, but it can be given) moves nothing.
            let scale = self.radius * unit / l2_norm(noise).max(f64::MIN_POSITIVE);
            values.iter_mut().zip(noise).for_each(|(x, &n)| *x = (f64::from(*x) + scale * f64::from(n)) as f32);
        }
        moved
    }

    /// Whether anything is perturbed at all.
    pub fn is_none(&self) -> bool {
        self.count == 0 || self.radius == 0.0
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    pub(crate) fn how(norm: NormScope, unit: RadiusUnit, directions: Directions) -> RandomPerturbation {
        RandomPerturbation { count: 6, radius: 0.5, unit, norm, directions }
    }

    pub(crate) fn context() -> Context {
        Context::per_class(2, 3, 4, (0..24).map(|i| 0.1 * i as f32 - 0.7).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{context, how};
    use super::*;

    #[test]
    fn a_perturbation_has_the_length_of_the_radius_over_its_group() {
        let context = context();
        for (norm, group) in [(NormScope::Whole, 24), (NormScope::PerClass, 12), (NormScope::PerToken, 4)] {
            for unit in [RadiusUnit::Absolute, RadiusUnit::Relative] {
                let how = how(norm, unit, Directions::Gaussian);
                let moved = how.apply(&context, &how.draw(&context, 1)[0]);
                let step: Vec<f32> = moved.data.iter().zip(&context.data).map(|(a, b)| a - b).collect();
                for (step, values) in step.chunks(group).zip(context.data.chunks(group)) {
                    let expected = if unit == RadiusUnit::Absolute { 0.5 } else { 0.5 * l2_norm(values) };
                    assert!((l2_norm(step) - expected).abs() < 1e-5, "{norm:?} {unit:?}");
                }
            }
        }
    }
}
