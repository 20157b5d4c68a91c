//! Any-time views: views are encoded in rounds, and no more of them once they are unlikely to change the answer.
//!
//! After a round the method answers from the views so far. It stops when the selected views are certain of that answer (the mean
//! of their probabilities reaches the threshold) and the round before gave the same one. Views are drawn one by one by their
//! own number, so a run that stops early has seen the first views of the full run, and nothing else.

use super::ViewFeatures;
use crate::methods::probability::softmax;
use crate::methods::{Adapter, Decision, Kind, Needs, Task, ViewSet};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::ops::Range;

/// The setting of any-time views: the mean probability of the answer over the selected views at which no more are encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Certainty {
    /// A default that goes with the model's temperature.
    Usual,
    /// This probability.
    At(f64),
}

impl From<f64> for Certainty {
    fn from(probability: f64) -> Self {
        Self::At(probability)
    }
}

impl Certainty {
    /// For CLIP's logit scale of 100: chosen on 500 photos, tested on 500 others (docs/research/real-photos.md).
    const CLIP: f64 = 0.7;
    /// Below it, probabilities are far from 1 even where they are right: the power of scale / 100 that gives 0.35 at the scale
    /// of the embedded models (about 14), which was calibrated on their validation images. docs/guide/speed.md has both curves.
    const POWER: f64 = 0.349;

    /// The probability for a model of this temperature.
    pub fn at(self, logit_scale: f32) -> f64 {
        match self {
            Self::At(probability) => probability,
            Self::Usual => {
                let share = (f64::from(logit_scale) / 100.0).clamp(0.0, 1.0);
                (100.0 * Self::CLIP * share.powf(Self::POWER)).round() / 100.0
            }
        }
    }
}

/// The rule of any-time views.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    certainty: Certainty,
    explain: bool,
}

impl Rounds {
    /// With this threshold, in 0..1.
    pub fn new(certainty: Certainty) -> Result<Self> {
        match certainty {
            Certainty::At(p) if !(p > 0.0 && p < 1.0) => {
                Err(Error::config("certainty", format!("expected a probability between 0 and 1, found {p}")))
            }
            certainty => Ok(Self { certainty, explain: false }),
        }
    }

    /// The same with the score of every view in the answer, or not.
    #[must_use]
    pub fn explaining(self, explain: bool) -> Self {
        Self { explain, ..self }
    }

    /// With this threshold, if there is one, for a method that can be answered in rounds.
    pub fn checked(certainty: Option<Certainty>, method: &str, kind: Kind, needs: &Needs) -> Result<Option<Self>> {
        let Some(certainty) = certainty else { return Ok(None) };
        Self::check(method, kind, needs)?;
        Self::new(certainty).map(Some)
    }

    /// Whether a method can be answered in rounds: one that learns from a stream or a set cannot, and one that runs a tower
    /// for every answer would pay for each round.
    pub fn check(method: &str, kind: Kind, needs: &Needs) -> Result<()> {
        let runs_a_tower = needs.pixels || needs.generated || (needs.text_tower && !needs.bank);
        if kind == Kind::Episodic && !runs_a_tower {
            return Ok(());
        }
        let reason = "any-time views are for methods that only select or average the views of one image; this one \
                      learns from them. Give it a number of views";
        Err(Error::method(method, reason))
    }

    /// Views after the next round: 1, 4, 8, 16, ... up to `total`.
    pub fn next(seen: usize, total: usize) -> usize {
        if seen == 1 { 4 } else { 2 * seen }.min(total)
    }

