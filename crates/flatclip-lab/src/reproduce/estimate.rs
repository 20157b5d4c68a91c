//! Estimates the cost of a plan before any step starts: images x views at the rate of this machine, the number of training
//! steps times the duration of one, and the disk space of the feature cache.

use super::step_store::{State, StepStore, split_of, templates};
use super::{EvaluateWork, Plan, PromptSource, ReproduceRequest, Step, SweepWork, Work};
use crate::bench::Rates;
use crate::data::{Known, Split};
use crate::eval::test_family;
use crate::{TuneRequest, ViewChoice};
use flatclip::image::views::ViewPolicy;
use flatclip::methods::policy::policy_for;
use flatclip::methods::{Registry, adapter};
use flatclip::{Model, Progress, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::AddAssign;

/// The estimated cost of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Images that are read and encoded.
    pub images: usize,
    /// Seconds for reading images, making views and encoding them.
    pub encode: f64,
    /// Seconds for answers, training steps and text features.
    pub compute: f64,
    /// Bytes in the feature cache.
    pub disk: u64,
}

impl Estimate {
    /// Total seconds.
    pub fn seconds(&self) -> f64 {
        self.encode + self.compute
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        self.images += other.images;
        self.encode += other.encode;
        self.compute += other.compute;
        self.disk += other.disk;
    }
}

/// The estimated cost of every step; zero for finished ones.
pub fn prices(
    request: &ReproduceRequest,
    model: &Model,
    (plan, states): (&Plan, &[State]),
    progress: &dyn Progress,
) -> Result<Vec<Estimate>> {
    let store = StepStore::new(request, model)?;
    let rates = Rates::open(model, request.cache.as_deref(), progress);
    let mut pricing = Pricing { store, rates, encoded: BTreeSet::new() };
    // The features of finished steps are in the cache.
    if request.cache.is_some() {
        let done = plan.steps.iter().zip(states).filter(|(_, state)| **state == State::Done);
        done.for_each(|(step, _)| pricing.recall(step));
    }
    let price = |(step, state): (&Step, &State)| match state {
        State::Done => Ok(Estimate::default()),
        _ => pricing.price(step),
    };
    plan.steps.iter().zip(states).map(price).collect()
}

struct Pricing<'a> {
    store: StepStore<'a>,
    rates: Rates<'a>,
    /// Data set, seed and views whose features are in the cache by then.
    encoded: BTreeSet<String>,
}

