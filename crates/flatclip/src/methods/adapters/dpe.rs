//! DPE: text prototypes and visual prototypes evolve together over the stream. Golden cases: `dpe-*`.

use super::prelude::*;
use crate::methods::cache::{ClassCache, Item, features};
use crate::methods::prototypes::{Evolving, Prototypes, class_means, fold};
use crate::methods::query::normalised_entropy;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "text and visual prototypes evolve over the stream, one gradient step on residuals per image",
    docs: "\
What: T are text prototypes (running mean over the stream), V the mean features of a class's most certain
past images. For each image zero residuals R_t, R_v take one AdamW step on the entropy of z + alpha sum_j
exp(-beta (1 - g.V_j)) onehot(j) plus align * InfoNCE(V -> W) with W = normalise(T + R_t), V =
normalise(mean + R_v); the image is answered with the moved prototypes. If the answer's normalised entropy
(nats over log2 K, as in TDA) is below the threshold, W joins the running mean T.
Online: the answer depends on the images before it, and on their order. The published method averages
templates with CuPL sentences in the text features: give such a prompt or feature file to have it.
Cost: one image-tower pass; a few K x D products.
Reference: Zhang et al., Dual Prototype Evolving for Test-Time Generalization of Vision-Language Models,
NeurIPS 2024.
",
    verified: Verified::AuthorsCode,
    presets: presets::dpe,
    options: Config::OPTIONS,
    ..AdapterSpec::new("dpe", Build::Online(|table| Ok(Box::new(Dpe::new(Config::read(table)?)))))
};

crate::choices! {
    /// Which views the moved prototypes answer for.
    pub enum Inference {
        /// The un-augmented one.
        View0 = "view0",
        /// The most confident ones under the moved prototypes, as the original does for ImageNet-A alone.
        Confident = "confident",
    }
}

crate::option_group! {
    ($) pub(super) visual_prototypes {
        /// Weight of the visual prototypes.
        alpha: f64 = 6.0, range at_least(0.0), from "authors' ImageNet value";
        /// Sharpness of the visual prototypes.
        beta: f64 = 5.0, range at_least(0.0), from "authors' ImageNet value";
        /// Weight of InfoNCE.
        align: f64 = 0.5, range at_least(0.0), from "authors' ImageNet value";
        /// AdamW's rate for the text residual.
        lr_text: f64 = 6e-4, range at_least(0.0), from "authors' ImageNet value";
        /// AdamW's rate for the visual residual.
        lr_image: f64 = 6e-4, range at_least(0.0), from "authors' ImageNet value";
    }
}

crate::option_group! {
    ($) pub(super) evolution {
        /// Items per class of the visual cache.
        capacity: usize = 3, range between(1, 10_000), from "authors' code";
        /// Normalised entropy below which an answer joins the text prototypes.
        threshold: f64 = 0.1, from "authors' code";
        /// Temperature of InfoNCE.
        temperature: f64 = 0.01, range above(0.0), from "authors' code";
        /// AdamW's epsilon.
        eps: f64 = 1e-3, range above(0.0), from "authors' code";
        /// AdamW's weight decay.
        weight_decay: f64 = 0.1, range at_least(0.0), from "authors' code";
        /// Which views the moved prototypes answer for.
        inference: Inference = Inference::View0, from "authors' code for all sets but ImageNet-A";
    }
}

crate::options! {
    pub struct Config for "dpe" {
        include view_selection;
        include data_preset;
        include visual_prototypes;
        /// AdamW steps per image.
        steps: usize = 1, range up_to(1000), from "authors' code";
        include evolution;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Dpe {
    options: Config,
    /// Text prototypes: a running mean, not normalised.
    pub text: Matrix,
    /// How many answers joined them.
    pub folded: usize,
    pub cache: ClassCache,
    pub last: Option<Residuals>,
}

/// What one image's step made of the zero residuals.
#[derive(Clone, Debug)]
pub struct Residuals {
    /// `[K, D]`.
    pub text: Matrix,
    /// `[classes in the cache, D]`.
    pub image: Matrix,
}

impl Dpe {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    /// The most confident views under text prototypes, as one.
    fn confident(&self, task: &Task, features: &Matrix, text: &Matrix) -> (Query, Selection, ViewLogits) {
        let views = ViewLogits::new(features, text, task.logit_scale);
        let lowest = LowestScore { fraction: self.options.fraction, score: self.options.score };
        let (query, selection) = Query::confident(features, &views, lowest);
        (query, selection, views)
    }
}

impl OnlineAdapter for Dpe {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let (text, cache) = (task.text_features().clone(), ClassCache::new(task.class_count(), self.options.capacity));
        *self = Self { text, cache, ..Self::new(self.options.clone()) };
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let (o, classes) = (self.options.clone(), task.class_count());
        let adamw = |lr| AdamWSettings { eps: o.eps, weight_decay: o.weight_decay, ..AdamWSettings::new(lr) };
        let text = Prototypes::new(self.text.clone(), adamw(o.lr_text));
        let (query, selection, views) = self.confident(task, image.features, &text.unit().0);
        let uncertainty = normalised_entropy(query.entropy, classes);
        let item = Item { feature: query.feature, uncertainty, probabilities: Vec::new() };
        self.cache.insert(query.prediction, item);

        let present = self.cache.present().map(|(class, items)| (class, features(items)));
        let (means, present) = class_means(present, image.features.cols());
        let visual = Prototypes::new(means, adamw(o.lr_image));
        let Config { alpha, beta, align, temperature, .. } = o;
        let mut moved = Evolving { text, image: visual, classes: present, alpha, beta, align, temperature };
        for _ in 0..o.steps {
            let unit = moved.text.unit();
            let query = self.confident(task, image.features, &unit.0).0;
            moved.step(unit, &query, task.logit_scale, &vec![1.0; classes]);
        }
        let w = moved.text.unit().0;
        let query = match o.inference {
            Inference::Confident => self.confident(task, image.features, &w).0,
            Inference::View0 => {
                let first = image.features.select_rows(&[0]);
                Query::of(&first, &ViewLogits::new(&first, &w, task.logit_scale), &[0])
            }
        };
        let z = moved.logits(&query);
        if f64::from(normalised_entropy(entropy(&z), classes)) < o.threshold {
            fold(&mut self.text, &mut self.folded, &w);
        }
        self.last = Some(Residuals { text: moved.text.residual, image: moved.image.residual });
        Ok(Decision::from_logits(&z).answer(views.explain(selection)))
    }
}
