//! R-TPT: TPT on the mean of entropies, and an answer that weights views by how much they resemble the others.
//! Golden cases: `r-tpt-*`.

use super::prelude::*;
use crate::methods::update::{Tuned, tune_on};

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["rtpt"],
    needs: Needs::CONTEXT,
    summary: "TPT on the mean of entropies, then a vote weighted by how much a view resembles the others",
    docs: "\
What: the int(fraction * V) views of lowest entropy give the loss, the mean of their entropies (not the
entropy of their mean); AdamW on the context. All views answer together, with the tuned prompt:
  loss = mean_selected H(softmax(s f_v T'))
  answer = sum_v w_v z_v, w = softmax(r / temperature)
r_v is the mean of the `neighbours` largest cosines of view v with the other views. Made for attacked images;
helps on clean ones, too.
Cost: as tpt.
Reference: Sheng et al., R-TPT: Improving Adversarial Robustness of Vision-Language Models through Test-Time
Prompt Tuning, CVPR 2025.
",
    verified: Verified::AuthorsCode,
    options: RTpt::OPTIONS,
    ..AdapterSpec::new("r-tpt", Build::Episodic(|table| Ok(Box::new(RTpt::read(table)?))))
};

crate::options! {
    pub struct RTpt for "r-tpt" {
        include view_selection;
        include adamw_steps;
        /// Cosines averaged into a view's reliability.
        neighbours: usize = 20, range at_least(1), from "authors' code";
        /// Temperature of the weights.
        temperature: f64 = 0.01, range above(0.0), from "authors' code";
        /// Leave out cosines of 1 and more instead of the view itself, as the authors' code does: a view whose own cosine is
        /// rounded below 1 then counts as its own neighbour.
        compat: bool = false, from "choice: the other views are meant";
    }
}

/// How much every view resembles its nearest others: the mean of its largest cosines. `in_own_list` says which views count as
/// their own neighbours.
pub fn resemblance(features: &Matrix, neighbours: usize, in_own_list: &[bool]) -> Vec<f64> {
    let cosines = logits(features, features, 1.0);
    let of_view = |(view, &with_itself): (usize, &bool)| {
        let mut others = cosines.row(view).to_vec();
        if !with_itself {
            others.remove(view);
        }
        others.sort_by(|a, b| b.total_cmp(a));
        others.truncate(neighbours);
        others.iter().map(|&c| f64::from(c)).sum::<f64>() / others.len().max(1) as f64
    };
    in_own_list.iter().enumerate().map(of_view).collect()
}

pub fn weights(resemblance: &[f64], temperature: f64) -> Vec<f64> {
    let scores: Vec<f32> = resemblance.iter().map(|s| (s / temperature) as f32).collect();
    softmax(&scores)
}

/// Which views the authors' code keeps in their own lists: those whose f32 inner product with themselves is below 1.
fn rounded_below_one(features: &Matrix) -> Vec<bool> {
    let own = |row: &[f32]| row.iter().map(|x| x * x).sum::<f32>() < 1.0;
    features.iter_rows().map(own).collect()
}

impl RTpt {
    /// The tuned prompt for an image, and its selection.
    pub fn tune(&self, task: &Task, features: &Matrix, views: &ViewLogits) -> Result<(Tuned, Selection)> {
        let selection = LowestScore { fraction: self.fraction, score: self.score }.select(views);
        let kept = features.select_rows(&selection.selected);
        let adamw = AdamW::with_decay(self.lr, self.weight_decay);
        Ok((tune_on(task, Self::NAME, &kept, mean_entropy, self.steps, adamw)?, selection))
    }
}

/// The sum of the rows of `[V, K]` logits, each with its weight.
pub fn weighted_sum(logits: &Matrix, weights: &[f64]) -> Vec<f32> {
    let mut sum = vec![0.0f64; logits.cols()];
    for (row, weight) in logits.iter_rows().zip(weights) {
        sum.iter_mut().zip(row).for_each(|(s, &z)| *s += weight * f64::from(z));
    }
    sum.into_iter().map(|s| s as f32).collect()
}

impl Adapter for RTpt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        task.start_pass(RTpt::NAME).map(|_| ())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let (tuned, selection) = self.tune(task, image.features, &views)?;
        let z = logits(image.features, &tuned.text_features, task.logit_scale);
        let own = if self.compat { rounded_below_one(image.features) } else { vec![false; z.rows()] };
        let weights = weights(&resemblance(image.features, self.neighbours, &own), self.temperature);
        Ok(Decision::from_logits(&weighted_sum(&z, &weights)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_unlike_the_others_counts_least() {
        let features = Matrix::from_vec(4, 2, vec![1.0, 0.0, 0.98, 0.199, 0.95, 0.312, -0.6, 0.8]);
        let of =
            |features: &Matrix, count, own| weights(&resemblance(features, count, &vec![own; features.rows()]), 0.01);
        let weights = of(&features, 2, false);
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(weights[3] < 1e-6, "{weights:?}");
        assert_eq!(of(&features.select_rows(&[0]), 20, false), [1.0]);
        // As its own neighbour, the view that resembles nobody has a cosine of 1 in its list.
        assert!(of(&features, 1, true)[3] > 0.2);
    }
}
