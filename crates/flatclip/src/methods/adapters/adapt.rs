//! ADAPT: a bank of certain images per class, Gaussian discriminant analysis of it, and the bank's labels as neighbours.
//! This is the online form; `adapt_set` has the transductive one, an entry of its own because a method has one kind.
//! Golden cases: `adapt-*`.

use super::prelude::*;
use crate::methods::cache::{Item, features, replace_worst};
use crate::methods::gaussian::{Discriminant, Scatter};
use flatclip_tensor::ops::loss;

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["adapt-online"],
    needs: Needs { default_views: 1, ..Needs::FEATURES },
    summary: "a bank of certain images per class: Gaussian discriminant analysis and neighbour labels",
    docs: "\
What: an image (mean feature x, mean logits z, mean softmax p of its confident views, or its single view)
enters the bank of its class if a place is free or holds a larger entropy. Then the class's mean is
  mu_k = alpha (sum_bank p_jk x_j) / (sum_bank p_jk) + (1 - alpha) t_k,
and W, b are those of Gaussian discriminant analysis over the residuals of all M images of the bank:
  L = D pinv((M - 1) S + tr(S) I), W_k = L mu_k, b_k = -ln K - mu_k L mu_k / 2;
  a = log_softmax(x W' + b) + scale / (2 M) sum_j (x.x_j) p_j onehot(class of j);
  answer = z exp((a - max a) / scale);
a negative logit is divided instead of multiplied, because multiplying would raise it.
compat = true does what the authors' code does: the image counts twice in its class's mean, an image that
does not enter is scored with the neighbour terms of the last one that did, and negative logits are
multiplied, too.
Online: the answer depends on the images before it, and on their order.
Cost: one image-tower pass; a D^3 inverse and K D^2 for an image that enters; M D per image, M up to bank *
K.
Reference: Zhang et al., Backpropagation-Free Test-Time Adaptation via Probabilistic Gaussian Alignment,
NeurIPS 2025. Verified with the authors' code in f32 (compat).
",
    verified: Verified::AuthorsCode,
    presets: presets::adapt,
    options: Config::OPTIONS,
    ..AdapterSpec::new("adapt", Build::Online(|table| Ok(Box::new(Adapt::new(Config::read(table)?)))))
};

crate::option_group! {
    ($) pub(super) shared {
        include view_selection;
        include data_preset;
        /// Share of the images in a class's mean; the rest is its text feature.
        alpha: f64 = 0.9, range between(0.0, 1.0), from "authors' code";
        /// Temperature of the correction.
        scale: f64 = 20.0, range above(0.0), from "authors' ImageNet value";
    }
}

crate::options! {
    pub struct Config for "adapt" {
        include shared;
        /// Images per class in the bank.
        bank: usize = 16, alias "bank_size", range between(1, 10_000), from "authors' code";
        /// Do what the authors' code does where that is not what is meant.
        compat: bool = false, from "choice";
    }
}

/// Of every class its stored images: mean feature and probabilities of selected views, by entropy.
pub type Banks = Vec<Vec<Item>>;

/// Weighted mean of rows, and a share of the text feature.
pub(super) fn class_mean<'r>(rows: impl Iterator<Item = (f32, &'r [f32])>, text: &[f32], alpha: f64) -> Vec<f32> {
    let (mut sum, mut total) = (vec![0.0f64; text.len()], 0.0);
    for (weight, row) in rows {
        total += f64::from(weight);
        sum.iter_mut().zip(row).for_each(|(s, &x)| *s += f64::from(weight) * f64::from(x));
    }
    let blend =
        |(s, &t): (&f64, &f32)| (alpha * s / total.max(f64::MIN_POSITIVE) + (1.0 - alpha) * f64::from(t)) as f32;
    sum.iter().zip(text).map(blend).collect()
}

/// The features of some items, each with its probability of a class.
pub(super) fn weighted(bank: &[Item], class: usize) -> impl Iterator<Item = (f32, &[f32])> {
    bank.iter().map(move |item| (item.probabilities[class], item.feature.as_slice()))
}

/// Neighbour terms of a feature: for every class the sum over its bank of cosine times own probability.
pub(super) fn neighbours(banks: &Banks, feature: &[f32]) -> Vec<f64> {
    let of_class = |(class, bank): (usize, &Vec<Item>)| {
        bank.iter().map(|item| dot(feature, &item.feature) * f64::from(item.probabilities[class])).sum()
    };
    banks.iter().enumerate().map(of_class).collect()
}

