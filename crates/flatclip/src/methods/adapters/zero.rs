//! ZERO: confident views vote at temperature zero.
//!
//! `l_v = <f_v, t_k>` (not scaled); keep the `int(gamma V)` views of lowest entropy of `softmax(l_v / tau)`, `tau = 1 / exp(logit_scale)`;
//! `votes = sum_kept softmax(l_v / eps)`; a tie goes to the first discarded view, by confidence, that votes for a tied class.
//! Golden cases: `zero-*`, `zero-features-*`.

use crate::Result;
use crate::methods::aggregate::{Ballot, TieFallback, break_tie};
use crate::methods::options::Options;
use crate::methods::probability::{argmax, logits, softmax};
use crate::methods::select::{LowestEntropy, Selection, Selector, ViewLogits};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, ViewSet};
use flatclip_tensor::Matrix;
use half::f16;
use serde::{Deserialize, Serialize};

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "zero",
    aliases: &[],
    needs: Needs::FEATURES,
    summary: "the most confident views vote at temperature zero; ties go to the discarded views",
    docs: "\
What: rank the views by entropy, keep int(gamma * V), let each vote with a softmax of its cosines at \"zero\" temperature, sum.
Several classes with exactly the most votes: the most confident discarded view that votes for one of them decides.
Cost: one image-tower pass over the views; no gradient, no state.
Options:
  gamma = 0.3              fraction kept. 0.3 is what the authors' code ships today; 0.1 is the paper's value and makes ZERO the
                           same selection as TPT and as STSS at radius 0. A baseline is run as its authors ship it.
  temperature = \"hard\"     hard: whole votes. f32-eps: softmax(l / 2^-23), the original's arithmetic in f32, practically whole
                           votes. fp16-eps: softmax(l / 2^-10) of cosines rounded to f16, what the original does under autocast:
                           votes of undecided views are soft, so ties almost never happen.
  tie_fallback = \"intended\"  when no discarded view votes for a tied class. intended: the tied class with the largest logit of the
                           most confident discarded view. original: reproduces an index slip of the original code.
Reference: Farina et al., Frustratingly Easy Test-Time Adaptation of Vision-Language Models, NeurIPS 2024.
",
    build: Build::Episodic(|table| Ok(Box::new(Zero::new(Config::read(table)?)))),
    defaults: Config::table,
};

/// How cold zero temperature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Temperature {
    /// Whole votes.
    Hard,
    /// `2^-23`, the epsilon of f32.
    F32Eps,
    /// `2^-10` on cosines rounded to f16.
    Fp16Eps,
}

/// Options of ZERO.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Fraction of the views to keep.
    pub gamma: f64,
    /// How cold the vote is.
    pub temperature: Temperature,
    /// The last resort of the tie rule.
    pub tie_fallback: TieFallback,
}

impl Default for Config {
    fn default() -> Self {
        Self { gamma: 0.3, temperature: Temperature::Hard, tie_fallback: TieFallback::Intended }
    }
}

impl Options for Config {
    const NAME: &'static str = "zero";
    fn check(&self) -> Result<()> {
        Self::require_fraction("gamma", self.gamma)
    }
}

/// The adapter.
#[derive(Clone, Debug)]
pub struct Zero {
    options: Config,
}

impl Zero {
    /// With these options.
    pub fn new(options: Config) -> Self {
        Self { options }
    }

    /// The votes of the kept views on `cosines` (`[V, K]`, not scaled), ties broken.
    fn vote(&self, cosines: &Matrix, selection: &Selection) -> Ballot {
        let mut votes = vec![0.0f64; cosines.cols()];
        for &view in &selection.selected {
            let row = cosines.row(view);
            match self.options.temperature {
                Temperature::Hard => votes[argmax(row)] += 1.0,
                Temperature::F32Eps => add(&mut votes, row.iter().map(|&l| l / f32::EPSILON)),
                Temperature::Fp16Eps => {
                    add(&mut votes, row.iter().map(|&l| f16::from_f32(l).to_f32() / f16::EPSILON.to_f32()));
                }
            }
        }
        let winner = break_tie(&mut votes, cosines, selection, self.options.tie_fallback);
        Ballot::from_votes(&votes, winner)
    }
}

fn add(votes: &mut [f64], cold: impl Iterator<Item = f32>) {
    let cold: Vec<f32> = cold.collect();
    // The sum is rounded to f32 as the original's is: equal votes must stay exactly equal.
    votes.iter_mut().zip(softmax(&cold)).for_each(|(v, p)| *v = f64::from((*v + p) as f32));
}

impl Adapter for Zero {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let selection = LowestEntropy { fraction: self.options.gamma }.select(image.features, &views);
        let cosines = logits(image.features, &task.text_features, 1.0);
        Ok(self.vote(&cosines, &selection).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(temperature: Temperature, cosines: &Matrix, kept: usize) -> Ballot {
        let ranking: Vec<usize> = (0..cosines.rows()).collect();
        let selection = Selection { scores: vec![0.0; ranking.len()], selected: ranking[..kept].to_vec(), ranking };
        Zero::new(Config { temperature, ..Config::default() }).vote(cosines, &selection)
    }

    #[test]
    fn f16_votes_are_soft_where_f32_votes_are_whole() {
        let cosines = Matrix::from_vec(2, 2, vec![0.250, 0.249, 0.20, 0.21]);
        assert_eq!(ballot(Temperature::F32Eps, &cosines, 1).class_scores, [1.0, 0.0]);
        let soft = ballot(Temperature::Fp16Eps, &cosines, 1).class_scores;
        assert!(soft[1] > 0.2 && soft[0] > soft[1], "{soft:?}");
        // One vote each: in f32 a tie (the kept views are asked again), in f16 the surer view wins.
        assert_eq!(ballot(Temperature::Fp16Eps, &cosines, 2).prediction, 1);
        assert_eq!(ballot(Temperature::Hard, &cosines, 2).prediction, 0);
    }
}
