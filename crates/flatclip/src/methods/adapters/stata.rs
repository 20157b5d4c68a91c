//! StatA: a Gaussian per class fitted to a set of images, anchored to the text features. Golden cases: `stata-*`.

use super::prelude::*;
use super::transclip::TransClip;
pub use super::transduction::Fit;
use super::transduction::{Gaussians, Members, answers, exponents, transductive};

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs::FEATURES.with_views(1),
    summary: "Gaussians of the classes in a set of images, anchored to the text: for any number of present classes",
    docs: "\
What: of a set of images (view 0 of each), y = softmax(s x.T), z = y, mu = T, and one variance per
dimension, s0_d = sum_ik y_ik (x_id - t_kd)^2 / N. In every round, five times,
  z_i ~ y_i^text_weight exp((a_i - max a_i) / 50),
  a_ik = -1/2 sum_d (x_id - mu_kd)^2 / s_kd - 1/2 sum_d ln s_kd + graph_weight (50 / (2 n)) (W z + W' z)_ik,
W the cosines of each image with its n nearest ones; then, with n_k images labelled k and beta = n_k /
(alpha + n_k),
  mu_k = normalise(beta normalise(mean of z) + (1 - beta) t_k),
  s_k = beta variance of z about mu_k + (1 - beta) (s0 + (t_k - mu_k)^2).
The answer is z after the last round. A class that does not occur stays what its text says. Batch: an answer
depends on all images of the set. `batch` images of a stream are a set; 0 is the whole stream.
Whether the set is balanced or has few classes matters less than for transclip; still, say which it was.
Cost: one image-tower pass of one view; N^2 D for the graph, 2 N K D in each of `rounds` rounds.
Reference: Zanella et al., Realistic Test-Time Adaptation of Vision-Language Models, CVPR 2025. Verified
with the authors' code, which for more than 2500 images divides s0 by N once per chunk; that is not done
here.
",
    verified: Verified::AuthorsCode,
    options: StatA::OPTIONS,
    ..AdapterSpec::new("stata", Build::Batch(|table| Ok(Box::new(StatA::read(table)?))))
};

crate::options! {
    pub struct StatA for "stata" {
        include transductive;
        /// Images that the text of a class counts for.
        alpha: f64 = 1.0, range above(0.0), from "authors' code";
        /// Count images by their labels' weights, not by their best label.
        soft_counts: bool = false, alias "soft_beta", from "authors' code";
    }
}

impl StatA {
    pub fn fit(&self, task: &Task, images: &[ViewSet<'_>]) -> Fit {
        let members = &Members::new(task, images, self.neighbours);
        let text = task.text_features();
        let anchor = members.shared_variance(&members.zero_shot, text, f64::from(f32::MIN_POSITIVE));
        let variances = Matrix::from_vec(text.rows(), text.cols(), anchor.repeat(text.rows()));
        let mut betas = vec![0.0; text.rows()];
        let exponents = |means: &Matrix, variances: &Matrix| {
            let mut exponents = exponents(&members.features, means, variances);
            subtract_determinants(&mut exponents, variances);
            exponents
        };
        let StatA { batch, text_weight, graph_weight, neighbours, rounds, .. } = *self;
        let labelling = TransClip { batch, text_weight, graph_weight, neighbours, rounds };
        let fit = members.fit(&labelling, (text.clone(), variances), exponents, |z| {
            betas = self.betas(z, text.rows());
            anchored(members, z, &betas, text, &anchor)
        });
        Fit { betas, ..fit }
    }

    fn betas(&self, z: &[f64], classes: usize) -> Vec<f64> {
        let mut counts = vec![0.0; classes];
        for row in z.chunks_exact(classes) {
            if self.soft_counts {
                counts.iter_mut().zip(row).for_each(|(c, z)| *c += z);
            } else {
                counts[argmax(row)] += 1.0;
            }
        }
        counts.into_iter().map(|n| n / (self.alpha + n)).collect()
    }
}

fn subtract_determinants(exponents: &mut Matrix, variances: &Matrix) {
    let half = |row: &[f32]| 0.5 * row.iter().map(|&s| f64::from(s).ln()).sum::<f64>();
    let determinants: Vec<f64> = variances.iter_rows().map(half).collect();
    for at in 0..exponents.rows() {
        exponents.row_mut(at).iter_mut().zip(&determinants).for_each(|(s, d)| *s = (f64::from(*s) - d) as f32);
    }
}

/// Means and variances of the labels, mixed with those of the text.
fn anchored(members: &Members, z: &[f64], betas: &[f64], text: &Matrix, anchor: &[f32]) -> Gaussians {
    let (totals, sums) = members.class_sums(z);
    let mut means = text.clone();
    for (class, (sum, &beta)) in sums.iter().zip(betas).enumerate() {
        let norm = sum.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
        let mixed = |(m, s): (&mut f32, &f64)| *m = (beta * s / norm + (1.0 - beta) * f64::from(*m)) as f32;
        means.row_mut(class).iter_mut().zip(sum).for_each(mixed);
    }
    normalise_rows(&mut means);
    let squares = members.class_squares(z, &means);
    let mut variances = Matrix::zeros(text.rows(), text.cols());
    for (class, &beta) in betas.iter().enumerate() {
        let total = totals[class].max(f64::MIN_POSITIVE);
        for (at, out) in variances.row_mut(class).iter_mut().enumerate() {
            let apart = f64::from(text.row(class)[at]) - f64::from(means.row(class)[at]);
            let own = beta * squares[class][at] / total;
            *out = (own + (1.0 - beta) * (f64::from(anchor[at]) + apart * apart)) as f32;
        }
    }
    (means, variances)
}

impl BatchAdapter for StatA {
    fn adapt(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        images.iter().try_for_each(|image| image.check(task, &SPEC))?;
        Ok(answers(task, images, &self.fit(task, images).labels))
    }

    fn set_size(&self) -> usize {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_images_keeps_its_text() {
        let task = task(6, 8, 100.0);
        // Images around the first two texts alone.
        let image = |seed: u64| {
            let mut m = views(seed, 1, 8);
            let text = task.text_features().row(seed as usize % 2).to_vec();
            m.row_mut(0).iter_mut().zip(text).for_each(|(x, t)| *x = 0.3 * *x + t);
            normalise_rows(&mut m);
            m
        };
        let images: Vec<Matrix> = (0..30).map(image).collect();
        let sets: Vec<ViewSet<'_>> = images.iter().map(|m| ViewSet::new("s", m)).collect();
        let stata = StatA::default();
        let fit = stata.fit(&task, &sets);
        assert!(fit.betas[0] > 0.8 && fit.betas[2..].iter().all(|&b| b == 0.0), "{:?}", fit.betas);
        for class in 2..6 {
            assert_close(fit.means.row(class), task.text_features().row(class), 1e-5);
        }
        for (at, answer) in stata.adapt(&task, &sets).unwrap().iter().enumerate() {
            assert_eq!(answer.prediction, at % 2);
            assert!((answer.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
    }
}
