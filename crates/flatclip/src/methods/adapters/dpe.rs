//! DPE: text prototypes and visual prototypes evolve together over the stream.
//!
//! For each image: `W = normalise(T + R_t)`, `V = normalise(mean of cached features + R_v)`, residuals zero; one AdamW step on
//! `H(softmax(z + alpha sum_j exp(-beta (1 - g.V_j)) onehot(j))) + align * InfoNCE(V -> W)`; answer with the moved prototypes;
//! a confident answer folds `W` into the running mean `T`. Golden cases: `dpe-*`.

use super::groups::{data_preset, views_kept};
use super::presets::{self, Benchmark};
use crate::Result;
use crate::methods::aggregate::Ballot;
use crate::methods::cache::{ClassCache, Item};
use crate::methods::optim::{AdamW, AdamWSettings, Optimiser};
use crate::methods::probability::{dot, entropy, logits, mean_entropy, normalise_rows_gradient, softmax};
use crate::methods::query::{Query, affinity, normalised_entropy};
use crate::methods::select::{LowestScore, ViewLogits};
use crate::methods::update::shifted;
use crate::methods::{AdapterSpec, Build, Decision, Needs, OnlineAdapter, Task, Verified, ViewSet};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "dpe",
    aliases: &[],
    needs: Needs::FEATURES,
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
    build: Build::Online(|table| Ok(Box::new(Dpe::new(Config::read(table)?)))),
    options: Config::OPTIONS,
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