impl Pricing<'_> {
    fn price(&mut self, step: &Step) -> Result<Estimate> {
        match &step.work {
            Work::Tune(request) => self.tune(request),
            Work::Statistics(work) => {
                let images = work.shots * self.classes(&work.data, Split::Train);
                let encode = images as f64 * self.rates.image(ViewPolicy::Identity, 1)?;
                Ok(Estimate { images, encode, ..Estimate::default() })
            }
            Work::Evaluate(work) => {
                let EvaluateWork { data, prompt, method, options, seed, .. } = work;
                let share = work.shard.map_or(1, |shard| shard.count);
                self.run(data, prompt, (method, options), views(work.policy, work.views, method, data)?, *seed, share)
            }
            Work::Sweep(work) => {
                let SweepWork { prompt, method, seed, .. } = work;
                let asked = self.store.request.views.or(self.store.recipe.views);
                let cells: usize = work.axes.iter().map(|axis| axis.values.len()).product();
                let mut all = Estimate::default();
                for data in &work.data {
                    let views = views(work.policy, asked, method, data)?;
                    let one = self.run(data, prompt, (method, &toml::Table::new()), views, *seed, 1)?;
                    all += Estimate { compute: cells as f64 * one.compute, ..one };
                }
                Ok(all)
            }
            Work::Landscape(work) => {
                let split = split_of(work.shots);
                let text = self.rates.text(self.classes(&work.data, split))?;
                let surfaces = work.prompts.len() * if work.shots > 0 { 1 } else { 2 };
                let compute = (surfaces * work.points * work.points) as f64 * text;
                Ok(Estimate { compute, ..Estimate::default() })
            }
        }
    }

    fn tune(&self, request: &TuneRequest) -> Result<Estimate> {
        let classes = self.classes(&request.data, Split::Train);
        let cost = request.cost(classes)?;
        let encode = (cost.images * cost.encodings) as f64 * self.rates.image(ViewPolicy::CropFlip, 1)?;
        let compute = if cost.steps > 0 { cost.steps as f64 * self.rates.step(request, classes)? } else { 0.0 };
        Ok(Estimate { images: cost.images, encode, compute, disk: 0 })
    }

    /// The cost of one evaluation of a share of a data set.
    fn run(
        &mut self,
        data: &str,
        prompt: &PromptSource,
        (method, options): (&str, &toml::Table),
        (policy, views): (ViewPolicy, usize),
        seed: u64,
        share: usize,
    ) -> Result<Estimate> {
        let encoding = self.encode(data, seed, policy, views, share)?;
        let (classes, images) = (self.classes(data, Split::Test), self.images(data).div_ceil(share));
        // C-TPT tunes every template of an ensemble.
        let times = if method == "c-tpt" { texts(prompt)? } else { 1 };
        let answers = (times * images) as f64 * self.rates.answer(method, options, views, classes)?;
        Ok(Estimate { compute: answers + self.texts(prompt, method, options, classes)?, ..encoding })
    }

    /// The cost of encoding the views of a data set, unless an earlier step has encoded them.
    fn encode(&mut self, data: &str, seed: u64, policy: ViewPolicy, views: usize, share: usize) -> Result<Estimate> {
        let images = self.images(data).div_ceil(share);
        let kept = self.store.request.cache.is_some();
        if kept && !self.encoded.insert(key(data, seed, policy, views)) {
            return Ok(Estimate::default());
        }
        let encode = images as f64 * self.rates.image(policy, views)?;
        let floats = views * (self.store.model.width() + 1);
        let disk = if kept { (images * floats * size_of::<f32>()) as u64 } else { 0 };
        Ok(Estimate { images, encode, disk, ..Estimate::default() })
    }

    fn recall(&mut self, step: &Step) {
        if let Work::Evaluate(work) = &step.work
            && let Ok((policy, views)) = views(work.policy, work.views, &work.method, &work.data)
        {
            self.encoded.insert(key(&work.data, work.seed, policy, views));
        }
    }

    /// Passes of the text tower before the first image: templates, and the text bank of STSS.
    fn texts(&self, prompt: &PromptSource, method: &str, options: &toml::Table, classes: usize) -> Result<f64> {
        if self.store.model.config().text.is_none() {
            return Ok(0.0);
        }
        let texts = texts(prompt)?;
        let spec = adapter(method)?;
        let around = spec.complete(options)?.get("perturbations").and_then(toml::Value::as_integer).unwrap_or(0);
        Ok((texts + around.max(0) as usize) as f64 * self.rates.text(classes)?)
    }

    /// Number of images of a data set: on disk, or the published number.
    fn images(&self, data: &str) -> usize {
        let found = self.store.dataset(data, Split::Test).map(|set| set.samples.len()).ok();
        let count = found.or_else(|| Known::find(data)?.count(Split::Test)).unwrap_or(0);
        self.store.recipe.limit.map_or(count, |limit| limit.min(count))
    }

    fn classes(&self, data: &str, split: Split) -> usize {
        let known = Known::find(data).map(|known| known.classes);
        known.or_else(|| Some(self.store.dataset(data, split).ok()?.classes.len())).unwrap_or(1)
    }
}

/// Number of texts per class.
fn texts(prompt: &PromptSource) -> Result<usize> {
    match prompt {
        PromptSource::Text(word) => Ok(templates(word)?.len().max(1)),
        _ => Ok(1),
    }
}

fn key(data: &str, seed: u64, policy: ViewPolicy, views: usize) -> String {
    format!("{data} {seed} {} {views}", policy.name())
}

/// How a step's views are made, by the defaults of the facade.
fn views(choice: ViewChoice, asked: Option<usize>, method: &str, data: &str) -> Result<(ViewPolicy, usize)> {
    let spec = Registry::builtin().adapter(method)?;
    Ok(match choice {
        ViewChoice::Policy(ViewPolicy::Identity) => (ViewPolicy::Identity, asked.unwrap_or(1)),
        ViewChoice::Policy(policy) => (policy, asked.unwrap_or(spec.needs.default_views)),
        ViewChoice::Published => {
            let known = Known::find(data);
            let family = known.map_or(flatclip::methods::policy::TestFamily::CrossDataset, |known| {
                test_family(known.name, known.family)
            });
            let published = policy_for(spec.name, family)?;
            let asked = asked.filter(|_| published.policy != ViewPolicy::Identity);
            (published.policy, asked.unwrap_or(published.views))
        }
    })
}