pub(super) fn corrected(
    logits: &[f32],
    scores: &[f32],
    terms: &[f64],
    scale: f64,
    size: usize,
    compat: bool,
) -> Vec<f32> {
    let mut a = to_f64(scores);
    loss::log_softmax(&mut a, scores.len());
    a.iter_mut().zip(terms).for_each(|(a, term)| *a += scale / (2.0 * size.max(1) as f64) * term);
    let top = a.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scaled = |(&z, a): (&f32, &f64)| {
        let factor = ((a - top) / scale).exp();
        (f64::from(z) * if z < 0.0 && !compat { 1.0 / factor } else { factor }) as f32
    };
    logits.iter().zip(&a).map(scaled).collect()
}

#[derive(Clone, Debug, Default)]
pub struct Adapt {
    options: Config,
    pub banks: Banks,
    /// `[K, D]`.
    pub means: Matrix,
    scatter: Scatter,
    /// The classifier of the bank; none before the first image.
    pub discriminant: Option<Discriminant>,
    /// Neighbour terms of the last image that entered, for `compat`.
    last_terms: Vec<f64>,
}

impl Adapt {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    /// Whether an image enters the bank of its class; then everything is estimated again.
    pub fn enter(&mut self, query: &Query, task: &Task) -> bool {
        let class = query.prediction;
        let old = self.banks[class].clone();
        let item = Item::with_probabilities(query);
        if !replace_worst(&mut self.banks[class], self.options.bank, item, |item| item.uncertainty) {
            return false;
        }
        self.scatter.remove(features(&old), self.means.row(class));
        let own = [(query.probabilities[class], query.feature.as_slice())];
        let again = own.into_iter().filter(|_| self.options.compat);
        let mean = class_mean(
            weighted(&self.banks[class], class).chain(again),
            task.text_features().row(class),
            self.options.alpha,
        );
        self.means.row_mut(class).copy_from_slice(&mean);
        self.scatter.add(features(&self.banks[class]), &mean);
        self.discriminant = Some(Discriminant::new(&self.means, &self.scatter.ridge_precision()));
        true
    }

    pub fn logits(&mut self, query: &Query, entered: bool) -> Vec<f32> {
        let Some(discriminant) = &self.discriminant else { return query.logits.clone() };
        if entered || !self.options.compat {
            self.last_terms = neighbours(&self.banks, &query.feature);
        }
        let (o, scores) = (&self.options, discriminant.scores(&query.feature));
        corrected(&query.logits, &scores, &self.last_terms, o.scale, self.scatter.count, o.compat)
    }
}

impl OnlineAdapter for Adapt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        *self = Self::new(self.options.clone());
        self.banks = vec![Vec::new(); task.class_count()];
        self.means = task.text_features().clone();
        self.scatter = Scatter::new(self.means.cols());
        self.last_terms = vec![0.0; task.class_count()];
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let lowest = LowestScore { fraction: self.options.fraction, score: self.options.score };
        let (query, selection) = Query::confident(image.features, &views, lowest);
        let entered = self.enter(&query, task);
        Ok(Decision::from_logits(&self.logits(&query, entered)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_the_bank_and_no_image_counts_twice() {
        let task = task(3, 8, 30.0);
        let mut adapt = ready(Adapt::new(Config { bank: 2, ..Config::default() }), &task);
        for seed in 0..30 {
            adapt.adapt(&task, &ViewSet::new("s", &views(seed, 1, 8))).unwrap();
        }
        let mut expected = Scatter::new(8);
        for (class, bank) in adapt.banks.iter().enumerate().filter(|(_, bank)| !bank.is_empty()) {
            let mean = class_mean(weighted(bank, class), task.text_features().row(class), 0.9);
            assert_eq!(mean, adapt.means.row(class));
            expected.add(features(bank), &mean);
        }
        assert_close(&adapt.scatter.covariance(), &expected.covariance(), 1e-12);
    }

    #[test]
    fn a_class_that_is_spoken_against_loses_whatever_the_sign_of_its_logit() {
        let scores = [0.0, -3.0];
        for logit in [5.0, -5.0] {
            let found = corrected(&[logit; 2], &scores, &[0.0; 2], 2.0, 1, false);
            assert!(found[1] < found[0], "{found:?}");
        }
        let compat = corrected(&[-5.0; 2], &scores, &[0.0; 2], 2.0, 1, true);
        assert!(compat[1] > compat[0]);
    }
}
