//! BCA: class embeddings and a prior over classes that both follow the stream. Golden cases: `bca-*` (a port's, not the
//! authors').

use super::prelude::*;
use crate::methods::gaussian::identity;

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs { default_views: 1, ..Needs::FEATURES },
    summary: "class embeddings move towards confident images, and a prior over classes is learnt from the answers",
    docs: "\
What: state is one embedding mu_k per class (the text features at first), a matrix P of priors (the
identity), and counters. x is the image's feature, or the mean feature of its int(fraction * V) views of
lowest entropy under the current mu; then
  answer = softmax(s x.mu) P, k its class, m its probability;
  m > likelihood_threshold: mu_k <- normalise((c1_k mu_k + x) / (c1_k + 1)), c1_k += 1;
  m > prior_threshold:      P_k <- (c2_k P_k + answer) / (c2_k + 1), c2_k += 1.
Online: the answer depends on the images before it, and on their order. A small likelihood_count collapses
the stream onto one class.
Cost: one image-tower pass; K D for the logits and K^2 for the prior.
Reference: Zhou et al., Bayesian Test-Time Adaptation for Vision-Language Models, CVPR 2025. REIMPLEMENTED
after third-party ports that agree with each other; no code of the authors was at hand, so the defaults are
hearsay.
",
    verified: Verified::Ports,
    options: Config::OPTIONS,
    ..AdapterSpec::new("bca", Build::Online(|table| Ok(Box::new(Bca::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "bca" {
        include view_selection { fraction = 0.1, from "a port's code"; };
        /// Probability above which the embedding of the answered class moves.
        likelihood_threshold: f64 = 0.05, range between(0.0, 1.0), from "a port's code";
        /// Images that the text embedding of a class counts for.
        likelihood_count: f64 = 20000.0, range at_least(0.0), from "a port's code";
        /// Probability above which the prior of the answered class moves.
        prior_threshold: f64 = 0.65, range between(0.0, 1.0), from "a port's code";
        /// Images that the first prior of a class counts for.
        prior_count: f64 = 1.0, range at_least(0.0), from "a port's code";
    }
}

#[derive(Clone, Debug, Default)]
pub struct Bca {
    options: Config,
    /// Unit-norm `[K, D]`.
    pub embeddings: Matrix,
    /// `[K, K]`, rows that sum to 1.
    pub prior: Vec<f64>,
    pub likelihood_counts: Vec<f64>,
    pub prior_counts: Vec<f64>,
}

impl Bca {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    /// Learns from an image `x` that was answered with `answer`.
    fn learn(&mut self, x: &[f32], answer: &[f64]) {
        let class = argmax(answer);
        let sure = answer[class];
        if sure > self.options.likelihood_threshold {
            let count = &mut self.likelihood_counts[class];
            let row = self.embeddings.row_mut(class);
            let moved: Vec<f64> = row.iter().zip(x).map(|(&m, &x)| *count * f64::from(m) + f64::from(x)).collect();
            let norm = moved.iter().map(|m| m * m).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            row.iter_mut().zip(&moved).for_each(|(m, new)| *m = (new / norm) as f32);
            *count += 1.0;
        }
        if sure > self.options.prior_threshold {
            let count = &mut self.prior_counts[class];
            let row = &mut self.prior[class * answer.len()..][..answer.len()];
            row.iter_mut().zip(answer).for_each(|(p, a)| *p = (*count * *p + a) / (*count + 1.0));
            *count += 1.0;
        }
    }
}

impl OnlineAdapter for Bca {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let classes = task.class_count();
        self.embeddings = task.text_features().clone();
        self.prior = identity(classes, 1.0);
        self.likelihood_counts = vec![self.options.likelihood_count; classes];
        self.prior_counts = vec![self.options.prior_count; classes];
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::new(image.features, &self.embeddings, task.logit_scale);
        let selection = LowestScore { fraction: self.options.fraction, score: self.options.score }.select(&views);
        let likelihood = softmax(&mean_row(&views.logits, &selection.selected));
        let mut answer = vec![0.0f64; likelihood.len()];
        for (row, weight) in self.prior.chunks_exact(likelihood.len()).zip(&likelihood) {
            answer.iter_mut().zip(row).for_each(|(a, p)| *a += weight * p);
        }
        self.learn(&mean_row(image.features, &selection.selected), &answer);
        Ok(Decision::from_probabilities(&answer).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sure_image_moves_its_class_and_an_unsure_one_nothing() {
        let task = task(3, 8, 100.0);
        let image = views(4, 1, 8);
        let state = |threshold: f64| {
            let (likelihood_threshold, prior_threshold) = (threshold, threshold);
            let options = Config { likelihood_threshold, prior_threshold, likelihood_count: 3.0, ..Config::default() };
            let mut bca = ready(Bca::new(options), &task);
            let class = bca.adapt(&task, &ViewSet::new("s", &image)).unwrap().prediction;
            (class, bca)
        };
        let (class, moved) = state(0.0);
        assert_eq!((moved.likelihood_counts[class], moved.prior_counts[class]), (4.0, 2.0));
        assert_ne!(moved.embeddings.row(class), task.text_features().row(class));
        assert!((moved.prior.chunks_exact(3).nth(class).unwrap().iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let (_, same) = state(1.0);
        assert_eq!(&same.embeddings, task.text_features());
    }
}
