//! The Rademacher complexity of the prompts within a radius, from below: for random signs, the largest correlation that gradient
//! ascent finds between signs and outputs. `R_n = E_sigma sup_f 1/n sum_i sigma_i' f(x_i)`, `f` the probabilities of the classes.

use crate::Result;
use crate::methods::sam::Ascent;
use crate::model::{ClassTokens, Context, TextTower};
use crate::prompt::logits;
use crate::rng::Stream;
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How hard the supremum is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RademacherSearch {
    /// Prompts within this radius are the class of functions.
    pub radius: f32,
    /// Draws of signs.
    pub draws: usize,
    /// Steps of ascent for each.
    pub steps: usize,
    /// Seed of the signs.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rademacher {
    /// Mean over the draws of the largest correlation found.
    pub estimate: f64,
    /// Draws of signs.
    pub draws: usize,
    /// Images.
    pub images: usize,
}

impl Rademacher {
    /// On unit-norm image features.
    pub fn measure(
        tower: &Arc<TextTower>,
        classes: &ClassTokens,
        context: &Context,
        scale: f32,
        features: &Matrix,
        search: &RademacherSearch,
    ) -> Result<Self> {
        let (radius, mut total) = (f64::from(search.radius), 0.0);
        for draw in 0..search.draws {
            let mut stream = Stream::new(search.seed, &["rademacher", &draw.to_string()]);
            let mut eps = vec![0.0f32; context.data.len()];
            let (mut best, mut signs) = (f64::NEG_INFINITY, Vec::new());
            for step in 0..=search.steps {
                let at =
                    Context { data: context.data.iter().zip(&eps).map(|(p, e)| p + e).collect(), ..context.clone() };
                let pass = tower.pass(classes, &[at])?;
                let outputs = logits(features, &pass.features()[0], scale);
                if step == 0 {
                    let count = outputs.rows() * outputs.cols();
                    signs = (0..count).map(|_| if stream.uniform(0.0, 1.0) < 0.5 { -1.0f32 } else { 1.0 }).collect();
                }
                let (value, slope) = correlation(&outputs, &signs);
                best = best.max(value);
                if step == search.steps {
                    break;
                }
                let gradient = pass.gradient(&[text_slope(&slope, features, scale)])?;
                let gradient: Vec<f32> = gradient.into_iter().flat_map(|context| context.data).collect();
                let along = scaled(&gradient, radius);
                eps.iter_mut().zip(&along).for_each(|(e, s)| *e += s);
                if l2_norm(&eps) > radius {
                    eps = scaled(&eps, radius);
                }
            }
            total += best;
        }
        Ok(Self { estimate: total / search.draws.max(1) as f64, draws: search.draws, images: features.rows() })
    }
}

/// `1/n sum_i sigma_i' softmax(z_i)` and its slope on the logits.
fn correlation(outputs: &Matrix, signs: &[f32]) -> (f64, Matrix) {
    let (n, classes) = (outputs.rows().max(1), outputs.cols());
    let mut slope = Matrix::zeros(outputs.rows(), classes);
    let mut total = 0.0;
    for (row, sign) in (0..outputs.rows()).zip(signs.chunks(classes.max(1))) {
        let p = crate::methods::probability::softmax(outputs.row(row));
        let mean: f64 = p.iter().zip(sign).map(|(p, &s)| p * f64::from(s)).sum();
        total += mean / n as f64;
        let to = slope.row_mut(row).iter_mut().zip(p.iter().zip(sign));
        to.for_each(|(d, (p, &s))| *d = (p * (f64::from(s) - mean) / n as f64) as f32);
    }
    (total, slope)
}

/// From the logits to the text features.
fn text_slope(slope: &Matrix, features: &Matrix, scale: f32) -> Matrix {
    let mut d = Matrix::zeros(slope.cols(), features.cols());
    for (row, image) in slope.iter_rows().zip(features.iter_rows()) {
        for (k, &s) in row.iter().enumerate().filter(|(_, s)| **s != 0.0) {
            d.row_mut(k).iter_mut().zip(image).for_each(|(d, x)| *d += scale * s * x);
        }
    }
    d
}

/// A direction with the given length; a zero direction stays.
fn scaled(direction: &[f32], length: f64) -> Vec<f32> {
    Ascent::sam(length).epsilon_of(&[(&[direction.len()], direction)], &[direction]).swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_the_correlation_matches_differences() {
        let outputs = Matrix::from_vec(2, 3, vec![0.3, -0.2, 0.9, 1.1, 0.4, -0.7]);
        let signs = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0];
        let (_, slope) = correlation(&outputs, &signs);
        for index in 0..6 {
            let at = |by: f32| {
                let mut moved = outputs.clone();
                moved.data_mut()[index] += by;
                correlation(&moved, &signs).0
            };
            let measured = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((f64::from(slope.data()[index]) - measured).abs() < 1e-4, "{index}");
        }
    }
}
