//! ADAPT on a set: the bank holds the most certain images of the set, and all images move the means. Shared parts are in
//! `adapt`. Golden cases: `adapt-transductive-*`.

use super::adapt::{Banks, class_mean, corrected, neighbours, shared, weighted};
use super::prelude::*;
use crate::methods::cache::{Item, features};
use crate::methods::gaussian::{Discriminant, Scatter};

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs { default_views: 1, ..Needs::FEATURES },
    summary: "ADAPT on a whole set at once: the bank is made of the most certain images of the set",
    docs: "\
What: adapt for a set. The bank of a class holds its `bank` most certain images; its mean is
  mu_k = alpha (sum_bank p_jk x_j + sum_all p_ik x_i) / (sum_bank p_jk + sum_all p_ik) + (1 - alpha) t_k
if it has any, else t_k; images of the bank count twice, which weights certain ones. Everything else as
adapt, each image with its own neighbour terms. Entropies and probabilities are those of the mean logits.
Batch: an answer depends on all images of the set. `batch` images of a stream are a set; 0 is the whole
stream.
Cost: one image-tower pass; one D^3 inverse per set; M D per image, M up to bank * K.
Reference: Zhang et al., Backpropagation-Free Test-Time Adaptation via Probabilistic Gaussian Alignment,
NeurIPS 2025. Verified with the authors' code in f32 (compat).
",
    verified: Verified::AuthorsCode,
    presets: presets::adapt,
    options: AdaptSet::OPTIONS,
    ..AdapterSpec::new("adapt-transductive", Build::Batch(|table| Ok(Box::new(AdaptSet::read(table)?))))
};

crate::options! {
    pub struct AdaptSet for "adapt-transductive" {
        include shared;
        /// Images per class in the bank.
        bank: usize = 6, alias "bank_size", range between(1, 10_000), from "authors' code";
        /// Images of a set; 0 for the whole stream.
        batch: usize = 0, from "authors' code";
        /// Multiply negative logits, too, as the authors' code does.
        compat: bool = false, from "choice";
    }
}

struct Member {
    /// With entropy and probabilities of the mean logits.
    query: Query,
    selection: Selection,
    views: ViewLogits,
}

#[derive(Clone, Debug)]
pub struct SetAnswers {
    /// Corrected.
    pub logits: Vec<Vec<f32>>,
    /// Mean logits.
    pub zero_shot: Vec<Vec<f32>>,
    /// Mean features of the selected views.
    pub features: Vec<Vec<f32>>,
    pub entropies: Vec<f32>,
    /// Class means `[K, D]`.
    pub means: Matrix,
    pub discriminant: Discriminant,
    /// Images per class in the bank.
    pub counts: Vec<usize>,
}

impl AdaptSet {
    fn members(&self, task: &Task, images: &[ViewSet<'_>]) -> Vec<Member> {
        let lowest = LowestScore { fraction: self.fraction, score: self.score };
        let member = |image: &ViewSet<'_>| {
            let views = ViewLogits::of(task, image);
            let (query, selection) = Query::confident(image.features, &views, lowest);
            let (probabilities, entropy) = (softmax_f32(&query.logits), entropy(&query.logits));
            Member { query: Query { probabilities, entropy, ..query }, selection, views }
        };
        images.iter().map(member).collect()
    }

    fn banks(&self, members: &[Member], classes: usize) -> Banks {
        let entropies: Vec<f32> = members.iter().map(|m| m.query.entropy).collect();
        let mut banks: Banks = vec![Vec::new(); classes];
        for query in ranking(&entropies).into_iter().map(|at| &members[at].query) {
            let bank = &mut banks[query.prediction];
            if bank.len() < self.bank {
                bank.push(Item::with_probabilities(query));
            }
        }
        banks
    }

    fn means(&self, task: &Task, members: &[Member], banks: &Banks) -> Matrix {
        let mut means = task.text_features().clone();
        for (class, bank) in banks.iter().enumerate().filter(|(_, bank)| !bank.is_empty()) {
            let all = members.iter().map(|m| (m.query.probabilities[class], m.query.feature.as_slice()));
            let mean = class_mean(weighted(bank, class).chain(all), task.text_features().row(class), self.alpha);
            means.row_mut(class).copy_from_slice(&mean);
        }
        means
    }

    fn estimate(&self, task: &Task, members: &[Member]) -> SetAnswers {
        let banks = self.banks(members, task.class_count());
        let means = self.means(task, members, &banks);
        let mut scatter = Scatter::new(means.cols());
        for (bank, mean) in banks.iter().zip(means.iter_rows()) {
            scatter.add(features(bank), mean);
        }
        let discriminant = Discriminant::new(&means, &scatter.ridge_precision());
        let answer = |query: &Query| {
            let (scores, terms) = (discriminant.scores(&query.feature), neighbours(&banks, &query.feature));
            corrected(&query.logits, &scores, &terms, self.scale, scatter.count, self.compat)
        };
        let queries = || members.iter().map(|m| &m.query);
        SetAnswers {
            logits: queries().map(answer).collect(),
            zero_shot: queries().map(|query| query.logits.clone()).collect(),
            features: queries().map(|query| query.feature.clone()).collect(),
            entropies: queries().map(|query| query.entropy).collect(),
            counts: banks.iter().map(Vec::len).collect(),
            means,
            discriminant,
        }
    }

    pub fn explain(&self, task: &Task, images: &[ViewSet<'_>]) -> SetAnswers {
        self.estimate(task, &self.members(task, images))
    }
}

impl BatchAdapter for AdaptSet {
    fn adapt(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        images.iter().try_for_each(|image| image.check(task, &SPEC))?;
        let members = self.members(task, images);
        let logits = self.estimate(task, &members).logits;
        let answer =
            |(m, logits): (Member, Vec<f32>)| Decision::from_logits(&logits).answer(m.views.explain(m.selection));
        Ok(members.into_iter().zip(logits).map(answer).collect())
    }

    fn set_size(&self) -> usize {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bank_holds_the_most_certain_and_the_order_of_the_set_does_not_matter() {
        let task = task(3, 8, 30.0);
        let images: Vec<Matrix> = (0..25).map(|seed| views(seed, 1, 8)).collect();
        let adapter = AdaptSet { bank: 2, ..AdaptSet::default() };
        let sets: Vec<ViewSet<'_>> = images.iter().map(|m| ViewSet::new("s", m)).collect();
        let found = adapter.explain(&task, &sets);
        assert!(found.counts.iter().all(|&count| count <= 2) && found.counts.contains(&2));
        let forward = adapter.adapt(&task, &sets).unwrap();
        let backward: Vec<ViewSet<'_>> = sets.iter().rev().copied().collect();
        for (a, b) in forward.iter().zip(adapter.adapt(&task, &backward).unwrap().iter().rev()) {
            assert_eq!(a.prediction, b.prediction);
            assert_close(&a.probabilities, &b.probabilities, 1e-4);
        }
    }
}