crate::options! {
    /// Options of DPE.
    pub struct Config for "dpe" {
        include views_kept;
        include data_preset;
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
        /// AdamW steps per image.
        steps: usize = 1, range up_to(1000), from "authors' code";
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

impl Config {
    fn lowest(&self) -> LowestScore {
        LowestScore { fraction: self.fraction, score: self.score }
    }
}

/// The adapter and its prototypes.
#[derive(Clone, Debug)]
pub struct Dpe {
    options: Config,
    text: Matrix,
    folded: usize,
    cache: ClassCache,
    last: Option<Residuals>,
}

/// What one image's step made of the zero residuals.
#[derive(Clone, Debug)]
pub struct Residuals {
    /// `[K, D]`.
    pub text: Matrix,
    /// `[classes in the cache, D]`.
    pub image: Matrix,
}

/// Prototypes that carry a residual: `normalise(base + residual)`.
struct Prototypes {
    base: Matrix,
    residual: Matrix,
    optimiser: AdamW,
}

impl Prototypes {
    fn new(base: Matrix, lr: f64, options: &Config) -> Self {
        let settings = AdamWSettings { lr, betas: (0.9, 0.999), eps: options.eps, weight_decay: options.weight_decay };
        Self { residual: Matrix::zeros(base.rows(), base.cols()), base, optimiser: AdamW::new(settings) }
    }

    fn unit(&self) -> (Matrix, Vec<f32>) {
        shifted(&self.base, &self.residual)
    }

    /// One AdamW step on the residual, given the gradient at the unit prototypes.
    fn step(&mut self, unit: &Matrix, norms: &[f32], mut gradient: Matrix) {
        normalise_rows_gradient(unit, norms, &mut gradient);
        self.optimiser.step(&mut [self.residual.data_mut()], &[gradient.data()]);
    }
}

impl Dpe {
    /// With these options, empty.
    pub fn new(options: Config) -> Self {
        let cache = ClassCache::new(0, options.capacity);
        Self { options, text: Matrix::default(), folded: 0, cache, last: None }
    }

    /// The text prototypes now: a running mean, not normalised.
    pub fn text_prototypes(&self) -> &Matrix {
        &self.text
    }

    /// How many answers joined them.
    pub fn folded(&self) -> usize {
        self.folded
    }

    /// The visual cache.
    pub fn cache(&self) -> &ClassCache {
        &self.cache
    }

    /// The residuals of the last image.
    pub fn last_residuals(&self) -> Option<&Residuals> {
        self.last.as_ref()
    }

    /// Mean feature of every class in the cache, and those classes, ascending.
    fn visual(&self, width: usize) -> (Matrix, Vec<usize>) {
        let mut data = Vec::new();
        let mut classes = Vec::new();
        for (class, items) in self.cache.present() {
            let mean = (0..width)
                .map(|d| (items.iter().map(|i| f64::from(i.feature[d])).sum::<f64>() / items.len() as f64) as f32);
            data.extend(mean);
            classes.push(class);
        }
        (Matrix::from_vec(classes.len(), width, data), classes)
    }

    /// `z + alpha sum_j exp(-beta (1 - g.V_j)) onehot(j)`, and the weight of each visual prototype.
    fn combined(&self, query: &Query, visual: &Matrix, classes: &[usize]) -> (Vec<f32>, Vec<f64>) {
        let mut z = query.logits.clone();
        let weights: Vec<f64> = visual
            .iter_rows()
            .map(|key| affinity(self.options.alpha, self.options.beta, dot(&query.feature, key)))
            .collect();
        classes.iter().zip(&weights).for_each(|(&k, w)| z[k] = (f64::from(z[k]) + w) as f32);
        (z, weights)
    }

    /// One step of both residuals on the loss at the present prototypes.
    fn step(
        &self,
        task: &Task,
        image: &ViewSet<'_>,
        text: &mut Prototypes,
        visual: &mut Prototypes,
        classes: &[usize],
    ) {
        let (w, w_norms) = text.unit();
        let (v, v_norms) = visual.unit();
        let views = ViewLogits::new(image.features, &w, task.logit_scale);
        let (query, _) = Query::confident(image.features, &views, self.options.lowest());
        let (z, weights) = self.combined(&query, &v, classes);
        let slope = mean_entropy(&Matrix::from_vec(1, z.len(), z)).gradient;
        let (mut dw, mut dv) = (Matrix::zeros(w.rows(), w.cols()), Matrix::zeros(v.rows(), v.cols()));
        // Mean logits are the logits of the mean feature, so dz_k/dW_k = scale * g.
        for (k, &slope) in slope.row(0).iter().enumerate() {
            add_scaled(dw.row_mut(k), f64::from(slope * task.logit_scale), &query.feature);
        }
        for (j, &class) in classes.iter().enumerate() {
            let weight = f64::from(slope.row(0)[class]) * weights[j] * self.options.beta;
            add_scaled(dv.row_mut(j), weight, &query.feature);
        }
        self.info_nce_gradient(&v, &w, classes, &mut dv, &mut dw);
        text.step(&w, &w_norms, dw);
        visual.step(&v, &v_norms, dv);
    }

    /// Adds the gradient of `align * mean_a -log softmax_b(v_a . w_b / temperature)[a]` over the classes in the cache.
    fn info_nce_gradient(&self, v: &Matrix, w: &Matrix, classes: &[usize], dv: &mut Matrix, dw: &mut Matrix) {
        let scale = self.options.align / (classes.len() as f64 * self.options.temperature);
        let rows = logits(v, &w.select_rows(classes), (1.0 / self.options.temperature) as f32);
        for a in 0..classes.len() {
            for (b, p) in softmax(rows.row(a)).into_iter().enumerate() {
                let slope = scale * (p - f64::from(u8::from(a == b)));
                add_scaled(dv.row_mut(a), slope, w.row(classes[b]));
                add_scaled(dw.row_mut(classes[b]), slope, v.row(a));
            }
        }
    }

    /// The image under the moved prototypes.
    fn query_after(&self, task: &Task, image: &ViewSet<'_>, w: &Matrix) -> Query {
        match self.options.inference {
            Inference::Confident => {
                let views = ViewLogits::new(image.features, w, task.logit_scale);
                Query::confident(image.features, &views, self.options.lowest()).0
            }
            Inference::View0 => {
                let first = image.features.select_rows(&[0]);
                Query::of(&first, &ViewLogits::new(&first, w, task.logit_scale), &[0])
            }
        }
    }

    /// `T <- T n/(n+1) + W/(n+1)`.
    fn fold(&mut self, w: &Matrix) {
        self.folded += 1;
        let n = self.folded as f64;
        let (old, new) = ((n / (n + 1.0)) as f32, (1.0 / (n + 1.0)) as f32);
        self.text.data_mut().iter_mut().zip(w.data()).for_each(|(t, &w)| *t = *t * old + w * new);
    }
}

fn add_scaled(out: &mut [f32], scale: f64, row: &[f32]) {
    out.iter_mut().zip(row).for_each(|(o, &x)| *o = (f64::from(*o) + scale * f64::from(x)) as f32);
}

impl OnlineAdapter for Dpe {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.text = task.text_features().clone();
        self.folded = 0;
        self.cache = ClassCache::new(task.class_count(), self.options.capacity);
        self.last = None;
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let mut text = Prototypes::new(self.text.clone(), self.options.lr_text, &self.options);
        let views = ViewLogits::new(image.features, &text.unit().0, task.logit_scale);
        let (query, selection) = Query::confident(image.features, &views, self.options.lowest());
        let uncertainty = normalised_entropy(query.entropy, task.class_count());
        let item = Item { feature: query.feature, uncertainty, probabilities: Vec::new() };
        self.cache.insert(query.prediction, item);

        let (means, classes) = self.visual(image.features.cols());
        let mut visual = Prototypes::new(means, self.options.lr_image, &self.options);
        for _ in 0..self.options.steps {
            self.step(task, image, &mut text, &mut visual, &classes);
        }
        let (w, v) = (text.unit().0, visual.unit().0);
        let (z, _) = self.combined(&self.query_after(task, image, &w), &v, &classes);
        if f64::from(normalised_entropy(entropy(&z), task.class_count())) < self.options.threshold {
            self.fold(&w);
        }
        self.last = Some(Residuals { text: text.residual, image: visual.residual });
        Ok(Ballot::from_logits(&z).answer(views.explain(selection)))
    }

    fn fork(&self) -> Box<dyn OnlineAdapter> {
        Box::new(self.clone())
    }
}
