//! A method of one's own, registered by the caller: keeps random views and lets them vote. It then has options with ranges,
//! appears in evaluations and sweeps, and runs on images as well as on features.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use flatclip::methods::aggregate::{Tie, Vote, vote};
use flatclip::methods::select::{Selection, ViewLogits, keep_count};
use flatclip::methods::{Adapter, AdapterSpec, Build, Decision, Task, ViewSet};
use flatclip::rng::Stream;
use flatclip::{Classifier, Matrix, Registry, Result, TextFeatures, ViewFeatures};

flatclip::options! {
    /// Options of the random choice.
    pub struct Config for "random-views" {
        /// Fraction of the views to select.
        fraction: f64 = 0.5, range fraction, from "choice";
    }
}

struct RandomViews(Config);

impl Adapter for RandomViews {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        let views = ViewLogits::new(image.features, task.text_features(), task.logit_scale);
        let mut order: Vec<usize> = (0..image.features.rows()).collect();
        Stream::new(task.seed, &["random-views", image.id]).shuffle(&mut order);
        let selected = order[..keep_count(self.0.fraction, order.len())].to_vec();
        let selection = Selection { scores: views.entropies.clone(), ranking: order, selected };
        Ok(vote(Vote::Majority, Tie::MeanProbability, &views.logits, &selection).answer(views.explain(selection)))
    }
}

static SPEC: AdapterSpec = AdapterSpec {
    summary: "keeps random views",
    docs: "A floor for methods that select: how much of their gain is the vote?",
    options: Config::OPTIONS,
    ..AdapterSpec::new("random-views", Build::Episodic(|table| Ok(Box::new(RandomViews(Config::read(table)?)))))
};

pub fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::builtin().with(&SPEC)?;
    let text = TextFeatures::new(Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]), 10.0)?.named(["cat", "dog"])?;
    let views = ViewFeatures::new(Matrix::from_vec(4, 2, vec![0.9, 0.1, 0.8, 0.3, 0.2, 0.9, 0.7, 0.2]))?;
    let classifier =
        Classifier::from_text_features(text).registry(registry).method("random-views").set("fraction", 0.75)?;
    let answer = classifier.build()?.answer(&views)?;
    println!("{}, decided by views {:?}", answer.label(), answer.explanation().selected);
    Ok(())
}
