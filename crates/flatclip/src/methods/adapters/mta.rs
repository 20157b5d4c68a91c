//! MTA: a robust mode of the views' features, found by mean shift with an inlierness per view. Golden cases: `mta-*`,
//! `mta-features-*`.

use super::prelude::*;
use flatclip_tensor::gemm::product_nt;
use flatclip_tensor::ops::wide::{add_scaled, softmax, squared_distance};

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "mean shift over the views' features, weighted by how much views agree",
    docs: "\
What: maximises, over the mode m of the features and an inlierness y per view (a distribution over views),
  sum_i y_i K_i(m) + (lambda_q / 2) y' A y - lambda_y sum_i y_i ln y_i,
  K_i(m) = exp(-|f_i - m|^2 / (2 h_i^2)), A_ij = p_i . p_j, p_i the softmax of view i,
by turns: y = softmax((K(m) + lambda_q A y) / lambda_y), m = normalise(sum y_i K_i f_i), five rounds of at
most five steps each.
Decision: the mode against the text. The bandwidth of a view is half the mean squared distance to its
nearest 30 % of the others. Two views or fewer have none: the answer is then zero-shot. In the explanation a
view's score is minus its inlierness, `selected` those above 1/V.
Cost: one image-tower pass over the views and O(V^2 D) multiplications; no gradient, no state.
Reference: Zanella and Ben Ayed, On the Test-time Zero-shot Generalization of Vision-Language Models, CVPR
2024.
",
    verified: Verified::AuthorsCode,
    options: Mta::OPTIONS,
    ..AdapterSpec::new("mta", Build::Episodic(|table| Ok(Box::new(Mta::read(table)?))))
};

crate::options! {
    pub struct Mta for "mta" {
        /// Weight of the entropy of the inlierness.
        lambda_y: f64 = 0.2, range above(0.0), from "authors' code";
        /// Weight of the agreement between views.
        lambda_q: f64 = 4.0, range at_least(0.0), from "authors' code";
        /// Rounds, and steps within a round.
        max_iter: usize = 5, range between(1, 1000), from "authors' code";
        /// A smaller change ends the steps of a round.
        tolerance: f64 = 1e-6, range at_least(0.0), from "authors' code";
    }
}

#[derive(Clone, Debug)]
pub struct Mode {
    pub bandwidths: Vec<f32>,
    /// Inlierness of every view, summing to 1.
    pub inlierness: Vec<f32>,
    /// The unit-norm mode, `[1, D]`.
    pub mode: Matrix,
    /// Agreement of every pair of views.
    pub affinity: Matrix,
    /// Steps taken: inlierness, mode, inlierness, mode, ...
    pub steps: Vec<usize>,
}

/// The mode of `features` (`[V, D]`, at least 3 rows) whose logits are `views`.
pub fn find_mode(options: &Mta, features: &Matrix, views: &ViewLogits) -> Mode {
    let bandwidths = bandwidths(features);
    let affinity = affinity(&views.logits);
    let count = features.rows();
    let mut y = vec![1.0 / count as f64; count];
    let mut mode: Vec<f32> = features.row(0).to_vec();
    let mut steps = Vec::new();
    for _ in 0..options.max_iter {
        let density = densities(features, &mode, &bandwidths);
        steps.push(repeat(options, || {
            let next = inlierness(options, &density, &affinity, &y);
            let change = y.iter().zip(&next).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            y = next;
            change
        }));
        steps.push(repeat(options, || {
            let next = shift(features, &densities(features, &mode, &bandwidths), &y);
            let change = squared_distance(&mode, &next).sqrt();
            mode = next;
            change
        }));
    }
    Mode {
        bandwidths: bandwidths.iter().map(|h| h.sqrt() as f32).collect(),
        inlierness: y.iter().map(|&y| y as f32).collect(),
        mode: Matrix::from_vec(1, mode.len(), mode),
        affinity,
        steps,
    }
}

/// Runs `step` until its change is small or `max_iter` is reached; how often.
fn repeat(options: &Mta, mut step: impl FnMut() -> f64) -> usize {
    for taken in 1..=options.max_iter {
        if step() < options.tolerance {
            return taken;
        }
    }
    options.max_iter
}

