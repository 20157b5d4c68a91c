//! TransCLIP: a Gaussian per class with a shared diagonal covariance, fitted to a set of images; without an anchor.
//! Golden cases: `transclip-*`.

use super::prelude::*;
pub use super::transduction::Fit;
use super::transduction::{Members, answers, exponents, transductive};

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["transclip-zs"],
    needs: Needs::FEATURES.with_views(1),
    summary: "Gaussians of the classes in a set of images: for sets in which all classes occur",
    docs: "\
What: stata without its anchor, without the determinant, and with one variance per dimension for all
classes, 1/D at the start; the means start at the text features. In every round, five times,
  z_i ~ y_i^text_weight exp((a_i - max a_i) / 50), y = softmax(s x.T),
  a_ik = -1/2 sum_d (x_id - mu_kd)^2 / s_d + graph_weight (50 / (2 n)) (W z + W' z)_ik;
then mu_k = normalise(sum_i z_ik x_i) and s_d = sum_ik z_ik (x_id - mu_kd)^2 / N. This is the zero-shot
form. Made for sets in which all classes occur: with few of them it loses much, where stata does not. Batch:
an answer depends on all images of the set. `batch` images of a stream are a set; 0 is the whole stream.
Cost: one image-tower pass of one view; N^2 D for the graph, 2 N K D in each of `rounds` rounds.
Reference: Zanella et al., Boosting Vision-Language Models with Transduction, NeurIPS 2024. Verified with
the code of the same authors' StatA; for more than 2500 images that divides s by N once per chunk, which is
not done here.
",
    verified: Verified::AuthorsCode,
    options: TransClip::OPTIONS,
    ..AdapterSpec::new("transclip", Build::Batch(|table| Ok(Box::new(TransClip::read(table)?))))
};

crate::options! {
    pub struct TransClip for "transclip" {
        include transductive;
    }
}

impl TransClip {
    pub fn fit(&self, task: &Task, images: &[ViewSet<'_>]) -> Fit {
        let members = &Members::new(task, images, self.neighbours);
        let (text, width) = (task.text_features(), task.text_features().cols());
        let variances = Matrix::from_vec(1, width, vec![1.0 / width as f32; width]);
        let exponents = |means: &Matrix, variances: &Matrix| exponents(&members.features, means, variances);
        members.fit(self, (text.clone(), variances), exponents, |z| {
            let means = class_means(members, z, text);
            let variances = members.shared_variance(z, &means, f64::from(f32::EPSILON) / width as f64);
            (means, Matrix::from_vec(1, width, variances))
        })
    }
}

/// Unit-norm means of the labels; a class that nobody is labelled with keeps its text.
fn class_means(members: &Members, z: &[f64], text: &Matrix) -> Matrix {
    let mut means = text.clone();
    for (class, sum) in members.class_sums(z).1.iter().enumerate() {
        let norm = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm > 0.0 {
            means.row_mut(class).iter_mut().zip(sum).for_each(|(m, s)| *m = (s / norm) as f32);
        }
    }
    normalise_rows(&mut means);
    means
}

impl BatchAdapter for TransClip {
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
    fn means_move_to_the_images_and_one_image_alone_has_an_answer() {
        let task = task(4, 8, 100.0);
        let images: Vec<Matrix> = (0..40).map(|seed| views(seed, 1, 8)).collect();
        let sets: Vec<ViewSet<'_>> = images.iter().map(|m| ViewSet::new("s", m)).collect();
        let transclip = TransClip::default();
        let fit = transclip.fit(&task, &sets);
        assert_ne!(fit.means, *task.text_features());
        assert!(fit.variances.data().iter().all(|&v| v > 0.0 && v < 1.0));
        let alone = transclip.adapt(&task, &sets[..1]).unwrap();
        assert!(alone[0].probabilities.iter().all(|p| p.is_finite()));
        assert!(transclip.adapt(&task, &[]).unwrap().is_empty());
    }
}
