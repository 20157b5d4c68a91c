//! ADTE along a stream: our form of it, not the authors'. The exponents come from the images so far.

use super::adte::{self, ClassBank, class_exponents};
use super::prelude::*;

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["adte-online"],
    summary: "adte along a stream (ours): exponents from the images so far, entropy until enough are stored",
    docs: "\
What: as adte, with a bank of the images so far: each image is offered to the bank, then its views are
selected with the exponents that the bank gives. Until start images are stored (0: as many as there are
classes) views are selected by entropy. The exponents are estimated again after every `every` images.
This form is ours. The authors' script makes a first pass over the whole test set (adte here), and the online
branch in their code cannot run.
Online: the answer depends on the images before it, and on their order.
Cost: one image-tower pass over the views; rounds K^2 for each estimate; memory up to slots K^2.
Reference: ADTE, arXiv 2602.11743, for the score and the estimate.
",
    verified: Verified::Formula,
    options: Config::OPTIONS,
    ..AdapterSpec::new("adte-stream", Build::Online(|table| Ok(Box::new(AdteStream::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "adte-stream", check Config::of_set {
        include class_exponents;
        /// Stored images from which on the exponents are used; 0 is the number of classes.
        start: usize = 0, from "choice";
        /// Images after which the exponents are estimated again.
        every: usize = 50, range between(1, 1_000_000), from "choice: an estimate costs 0.5 G operations at 1000 classes";
    }
}

impl Config {
    /// What the two forms share.
    fn shared(&self) -> adte::Adte {
        let Self { fraction, slots, gap, low, high, rounds, tolerance, compat, .. } = *self;
        adte::Adte { fraction, slots, gap, low, high, rounds, tolerance, compat }
    }

    fn of_set(&self) -> Result<()> {
        self.shared().check()
    }
}

#[derive(Clone, Debug, Default)]
pub struct AdteStream {
    options: Config,
    shared: adte::Adte,
    bank: ClassBank,
    /// The exponents that the last image was answered with; none while views are selected by entropy.
    pub exponents: Option<Vec<f64>>,
    /// Images since the last estimate.
    since: usize,
}

impl AdteStream {
    pub fn new(options: Config) -> Self {
        Self { shared: options.shared(), options, ..Self::default() }
    }
}

impl OnlineAdapter for AdteStream {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        *self = Self { bank: ClassBank::new(task.class_count()), ..Self::new(self.options.clone()) };
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        self.bank.offer(&views, &self.shared);
        self.since += 1;
        let is_due = self.exponents.is_none() || self.since >= self.options.every;
        if self.bank.len() >= self.shortest_stream(task) && is_due {
            (self.exponents, self.since) = (Some(self.bank.exponents(&self.shared)), 0);
        }
        let selection = match &self.exponents {
            Some(exponents) => adte::select(&views, exponents, self.options.fraction),
            None => LowestScore { fraction: self.options.fraction, score: Score::Entropy }.select(&views),
        };
        Ok(adte::answer(views, selection))
    }

    fn shortest_stream(&self, task: &Task) -> usize {
        if self.options.start == 0 { task.class_count() } else { self.options.start }
    }
}
