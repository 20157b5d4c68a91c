//! Every prompt with every rule on every image: views are encoded once, all rows answer the same ones.

use super::protocol::{FRACTION, Protocol, STSS_RADIUS, VIEW_SEED};
use super::tuning::{Prompts, Tuner};
use super::{DOMAINS, stopped};
use crate::data::{self, OpenOptions, Split};
use flatclip::ViewFeatures;
use flatclip::image::{DecodeOptions, Image};
use flatclip::progress::Progress;
use flatclip::prompt::Prompt;
use flatclip::{Classifier, ClassifierBuilder, Model};
use flatclip::{Error, Result};
use flatclip_pocket::CLASS_NAMES;
use rayon::prelude::*;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// An image of the test and its views.
pub(super) struct Shown {
    pub(super) domain: usize,
    pub(super) index: usize,
    pub(super) label: usize,
    views: ViewFeatures,
}

impl Shown {
    /// The image, drawn again.
    pub(super) fn image(&self, protocol: &Protocol) -> Result<Image> {
        let (world, domain) = (&protocol.world, DOMAINS[self.domain]);
        let data = data::open(&format!("pocket:{domain}:{world}:{}", self.index + 1), &OpenOptions::default())?;
        data.samples[self.index].image(&DecodeOptions::default())
    }
}

/// Which views decide, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    /// The image itself.
    One,
    /// The views of lowest entropy, one vote each.
    Entropy,
    /// ZERO: the same views, ties by its own rule.
    Zero,
    /// The views whose entropy stays low around the prompt, one vote each.
    Stss,
}

impl Rule {
    pub(super) const ALL: [Rule; 4] = [Rule::One, Rule::Entropy, Rule::Zero, Rule::Stss];

    pub(super) fn name(self) -> &'static str {
        match self {
            Rule::One => "one view",
            Rule::Entropy => "entropy",
            Rule::Zero => "ZERO",
            Rule::Stss => "STSS",
        }
    }

    /// A classifier with this rule. All selections keep the same share, and entropy votes as STSS does.
    pub(super) fn classifier(self, model: &Model, prompt: &Prompt, views: usize) -> Result<Classifier> {
        let start = |method: &str| -> ClassifierBuilder {
            let builder = Classifier::builder(model).classes(CLASS_NAMES).prompt(prompt.clone());
            builder.method(method).views(views).seed(VIEW_SEED)
        };
        let votes = |builder: ClassifierBuilder, radius: f64| {
            builder.set("fraction", FRACTION)?.set("radius", radius)?.set("vote", "majority")
        };
        match self {
            Rule::One => start("zero-shot"),
            Rule::Entropy => votes(start("stss"), 0.0)?,
            Rule::Zero => start("zero").set("fraction", FRACTION)?,
            Rule::Stss => votes(start("stss"), STSS_RADIUS)?,
        }
        .build()
    }
}

/// Draws, crops and encodes all images.
pub(super) fn look(model: &Model, protocol: &Protocol, progress: &dyn Progress) -> Result<Vec<Shown>> {
    let eye = Rule::One.classifier(model, &Prompt::templates(&[Prompt::TEMPLATE])?, protocol.views)?;
    let mut places = Vec::new();
    for (domain, name) in DOMAINS.iter().enumerate() {
        let spec = format!("pocket:{name}:{}:{}", protocol.world, protocol.images);
        let data = data::open(&spec, &OpenOptions { split: Split::Test, ..OpenOptions::default() })?;
        places.extend(data.samples.into_iter().enumerate().map(|(index, sample)| (domain, index, sample)));
    }
    progress.start("images and their views", Some(places.len() as u64));
    let done = AtomicU64::new(0);
    let see = |(domain, index, sample): (usize, usize, data::Sample)| {
        if progress.cancelled() {
            return Err(stopped());
        }
        let (_, views) = eye.answer_and_features(&sample.image(&DecodeOptions::default())?)?;
        progress.advance(done.fetch_add(1, Ordering::Relaxed) + 1, "");
        Ok(Shown { domain, index, label: sample.label, views })
    };
    let shown = places.into_par_iter().map(see).collect();
    progress.finish();
    shown
}

/// A prompt (`None`: untuned) with a rule: for every draw of the shots, whether each image was answered rightly.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) tuned: Option<(Tuner, usize)>,
    pub(super) rule: Rule,
    /// `right[seed][image]`.
    pub(super) right: Vec<Vec<bool>>,
}

impl Row {
    pub(super) fn name(&self) -> String {
        let prompt = self.tuned.map_or("untuned".to_owned(), |(tuner, _)| tuner.name().to_owned());
        format!("{prompt}, {}", self.rule.name())
    }
}

/// All rows and what they answered.
pub(super) struct Answers {
    pub(super) shown: Vec<Shown>,
    pub(super) rows: Vec<Row>,
}

impl Answers {
    pub(super) fn collect(
        model: &Model,
        prompts: &Prompts,
        shown: Vec<Shown>,
        protocol: &Protocol,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let untuned = Prompt::templates(&[Prompt::TEMPLATE])?;
        let mut wanted = vec![(None, vec![&untuned])];
        for &shots in protocol.shots {
            for tuner in [Tuner::Coop, Tuner::Sapt, Tuner::CoopChosen] {
                let tuned = prompts.of(tuner, shots);
                if !tuned.is_empty() {
                    wanted.push((Some((tuner, shots)), tuned.iter().map(|t| &t.prompt).collect()));
                }
            }
        }
        progress.start("answers", Some((wanted.len() * Rule::ALL.len()) as u64));
        let mut rows = Vec::new();
        for (tuned, prompts) in wanted {
            for rule in Rule::ALL {
                let answer = |prompt: &&Prompt| -> Result<Vec<bool>> {
                    let classifier = rule.classifier(model, prompt, protocol.views)?;
                    let right = |image: &Shown| Ok(classifier.answer_features(&image.views)?.index() == image.label);
                    shown.par_iter().map(right).collect()
                };
                let right = prompts.iter().map(answer).collect::<Result<_>>()?;
                rows.push(Row { tuned, rule, right });
                progress.advance(rows.len() as u64, "");
            }
            if progress.cancelled() {
                return Err(stopped());
            }
        }
        progress.finish();
        Ok(Self { shown, rows })
    }

    /// The row of a prompt and a rule.
    pub(super) fn row(&self, tuned: Option<(Tuner, usize)>, rule: Rule) -> Result<&Row> {
        let row = self.rows.iter().find(|row| row.tuned == tuned && row.rule == rule);
        row.ok_or_else(|| Error::config("row", format!("no row for {tuned:?} with {}", rule.name())))
    }

    /// Share of right answers in one style, over all draws.
    pub(super) fn accuracy(&self, row: &Row, domain: usize) -> f64 {
        let of = |right: &Vec<bool>| {
            let mine = self.shown.iter().zip(right).filter(|(shown, _)| shown.domain == domain);
            let (count, hits) = mine.fold((0usize, 0usize), |(n, hits), (_, &r)| (n + 1, hits + usize::from(r)));
            hits as f64 / count.max(1) as f64
        };
        row.right.iter().map(of).sum::<f64>() / row.right.len().max(1) as f64
    }

    /// The same on the mean of the shifts.
    pub(super) fn shifts(&self, row: &Row) -> f64 {
        (1..DOMAINS.len()).map(|domain| self.accuracy(row, domain)).sum::<f64>() / (DOMAINS.len() - 1) as f64
    }
}