    /// Answers from as few of `total` views as suffice; `encode` gives the features of a range of them. Returns the answer and the views
    /// that were used.
    pub fn answer(
        &self,
        adapter: &dyn Adapter,
        task: &Task,
        id: &str,
        total: usize,
        mut encode: impl FnMut(Range<usize>) -> Result<ViewFeatures>,
    ) -> Result<(Decision, ViewFeatures)> {
        let enough = self.certainty.at(task.logit_scale);
        let mut views = encode(0..1)?;
        let mut before = None;
        loop {
            let seen = views.unit.rows();
            let image = ViewSet { norms: &views.norms, explain: self.explain, ..ViewSet::new(id, &views.unit) };
            let decision = adapter.adapt(task, &image)?;
            let is_repeated = before.is_none_or(|class| class == decision.prediction);
            if seen >= total || (is_repeated && certainty(task, &views.unit, &decision) >= enough) {
                return Ok((decision, views));
            }
            before = Some(decision.prediction);
            views.append(&encode(seen..Self::next(seen, total))?);
        }
    }
}

/// Mean probability of the answer over the selected views, or over all where none were selected. Not the method's own
/// probability: hard votes are always certain.
fn certainty(task: &Task, views: &Matrix, decision: &Decision) -> f64 {
    let logits = match &decision.explanation.selected[..] {
        [] => task.logits(views),
        selected => task.logits(&views.select_rows(selected)),
    };
    let sum: f64 = logits.iter_rows().map(|row| softmax(row)[decision.prediction]).sum();
    sum / logits.rows() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Registry;

    /// Two classes along the axes; view `i` points at `angles[i]` degrees from the first.
    fn answer(method: &str, certainty: f64, angles: &[f32]) -> (usize, usize) {
        let text = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]);
        let task = Task::new(["a".to_owned(), "b".to_owned()], text, 10.0, 0).unwrap();
        let spec = Registry::builtin().adapter(method).unwrap();
        let crate::methods::AnyAdapter::Episodic(mut adapter) = spec.build(&toml::Table::new()).unwrap() else {
            panic!("episodic")
        };
        adapter.prepare(&task).unwrap();
        let encode = |range: Range<usize>| {
            let data = angles[range].iter().flat_map(|a| [a.to_radians().cos(), a.to_radians().sin()]);
            ViewFeatures::new(Matrix::from_vec(data.clone().count() / 2, 2, data.collect()))
        };
        let rounds = Rounds::new(certainty.into()).unwrap();
        let (decision, views) = rounds.answer(adapter.as_ref(), &task, "x", angles.len(), encode).unwrap();
        (decision.prediction, views.unit.rows())
    }

    #[test]
    fn a_certain_plain_view_ends_at_once_and_an_uncertain_one_goes_on() {
        assert_eq!(answer("zero", 0.88, &[5.0; 64]), (0, 1));
        assert_eq!(answer("zero", 0.88, &[44.0; 64]), (0, 64));
        // The plain view is undecided, the others are sure: the second round differs from the first, the third agrees.
        let mut angles = [85.0; 64];
        angles[0] = 44.0;
        assert_eq!(answer("zero", 0.88, &angles), (1, 8));
    }

    #[test]
    fn the_usual_certainty_goes_with_the_temperature() {
        // The two calibrated points, SigLIP's scale, and between them.
        assert_eq!([13.7, 100.0, 117.0, 40.0].map(|scale| Certainty::Usual.at(scale)), [0.35, 0.7, 0.7, 0.51]);
        assert_eq!(Certainty::from(0.5).at(14.0), 0.5);
    }

    #[test]
    fn hard_votes_are_not_taken_for_certainty() {
        // Every view votes for the first class, none is sure of it.
        assert_eq!(answer("zero", 0.88, &[40.0; 16]), (0, 16));
        assert_eq!(answer("zero", 0.6, &[40.0; 16]), (0, 1));
    }

    #[test]
    fn an_impossible_threshold_and_methods_that_learn_are_refused() {
        for bad in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(Rounds::new(bad.into()).is_err(), "{bad}");
        }
        let refused = |name: &str| {
            let spec = Registry::builtin().adapter(name).unwrap();
            let adapter = spec.build(&toml::Table::new()).unwrap();
            Rounds::check(name, adapter.kind(), &spec.needs).is_err()
        };
        for name in ["stss", "zero", "vte", "mta", "zero-shot"] {
            assert!(!refused(name), "{name}");
        }
        for name in ["tpt", "tda", "sar", "transclip"] {
            assert!(refused(name), "{name}");
        }
    }
}
