//! Directions in which a context is perturbed.

use super::RandomPerturbation;
use crate::Result;
use crate::methods::probability::mean_entropy;
use crate::methods::update::on_text;
use crate::methods::{Task, TextSide};
use crate::model::Context;
use crate::rng::Stream;
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;

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

impl RandomPerturbation {
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
    use super::super::RadiusUnit;
    use super::super::perturbation::samples::{context, how};
    use super::*;
    use crate::methods::sam::NormScope;

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
