//! VTE: the mean feature of the most confident views, against the text features. Golden cases: `vte-*`.

use super::prelude::*;
use crate::methods::aggregate::{Tie, Vote, vote};

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "mean image feature of the most confident views; the baseline to print next to ZERO",
    docs: "\
What: keep the int(fraction * V) views of lowest entropy, g = their mean feature; logits = exp(logit_scale)
<g, t_k>.
The mean is shorter than 1, the more so the less the views agree, and is not normalised again: the class is
the same, the confidence smaller.
Cost: one image-tower pass over the views; nothing else that can be measured.
Use it with an ensemble of templates to have the published method.
Reference: Doebler et al., A Lost Opportunity for Vision-Language Models, ECCV workshops 2024.
",
    verified: Verified::AuthorsCode,
    options: Vte::OPTIONS,
    ..AdapterSpec::new("vte", Build::Episodic(|table| Ok(Box::new(Vte::read(table)?))))
};

crate::options! {
    pub struct Vte for "vte" {
        include view_selection { fraction = 0.1, from "paper, and TPT's value"; };
        /// How the selected views decide; the logits of a mean feature are the mean logits.
        vote: Vote = Vote::MeanLogits, alias "pool", from "paper";
        /// Normalise the mean feature again: the same class, more confidence.
        unit_mean: bool = false, from "authors' code";
    }
}

impl Adapter for Vte {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let selection = LowestScore { fraction: self.fraction, score: self.score }.select(&views);
        if self.vote != Vote::MeanLogits {
            let ballot = vote(self.vote, Tie::MeanProbability, &views.logits, &selection);
            return Ok(ballot.answer(views.explain(selection)));
        }
        let mean = mean_row(image.features, &selection.selected);
        let mut mean = Matrix::from_vec(1, mean.len(), mean);
        if self.unit_mean {
            normalise_rows(&mut mean);
        }
        let ballot = Decision::from_logits(task.logits(&mean).row(0));
        Ok(ballot.answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_mean_answers_the_same_with_more_confidence() {
        let task = task(4, 16, 30.0);
        for seed in 0..8 {
            let image = views(seed, 20, 16);
            let answer = |unit_mean| {
                let options = Vte { unit_mean, ..Vte::default() };
                options.adapt(&task, &ViewSet::new("s", &image)).unwrap()
            };
            let (plain, unit) = (answer(false), answer(true));
            assert_eq!(plain.prediction, unit.prediction);
            assert!(plain.probabilities[plain.prediction] <= unit.probabilities[unit.prediction]);
        }
    }
}
