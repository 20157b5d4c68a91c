//! ZERO: confident views vote at temperature zero. Golden cases: `zero-*`, `zero-features-*`.

use super::prelude::*;
use crate::methods::aggregate::{Tie, TieFallback, Vote, break_tie, vote};
use half::f16;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "the most confident views vote at temperature zero; ties go to the discarded views",
    docs: "\
What: the int(fraction * V) views of lowest entropy vote with a softmax of their cosines at \"zero\"
temperature:
  votes_k = sum_selected softmax(f_v . T / eps)_k
Several classes with exactly the most votes: the most confident discarded view that votes for one of them
decides.
Cost: one image-tower pass over the views; no gradient, no state.
Reference: Farina et al., Frustratingly Easy Test-Time Adaptation of Vision-Language Models, NeurIPS 2024.
",
    verified: Verified::AuthorsCode,
    options: Zero::OPTIONS,
    ..AdapterSpec::new("zero", Build::Episodic(|table| Ok(Box::new(Zero::read(table)?))))
};

crate::choices! {
    /// How cold zero temperature is.
    pub enum Temperature {
        /// Whole votes.
        Hard = "hard",
        /// softmax(l / 2^-23), the original's arithmetic in f32: practically whole votes.
        F32Eps = "f32-eps",
        /// softmax(l / 2^-10) of cosines rounded to f16, what the original does under autocast: votes of undecided views
        /// are soft, so ties almost never happen.
        Fp16Eps = "fp16-eps",
    }
}

crate::options! {
    pub struct Zero for "zero" {
        include view_selection { fraction = 0.3, from "authors' code; the paper has 0.1, as TPT and STSS"; };
        /// How the selected views decide; temperature and ties concern the majority alone.
        vote: Vote = Vote::Majority, alias "pool", from "paper";
        /// How cold the zero temperature of the votes is.
        temperature: Temperature = Temperature::Hard, from "paper";
        /// What decides a tie when no discarded view votes for a tied class.
        tie_fallback: TieFallback = TieFallback::Intended, from "paper";
    }
}

impl Zero {
    /// The votes of the selected views on `cosines` (`[V, K]`, not scaled), ties broken.
    fn vote(&self, cosines: &Matrix, selection: &Selection) -> Decision {
        let mut votes = vec![0.0f64; cosines.cols()];
        for &view in &selection.selected {
            let row = cosines.row(view);
            match self.temperature {
                Temperature::Hard => votes[argmax(row)] += 1.0,
                Temperature::F32Eps => add(&mut votes, row.iter().map(|&l| l / f32::EPSILON)),
                Temperature::Fp16Eps => {
                    add(&mut votes, row.iter().map(|&l| f16::from_f32(l).to_f32() / f16::EPSILON.to_f32()));
                }
            }
        }
        let winner = break_tie(&mut votes, cosines, selection, self.tie_fallback);
        Decision::from_votes(&votes, winner)
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
        let cosines = task.cosines(image.features);
        let views = ViewLogits::from_logits(scaled(cosines.clone(), task.logit_scale));
        let selection = LowestScore { fraction: self.fraction, score: self.score }.select(&views);
        let ballot = match self.vote {
            Vote::Majority => self.vote(&cosines, &selection),
            other => vote(other, Tie::DiscardedViews, &views.logits, &selection),
        };
        Ok(ballot.answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(temperature: Temperature, cosines: &Matrix, kept: usize) -> Decision {
        let ranking: Vec<usize> = (0..cosines.rows()).collect();
        let selection = Selection { scores: vec![0.0; ranking.len()], selected: ranking[..kept].to_vec(), ranking };
        Zero { temperature, ..Zero::default() }.vote(cosines, &selection)
    }

    #[test]
    fn f16_votes_are_soft_where_f32_votes_are_whole() {
        let cosines = Matrix::from_vec(2, 2, vec![0.250, 0.249, 0.20, 0.21]);
        assert_eq!(ballot(Temperature::F32Eps, &cosines, 1).class_scores, [1.0, 0.0]);
        let soft = ballot(Temperature::Fp16Eps, &cosines, 1).class_scores;
        assert!(soft[1] > 0.2 && soft[0] > soft[1], "{soft:?}");
        // One vote each: in f32 a tie (the selected views decide), in f16 the surer view wins.
        assert_eq!(ballot(Temperature::Fp16Eps, &cosines, 2).prediction, 1);
        assert_eq!(ballot(Temperature::Hard, &cosines, 2).prediction, 0);
    }
}
