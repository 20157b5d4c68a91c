//! R-TPT: TPT on the mean of entropies, and an answer that weights views by how much they resemble the others.
//!
//! `loss = mean_{v kept} H(softmax(tau f_v T'))`; `w = softmax(s / 0.01)`, `s_v` the mean of the 20 largest cosines of view `v` with the
//! others; answer `sum_v w_v z_v` with the tuned prompt.

use super::groups::{adamw_steps, views_kept};
use super::tpt::adamw;
use crate::Result;
use crate::methods::aggregate::Ballot;
use crate::methods::probability::{logits, mean_entropy, softmax};
use crate::methods::select::{LowestEntropy, Selector, ViewLogits};
use crate::methods::update::{on_text, tune_context};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, ViewSet};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "r-tpt",
    aliases: &["rtpt"],
    needs: Needs::CONTEXT,
    summary: "TPT on the mean of entropies, then a vote weighted by how much a view resembles the others",
    docs: "\
What: the int(fraction * V) views of lowest entropy give the loss, the mean of their entropies (not the
entropy of their mean); AdamW on the context. All views answer together: weights softmax(s / temperature), s
the mean of the neighbours largest cosines of a view with the other views. Made for attacked images; helps
on clean ones, too.
Cost: as tpt.
Reference: Sheng et al., R-TPT: Improving Adversarial Robustness of Vision-Language Models through Test-Time
Prompt Tuning, CVPR 2025.
",
    build: Build::Episodic(|table| Ok(Box::new(RTpt { options: Config::read(table)? }))),
    options: Config::OPTIONS,
};

crate::options! {
    /// Options of R-TPT.
    pub struct Config for "r-tpt" {
        include views_kept;
        include adamw_steps;
        /// Cosines averaged into a view's reliability.
        neighbours: usize = 20, range at_least(1), from "authors' code";
        /// Temperature of the weights.
        temperature: f64 = 0.01, range above(0.0), from "authors' code";
    }
}

/// The weight of every view: how much it resembles its nearest others.
fn reliability(features: &Matrix, neighbours: usize, temperature: f64) -> Vec<f64> {
    let cosines = logits(features, features, 1.0);
    let scores: Vec<f32> = (0..features.rows())
        .map(|view| {
            let mut others = cosines.row(view).to_vec();
            others.remove(view);
            others.sort_by(|a, b| b.total_cmp(a));
            others.truncate(neighbours);
            let mean = others.iter().map(|&c| f64::from(c)).sum::<f64>() / others.len().max(1) as f64;
            (mean / temperature) as f32
        })
        .collect();
    softmax(&scores)
}

/// The adapter.
#[derive(Clone, Debug)]
pub struct RTpt {
    options: Config,
}

impl Adapter for RTpt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        task.start_pass(Config::NAME).map(|_| ())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let o = &self.options;
        let views = ViewLogits::of(task, image);
        let selection = LowestEntropy { fraction: o.fraction }.select(image.features, &views);
        let kept = image.features.select_rows(&selection.selected);
        let objective = |text: &Matrix| on_text(&kept, text, task.logit_scale, mean_entropy);
        let (start, first) = (task.start_context(Config::NAME)?, task.start_pass(Config::NAME)?);
        let mut optimiser = adamw(o.lr, o.weight_decay);
        let tuned = tune_context(task.text_side(Config::NAME)?, start, first, &[&objective], o.steps, &mut optimiser)?;
        let z = logits(image.features, &tuned.text_features, task.logit_scale);
        let mut sum = vec![0.0f64; z.cols()];
        for (row, weight) in z.iter_rows().zip(reliability(image.features, o.neighbours, o.temperature)) {
            sum.iter_mut().zip(row).for_each(|(s, &z)| *s += weight * f64::from(z));
        }
        let sum: Vec<f32> = sum.into_iter().map(|s| s as f32).collect();
        Ok(Ballot::from_logits(&sum).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_unlike_the_others_counts_least() {
        let features = Matrix::from_vec(4, 2, vec![1.0, 0.0, 0.98, 0.199, 0.95, 0.312, -0.6, 0.8]);
        let weights = reliability(&features, 2, 0.01);
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(weights[3] < 1e-6, "{weights:?}");
        assert_eq!(reliability(&features.select_rows(&[0]), 20, 0.01), [1.0]);
    }
}
