//! Sampled classes: a step whose softmax runs over the batch's own classes and a few others, drawn anew for every batch.
//!
//! With `n` of the `N` other classes, each counts for `N / n`: its logit gets `ln(N / n)`, which makes the sum inside the
//! softmax unbiased. The loss, its logarithm, is a little too low on average (Jensen), by about half the relative variance
//! of that sum, and less with every class more. The same batch gets the same classes, so both passes of a sharpness-aware
//! step compare equals.

use super::Batch;
use super::cross_entropy::{CrossEntropy, cross_entropy};
use flatclip::digest::Digest;
use flatclip::model::ClassTokens;
use flatclip::rng::Stream;
use flatclip_tensor::Matrix;

/// The classes of one step.
pub(crate) struct ClassSample {
    /// Indices of the classes, ascending.
    classes: Vec<usize>,
    /// The batch's labels as places in `classes`.
    labels: Vec<usize>,
    /// `ln(N / n)` for classes that no image of the batch has, 0 for the others.
    shifts: Vec<f32>,
}

impl ClassSample {
    /// The batch's classes and `others` more of `total`; `None` if that is all of them.
    pub(crate) fn draw(others: usize, total: usize, batch: &Batch<'_>, seed: u64) -> Option<Self> {
        let mut is_own = vec![false; total];
        batch.labels.iter().for_each(|&label| is_own[label] = true);
        let mut rest: Vec<usize> = (0..total).filter(|&class| !is_own[class]).collect();
        if others == 0 || others >= rest.len() {
            return None;
        }
        let bytes: Vec<u8> = batch.features.data().iter().flat_map(|x| x.to_le_bytes()).collect();
        let key = Digest::default().bytes(bytes).short();
        Stream::new(seed, &["class sample", &key]).shuffle(&mut rest);
        let shift = (rest.len() as f32 / others as f32).ln();
        let mut classes: Vec<usize> = (0..total).filter(|&class| is_own[class]).collect();
        classes.extend(&rest[..others]);
        classes.sort_unstable();
        let shifts = classes.iter().map(|&class| if is_own[class] { 0.0 } else { shift }).collect();
        let labels = batch.labels.iter().map(|label| classes.partition_point(|class| class < label)).collect();
        Some(Self { classes, labels, shifts })
    }

    /// The tokens of these classes.
    pub(crate) fn tokens(&self, all: &ClassTokens) -> ClassTokens {
        ClassTokens { classes: self.classes.iter().map(|&class| all.classes[class].clone()).collect(), ..all.clone() }
    }

    /// The estimate of the loss over all classes from the logits `[B, n]` of these. `correct` counts images that are right
    /// among these classes.
    pub(crate) fn cross_entropy(&self, logits: &Matrix) -> CrossEntropy {
        let mut shifted = logits.clone();
        for row in shifted.data_mut().chunks_exact_mut(self.shifts.len().max(1)) {
            row.iter_mut().zip(&self.shifts).for_each(|(logit, shift)| *logit += shift);
        }
        let correct = cross_entropy(logits, &self.labels).correct;
        CrossEntropy { correct, ..cross_entropy(&shifted, &self.labels) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_inside_the_softmax_is_unbiased_and_the_loss_close() {
        let (total, others) = (60, 20);
        let mut stream = Stream::new(3, &["logits"]);
        let logits: Vec<f32> = (0..total).map(|_| stream.normal() as f32).collect();
        let labels = [7];
        let exact = f64::from(cross_entropy(&Matrix::from_vec(1, total, logits.clone()), &labels).loss);
        let (mut sum, mut loss, draws) = (0.0, 0.0, 3000);
        for i in 0..draws {
            let features = Matrix::from_vec(1, 1, vec![i as f32]);
            let batch = Batch { labels: &labels, features: &features, pixels: &[] };
            let sample = ClassSample::draw(others, total, &batch, 0).unwrap();
            assert_eq!(sample.classes.len(), others + 1);
            assert_eq!(sample.classes[sample.labels[0]], 7);
            let own = Matrix::from_vec(1, others + 1, sample.classes.iter().map(|&class| logits[class]).collect());
            let found = f64::from(sample.cross_entropy(&own).loss);
            loss += found / f64::from(draws);
            sum += found.exp() / f64::from(draws);
        }
        assert!((sum / exact.exp() - 1.0).abs() < 0.02, "{sum} {}", exact.exp());
        assert!((loss - exact).abs() < 0.05 && loss <= exact + 0.01, "{loss} {exact}");
    }

    #[test]
    fn a_sample_of_all_classes_is_none_and_the_same_batch_gets_the_same_one() {
        let features = Matrix::from_vec(2, 1, vec![0.1, 0.2]);
        let batch = Batch { labels: &[3, 3], features: &features, pixels: &[] };
        assert!(ClassSample::draw(9, 10, &batch, 0).is_none() && ClassSample::draw(0, 10, &batch, 0).is_none());
        let classes = |seed| ClassSample::draw(4, 40, &batch, seed).unwrap().classes;
        assert_eq!(classes(1), classes(1));
        assert_ne!(classes(1), classes(2));
    }
}
