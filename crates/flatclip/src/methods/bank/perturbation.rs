//! How a context is perturbed: a radius, and steps of that length along directions.

use crate::Result;
use crate::methods::probability::mean_entropy;
use crate::methods::sam::NormScope;
use crate::methods::update::on_text;
use crate::methods::{Task, TextSide};
use crate::model::Context;
use crate::options::OptionValue as _;
use crate::rng::Stream;
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};

crate::choices! {
    /// How directions are drawn.
    pub enum Directions {
        /// Independent, standard normal.
        Gaussian = "gaussian",
        /// Every second one is minus the one before.
        Antithetic = "antithetic",
        /// Orthogonal to the ones before (as far as there is room).
        Orthogonal = "orthogonal",
        /// J'u with J the text features' slope by the context and u normal: where the text features move most.
        Jacobian = "jacobian",
        /// A normal one, bent by one step towards where the classes' own text features are less distinct.
        Ascent = "ascent",
    }
}

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
        options.get("radius_unit").and_then(Self::from_value).unwrap_or(Self::Absolute)
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

    /// Directions of the shape of `context`. They depend on the seed and the shape alone, so data sets share
    /// them.
    pub fn draw(&self, context: &Context, seed: u64) -> Vec<Vec<f32>> {
        let mut drawn: Vec<Vec<f32>> = Vec::with_capacity(self.count);
        for index in 0..self.count {
            let next = match self.directions {
                Directions::Antithetic if index % 2 == 1 => drawn[index - 1].iter().map(|x| -x).collect(),
                _ => {
                    let mut stream = Stream::new(seed, &["stss", "directions", &index.to_string()]);
                    (0..context.data.len()).map(|_| stream.normal() as f32).collect()
                }
            };
            drawn.push(next);
        }
        if self.directions == Directions::Orthogonal {
            drawn.chunks_mut(context.data.len().max(1)).for_each(orthogonalise);
        }
        drawn
    }

    /// Directions around the context of a task, turned as [`Directions`] says where that needs the text tower.
    pub(super) fn turned(&self, task: &Task, side: TextSide<'_>, context: &Context) -> Result<Vec<Vec<f32>>> {
        let (base, drawn) = (task.text_features(), self.draw(context, task.seed));
        match self.directions {
            Directions::Jacobian => {
                let pass = side.pass(context)?;
                let along = |index: usize| {
                    let mut stream = Stream::new(task.seed, &["stss", "cotangents", &index.to_string()]);
                    let values = (0..base.data().len()).map(|_| stream.normal() as f32).collect();
                    let u = Matrix::from_vec(base.rows(), base.cols(), values);
                    Ok(pass.gradient(&[u])?.swap_remove(0).data)
                };
                (0..drawn.len()).map(along).collect()
            }
            Directions::Ascent => {
                let bent = |noise: &Vec<f32>| {
                    let pass = side.pass(&self.apply(context, noise))?;
                    // The classes' text features stand for images: text needs no image to become less distinct.
                    let loss = on_text(base, &pass.features()[0], task.logit_scale, mean_entropy);
                    let up = pass.gradient(&[loss.gradient])?.swap_remove(0).data;
                    let (a, b) = (l2_norm(noise), l2_norm(&up).max(f64::MIN_POSITIVE));
                    let sum = |(&n, &u): (&f32, &f32)| (f64::from(n) / a + f64::from(u) / b) as f32;
                    Ok(noise.iter().zip(&up).map(sum).collect())
                };
                drawn.iter().map(bent).collect()
            }
            _ => Ok(drawn),
        }
    }
}

/// Gram-Schmidt, each vector in turn. Lengths do not matter here: they are normalised when applied.
fn orthogonalise(vectors: &mut [Vec<f32>]) {
    for index in 1..vectors.len() {
        let (before, rest) = vectors.split_at_mut(index);
        for other in before.iter() {
            let along: f64 = rest[0].iter().zip(other).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let share = along / l2_norm(other).powi(2).max(f64::MIN_POSITIVE);
            rest[0].iter_mut().zip(other).for_each(|(x, &o)| *x = (f64::from(*x) - share * f64::from(o)) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(norm: NormScope, unit: RadiusUnit, directions: Directions) -> RandomPerturbation {
        RandomPerturbation { count: 6, radius: 0.5, unit, norm, directions }
    }

    fn context() -> Context {
        Context::per_class(2, 3, 4, (0..24).map(|i| 0.1 * i as f32 - 0.7).collect())
    }

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

    #[test]
    fn directions_are_what_they_are_called() {
        let context = context();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let pairs = how(NormScope::Whole, RadiusUnit::Absolute, Directions::Antithetic).draw(&context, 1);
        pairs.chunks(2).for_each(|pair| assert!(pair[0].iter().zip(&pair[1]).all(|(a, b)| *a == -b)));
        let orthogonal = how(NormScope::Whole, RadiusUnit::Absolute, Directions::Orthogonal).draw(&context, 1);
        for a in 0..6 {
            (0..a).for_each(|b| assert!(dot(&orthogonal[a], &orthogonal[b]).abs() < 1e-3));
        }
    }

    #[test]
    fn draws_do_not_depend_on_their_number() {
        let gaussian = how(NormScope::Whole, RadiusUnit::Absolute, Directions::Gaussian);
        let few = RandomPerturbation { count: 2, ..gaussian }.draw(&context(), 9);
        assert_eq!(few, gaussian.draw(&context(), 9)[..2]);
    }
}
