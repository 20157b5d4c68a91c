//! DLAE: DPE with logits that are scaled down for classes that were answered often, and a cache whose items age.
//! Golden cases: `dlae-*`.

use super::dpe::{evolution, visual_prototypes};
use super::prelude::*;
use crate::methods::prototypes::{Evolving, Prototypes, class_means, fold};
use crate::methods::query::normalised_entropy;

pub use super::dpe::Inference;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "DPE with logits scaled down for classes that were answered often, and a cache whose items age",
    docs: "\
What: for each image the logits of all views are multiplied by exp(-debias (1 - dif) n_k / N): n_k of N
images so far were taken for class k (each class starts with 1), dif is the confidence of the image's class
minus the mean confidence of that class. The views are selected anew on the scaled logits; their mean is the
query, its class the pseudo label. If scaling changed the class k2 to k, its entropy counts as exp(-doubt
cos(W_k, W_k2)) times as much. The cache of a class replaces its least certain item; before that, items
nearer to the class's first text feature than to its present one age by exp(ageing * images since). Then as
dpe: one AdamW step on residuals of text and visual prototypes, the image is answered with both (view 0,
scaled again), and a confident answer joins the running mean of the text features.
The factor is a product, so logits must be positive, as CLIP's are for every class that matters; a view with
negative logits only is an error. The published
constants differ for each data set and backbone, and no validation set is named: the defaults here are one
choice for all, not tested by the authors. compat = true is the authors' code: one learning rate for both
residuals, and no view is refused.
Online: the answer depends on the images before it, and on their order.
Cost: one image-tower pass over the views; a few K x D products.
Reference: DLAE, CVPR 2026 (repository whynotcooper/dlae).
",
    verified: Verified::AuthorsCode,
    presets: presets::dlae,
    options: Config::OPTIONS,
    ..AdapterSpec::new("dlae", Build::Online(|table| Ok(Box::new(Dlae::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "dlae" {
        include view_selection;
        include data_preset;
        /// How much classes that were answered often are scaled down.
        debias: f64 = 1.0, range at_least(0.0), from "choice: the authors' values differ by data set";
        /// How much less the entropy of a changed class counts.
        doubt: f64 = 0.5, range at_least(0.0), from "choice: the authors' values differ by data set";
        /// How fast items of the cache age.
        ageing: f64 = 1e-5, range at_least(0.0), from "choice: the authors' values differ by data set";
        include visual_prototypes { align = 0.2, from "choice: the authors' most frequent value"; };
        include evolution;
        /// Do as the authors' code does: lr_text for both residuals, no check of the logits.
        compat: bool = false, from "choice";
    }
}

#[derive(Clone, Debug)]
pub struct Aged {
    /// Its feature, a mean over views.
    pub feature: Vec<f32>,
    /// Its entropy, made larger by ageing.
    pub uncertainty: f32,
    /// The image of the stream at which it was stored, or aged last.
    pub time: usize,
}

#[derive(Clone, Debug)]
pub struct Trace {
    /// With scaled logits.
    pub query: Query,
    /// Whether scaling changed its class.
    pub doubted: bool,
    /// With which it was offered to the cache.
    pub uncertainty: f32,
    pub loss: f32,
    /// Scaled logits of the answer, without the visual prototypes.
    pub answer: Vec<f32>,
}

struct Scaled {
    query: Query,
    factors: Vec<f64>,
    /// Its class before.
    before: usize,
    selection: Selection,
    views: ViewLogits,
}

#[derive(Clone, Debug, Default)]
pub struct Dlae {
    options: Config,
    /// Text prototypes: a running mean, not normalised.
    pub text: Matrix,
    folded: usize,
    /// Images that were taken for each class, one more than were seen.
    pub counts: Vec<f64>,
    /// Of each class the mean confidence and how many it is of.
    confidence: Vec<(f64, usize)>,
    pub cache: Vec<Vec<Aged>>,
    seen: usize,
    pub last: Option<Trace>,
}

impl Dlae {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    pub fn confidence(&self) -> Vec<f32> {
        self.confidence.iter().map(|(mean, _)| *mean as f32).collect()
    }

    /// The views under `text` with logits scaled by the answers so far.
    fn scaled(&self, task: &Task, features: &Matrix, text: &Matrix) -> Result<Scaled> {
        let lowest = LowestScore { fraction: self.options.fraction, score: self.options.score };
        let mut views = ViewLogits::new(features, text, task.logit_scale);
        // CLIP's photos have negative cosines with a few classes (1 photo of 20 with one of 1000), far from the answer.
        let is_negative = |row: &[f32]| row.iter().all(|&z| z < 0.0);
        if !self.options.compat && views.logits.iter_rows().any(is_negative) {
            let reason = "scales logits down, so the largest must be positive; found a view whose cosines with all classes are \
                          negative, which CLIP's features do not have";
            return Err(Error::method(Config::NAME, reason));
        }
        let plain = lowest.select(&views).selected;
        let before = argmax(&mean_row(&views.logits, &plain));
        let confidence = mean_probability(&views.logits, &plain)[before] - self.confidence[before].0;
        let total: f64 = self.counts.iter().sum();
        let factor = |n: &f64| (-self.options.debias * (1.0 - confidence) * n / total).exp();
        let factors: Vec<f64> = self.counts.iter().map(factor).collect();
        for view in 0..views.logits.rows() {
            let row = views.logits.row_mut(view).iter_mut();
            row.zip(&factors).for_each(|(z, f)| *z = (f64::from(*z) * f) as f32);
        }
        let views = ViewLogits::from_logits(views.logits);
        let (query, selection) = Query::confident(features, &views, lowest);
        Ok(Scaled { query, factors, before, selection, views })
    }

    fn count(&mut self, query: &Query) {
        let class = query.prediction;
        self.counts[class] += 1.0;
        let (mean, of) = &mut self.confidence[class];
        *mean += (f64::from(query.probabilities[class]) - *mean) / (*of + 1) as f64;
        *of += 1;
    }

    /// Offers an item to the cache of a class whose text features are `now` at present and were `first` at the start.
    fn remember(&mut self, class: usize, item: Aged, now: &[f32], first: &[f32]) {
        let items = &mut self.cache[class];
        if items.len() < self.options.capacity {
            items.push(item);
            return;
        }
        for old in items.iter_mut().filter(|old| dot(&old.feature, now) < dot(&old.feature, first)) {
            let age = (item.time - old.time) as f64;
            old.uncertainty = (f64::from(old.uncertainty) * (age * self.options.ageing).exp()) as f32;
            old.time = item.time;
        }
        items.sort_by(|a, b| a.uncertainty.total_cmp(&b.uncertainty));
        if let Some(last) = items.last_mut()
            && item.uncertainty < last.uncertainty
        {
            *last = item;
            items.sort_by(|a, b| a.uncertainty.total_cmp(&b.uncertainty));
        }
    }
}

impl OnlineAdapter for Dlae {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let classes = task.class_count();
        *self = Self::new(self.options.clone());
        self.text = task.text_features().clone();
        (self.counts, self.confidence) = (vec![1.0; classes], vec![(0.0, 0); classes]);
        self.cache = vec![Vec::new(); classes];
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let o = self.options.clone();
        let adamw = |lr| AdamWSettings { eps: o.eps, weight_decay: o.weight_decay, ..AdamWSettings::new(lr) };
        let text = Prototypes::new(self.text.clone(), adamw(o.lr_text));
        let (w, norms) = text.unit();
        let seen = self.scaled(task, image.features, &w)?;
        let class = seen.query.prediction;
        let doubted = class != seen.before;
        let less = if doubted { (-o.doubt * dot(w.row(class), w.row(seen.before))).exp() } else { 1.0 };
        let uncertainty = (f64::from(seen.query.entropy) * less) as f32;
        self.count(&seen.query);
        let item = Aged { feature: seen.query.feature.clone(), uncertainty, time: self.seen };
        self.remember(class, item, w.row(class), task.text_features().row(class));
        self.seen += 1;

        let items = self.cache.iter().map(|items| items.iter().map(|item| &*item.feature));
        let (means, classes) = class_means(items.enumerate(), image.features.cols());
        let visual = Prototypes::new(means, adamw(if o.compat { o.lr_text } else { o.lr_image }));
        let Config { alpha, beta, align, temperature, .. } = o;
        let mut moved = Evolving { text, image: visual, classes, alpha, beta, align, temperature };
        let loss = moved.step((w, norms), &seen.query, task.logit_scale, &seen.factors);

        let w = moved.text.unit().0;
        let after = match o.inference {
            Inference::View0 => self.scaled(task, &image.features.select_rows(&[0]), &w)?,
            Inference::Confident => self.scaled(task, image.features, &w)?,
        };
        let z = moved.logits(&after.query);
        if f64::from(normalised_entropy(entropy(&z), task.class_count())) < o.threshold {
            fold(&mut self.text, &mut self.folded, &w);
        }
        self.last = Some(Trace { query: seen.query, doubted, uncertainty, loss, answer: after.query.logits });
        Ok(Decision::from_logits(&z).answer(seen.views.explain(seen.selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_with_negative_logits_only_is_refused_unless_the_original_is_wanted() {
        let task = task(1, 8, 30.0);
        let mut opposite = task.text_features().clone();
        opposite.data_mut().iter_mut().for_each(|x| *x = -*x);
        for compat in [false, true] {
            let mut dlae = ready(Dlae::new(Config { compat, ..Config::default() }), &task);
            assert_eq!(dlae.adapt(&task, &ViewSet::new("s", &opposite)).is_ok(), compat);
        }
    }

    #[test]
    fn only_items_that_left_their_class_age_and_an_old_item_gives_way() {
        let mut dlae = Dlae::new(Config { capacity: 2, ageing: 1.0, ..Config::default() });
        dlae.cache = vec![Vec::new()];
        let item = |x: [f32; 2], uncertainty, time| Aged { feature: x.to_vec(), uncertainty, time };
        let (now, first) = ([1.0, 0.0], [0.0, 1.0]);
        dlae.remember(0, item([0.0, 1.0], 0.5, 0), &now, &first);
        dlae.remember(0, item([1.0, 0.0], 0.9, 1), &now, &first);
        // The first is nearer to the first text feature: 0.5 e^2 is above both others.
        dlae.remember(0, item([1.0, 0.0], 0.95, 2), &now, &first);
        let kept: Vec<f32> = dlae.cache[0].iter().map(|item| item.uncertainty).collect();
        assert_eq!(kept, [0.9, 0.95]);
    }
}