/// Squared bandwidths: half the mean squared distance to the nearest `int(0.3 (V-1))` other views, at least one.
fn bandwidths(features: &Matrix) -> Vec<f64> {
    let count = features.rows();
    let near = ((0.3 * (count - 1) as f64) as usize).max(1);
    let mut distances = vec![0.0; count * count];
    for (i, j) in (0..count).flat_map(|i| (0..i).map(move |j| (i, j))) {
        let distance = squared_distance(features.row(i), features.row(j));
        (distances[i * count + j], distances[j * count + i]) = (distance, distance);
    }
    let bandwidth = |d: &mut [f64]| {
        d.sort_by(f64::total_cmp);
        // d[0] is the view itself; equal views would have no bandwidth at all.
        (0.5 * d[1..=near].iter().sum::<f64>() / near as f64).max(1e-12)
    };
    distances.chunks_exact_mut(count).map(bandwidth).collect()
}

fn affinity(logits: &Matrix) -> Matrix {
    let mut p = logits.data().to_vec();
    softmax(&mut p, logits.cols());
    let mut out = Matrix::zeros(logits.rows(), logits.rows());
    product_nt(&p, logits.rows(), &p, logits.rows(), logits.cols(), out.data_mut());
    out
}

fn densities(features: &Matrix, mode: &[f32], bandwidths: &[f64]) -> Vec<f64> {
    let kernel = |(row, h2): (&[f32], &f64)| (-squared_distance(row, mode) / (2.0 * h2)).exp();
    features.iter_rows().zip(bandwidths).map(kernel).collect()
}

fn inlierness(options: &Mta, density: &[f64], affinity: &Matrix, y: &[f64]) -> Vec<f64> {
    let score = |(row, k): (&[f32], &f64)| {
        let agreement: f64 = row.iter().zip(y).map(|(&a, y)| f64::from(a) * y).sum();
        (k + options.lambda_q * agreement) / options.lambda_y
    };
    softmax_f64(affinity.iter_rows().zip(density).map(score).collect())
}

fn shift(features: &Matrix, density: &[f64], y: &[f64]) -> Vec<f32> {
    let mut sum = vec![0.0f64; features.cols()];
    for (row, weight) in features.iter_rows().zip(density.iter().zip(y).map(|(k, y)| k * y)) {
        add_scaled(weight, row, &mut sum);
    }
    let length = sum.iter().map(|s| s * s).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    sum.iter().map(|s| (s / length) as f32).collect()
}

impl Adapter for Mta {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let count = image.features.rows();
        if count < 3 {
            let ballot = Decision::from_logits(views.logits.row(0));
            let original = Selection { scores: views.entropies.clone(), ranking: vec![0], selected: vec![0] };
            return Ok(ballot.answer(views.explain(original)));
        }
        let found = find_mode(self, image.features, &views);
        let ballot = Decision::from_logits(task.logits(&found.mode).row(0));
        let scores: Vec<f32> = found.inlierness.iter().map(|y| -y).collect();
        let ranking = ranking(&scores);
        let inliers = ranking.iter().copied().filter(|&v| found.inlierness[v] > 1.0 / count as f32).collect();
        Ok(ballot.answer(views.explain(Selection { scores, ranking, selected: inliers })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip_tensor::ops::l2_norm;

    #[test]
    fn an_outlier_is_left_out_of_the_mode() {
        let mut features = Matrix::from_vec(8, 3, [1.0, 0.1, 0.0].repeat(8));
        (0..8).for_each(|v| features.row_mut(v)[2] = 0.02 * v as f32);
        features.row_mut(7).copy_from_slice(&[-1.0, 0.2, 0.4]);
        normalise_rows(&mut features);
        let text = Matrix::from_vec(2, 3, vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let found = find_mode(&Mta::default(), &features, &ViewLogits::new(&features, &text, 10.0));
        assert!((l2_norm(found.mode.row(0)) - 1.0).abs() < 1e-6);
        assert!(found.mode.row(0)[0] > 0.98, "{:?}", found.mode);
        assert!(found.inlierness[7] < found.inlierness[0]);
    }

    #[test]
    fn equal_views_are_their_own_mode() {
        let features = Matrix::from_vec(6, 2, [0.6, 0.8].repeat(6));
        let text = Matrix::from_vec(1, 2, vec![1.0, 0.0]);
        let found = find_mode(&Mta::default(), &features, &ViewLogits::new(&features, &text, 10.0));
        assert!((found.mode.row(0)[0] - 0.6).abs() < 1e-6);
    }
}
