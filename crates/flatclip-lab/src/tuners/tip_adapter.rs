//! Tip-Adapter: a cache of the shots' features, added to the zero-shot classifier. Tip-Adapter-F also trains the
//! keys.

use super::Verified;
use super::cross_entropy::cross_entropy;
use super::{Batch, Input, Loss, OptimiserKind, Recipe, Schedule, TuneTask, Tuner, TunerSpec};
use crate::data::train_images::TrainViews;
use flatclip::methods::probability::argmax;
use flatclip::model::Clip;
use flatclip::options::mismatch;
use flatclip::prompt::{PromptContent, PromptKind, Tensor, add_cache, logits};
use flatclip::{Error, Hint, Result};
use flatclip_tensor::Matrix;

/// The registry entry of the plain cache.
pub static SPEC: TunerSpec = TunerSpec {
    name: "tip-adapter",
    aliases: &["tip"],
    input: Input::Features,
    prompt: PromptKind::TipAdapter,
    vit: false,
    table: TipAdapterConfig::NAME,
    summary: "a cache of the shots' features, added to the zero-shot classifier, without training",
    docs: "\
What: the shots' features are keys, their labels values of a cache that is added to the zero-shot logits;
tip-adapter-f also trains the keys, at the first alpha and beta. Golden cases: tip-adapter-*.
  key_i  = norm(mean over augmented views of the raw features of shot i)          y_i its label
  logits = tau f W' + alpha sum_i exp(-beta (1 - f.key_i)) onehot(y_i)            W [K, D] from templates
  F: loss = mean CE(logits, y)
alpha and beta are then searched on held-out images, beta in the outer loop, a strictly better accuracy wins.
The published numbers for ImageNet searched them on the *test* images; search = \"test\" does that, is
recorded, and is never the default. Keys from ten views, AdamW 1e-3, eps 1e-4, 20 epochs, batch 256 as
published; but the keys are trained on those ten views. The published code encodes new crops in every step:
views.fresh = true does that, at 20 more encodings of each image, and the preset tipf-in16 sets it. The last
epoch is taken; the published code takes the epoch that is best on the test images.
Cost: N * D per image; no gradient of the towers.
Reference: Zhang et al., Tip-Adapter: Training-free Adaption of CLIP for Few-shot Classification, ECCV 2022.
",
    verified: Verified::AuthorsCode,
    options: TipAdapterConfig::OPTIONS,
    check: |options| TipAdapterConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(TipAdapter::build(&TipAdapterConfig::read(options)?, task)?)),
    recipe: || Recipe { epochs: 0, ..trained() },
    // Ten views of at least half the image, as published.
    views: || TrainViews { bank: 10, scale: [0.5, 1.0], ..TrainViews::default() },
};

/// The registry entry of the cache with trained keys.
pub static SPEC_F: TunerSpec = TunerSpec {
    name: "tip-adapter-f",
    aliases: &["tip-f"],
    summary: "Tip-Adapter with trained keys",
    recipe: trained,
    ..SPEC
};

fn trained() -> Recipe {
    Recipe {
        epochs: 20,
        batch: 256,
        keep_last: true,
        optimiser: OptimiserKind::AdamW,
        lr: 1e-3,
        eps: 1e-4,
        weight_decay: 0.01,
        schedule: Schedule::Step,
        warmup_epochs: 0,
        ..Recipe::default()
    }
}

flatclip::choices! {
    /// Where alpha and beta are chosen.
    pub enum TipSearch {
        /// On held-out images of the training set.
        Val = "val",
        /// On the test images, as the published ImageNet numbers: the test set leaks into the result.
        Test = "test",
        /// Not at all.
        None = "none",
    }
}

flatclip::options! {
    /// Options of `tip-adapter` and `tip-adapter-f`.
    pub struct TipAdapterConfig for "tip-adapter", check TipAdapterConfig::grid_is_finite {
        /// Weight of the cache, before the search.
        alpha: f64 = 1.17, range at_least(0.0), from "authors' code, ImageNet";
        /// Sharpness of the cache, before the search.
        beta: f64 = 1.0, range at_least(0.0), from "authors' code, ImageNet";
        /// Where alpha and beta are chosen.
        search: TipSearch = TipSearch::Val, from "choice: the paper's ImageNet numbers searched the test images";
        /// Largest beta and alpha of the search.
        search_scale: [f64; 2] = [7.0, 3.0], range above(0.1), from "authors' code";
        /// Number of betas and alphas; at most a million points in all.
        search_step: [usize; 2] = [200, 20], range between(1, 1_000_000), from "authors' code";
        /// Templates of the zero-shot classifier; empty means the data set's own.
        templates: Vec<String> = Vec::new(), from "authors' code, which has seven for ImageNet: presets tip-in16, tipf-in16";
    }
}

impl TipAdapterConfig {
    fn grid_is_finite(&self) -> Result<()> {
        let points = self.search_step[0].saturating_mul(self.search_step[1]);
        if points <= 1_000_000 {
            return Ok(());
        }
        Err(mismatch(Self::NAME, "search_step", "at most 1000000 points in all", points))
    }
}

/// A grid of betas and alphas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Largest beta and alpha.
    pub scale: [f64; 2],
    /// Number of betas and alphas.
    pub step: [usize; 2],
}

impl Grid {
    fn values(&self, axis: usize) -> Vec<f64> {
        let (scale, step) = (self.scale[axis], self.step[axis]);
        (0..step).map(|i| i as f64 * (scale - 0.1) / step as f64 + 0.1).collect()
    }
}

/// The cache and the zero-shot classifier.
#[derive(Clone, Debug)]
pub struct TipAdapter {
    /// The keys, `[N, D]`.
    parameters: Vec<Tensor>,
    labels: Vec<usize>,
    classifier: Matrix,
    templates: Vec<String>,
    scale: f32,
    alpha: f64,
    beta: f64,
    search: Option<Grid>,
}

impl TipAdapter {
    /// From keys, their labels, the zero-shot classifier `[K, D]` and its logit scale.
    pub fn new(keys: Matrix, labels: Vec<usize>, classifier: Matrix, scale: f32, alpha: f64, beta: f64) -> Self {
        let parameters = vec![Tensor::new("keys", vec![keys.rows(), keys.cols()], keys.into_vec())];
        Self { parameters, labels, classifier, templates: Vec::new(), scale, alpha, beta, search: None }
    }

    /// From the shots of a task.
    pub fn build(config: &TipAdapterConfig, task: &TuneTask<'_>) -> Result<Self> {
        let keys = task.needed_bank("tip-adapter")?.mean_keys()?;
        let (templates, classifier) = task.zero_shot(&config.templates)?;
        let mut adapter =
            Self::new(keys, task.labels.to_vec(), classifier, task.clip.logit_scale(), config.alpha, config.beta);
        adapter.templates = templates;
        if config.search != TipSearch::None {
            adapter.search = Some(Grid { scale: config.search_scale, step: config.search_step });
        }
        Ok(adapter)
    }

    /// The chosen beta and alpha.
    pub fn beta_alpha(&self) -> (f64, f64) {
        (self.beta, self.alpha)
    }

    /// `[B, K]` logits of unit-norm features.
    pub fn logits(&self, features: &Matrix) -> Matrix {
        let affinity = affinity(&self.parameters[0], features);
        let mut out = logits(features, &self.classifier, self.scale);
        add_cache(&mut out, &affinity, &self.labels, self.alpha, self.beta);
        out
    }

    /// The loss of the keys. d key_i = Σ_b alpha beta exp(-beta (1 - f_b·key_i)) `(d logits_b)[y_i]` f_b.
    pub fn key_loss(&self, at: &[Tensor], batch: &Batch<'_>) -> Loss {
        let f = batch.features;
        let affinity = affinity(&at[0], f);
        let mut all = logits(f, &self.classifier, self.scale);
        add_cache(&mut all, &affinity, &self.labels, self.alpha, self.beta);
        let entropy = cross_entropy(&all, batch.labels);
        let mut gradient = vec![0.0f32; at[0].values.len()];
        let beta = self.beta as f32;
        for (row, feature) in f.iter_rows().enumerate() {
            for (key, &label) in self.labels.iter().enumerate() {
                let weight = (beta * affinity.row(row)[key] - beta).exp();
                let d = (self.alpha as f32) * beta * weight * entropy.d_logits.row(row)[label];
                let into = &mut gradient[key * f.cols()..(key + 1) * f.cols()];
                into.iter_mut().zip(feature).for_each(|(g, x)| *g += d * x);
            }
        }
        Loss { value: entropy.loss, correct: entropy.correct, logits: all, gradient: vec![gradient] }
    }

    /// The grid point of the best accuracy on labelled features; the first of equals. Leaves it set.
    pub fn search(&mut self, features: &Matrix, labels: &[usize], grid: &Grid) {
        let affinity = affinity(&self.parameters[0], features);
        let zero_shot = logits(features, &self.classifier, self.scale);
        let mut best = 0;
        for beta in grid.values(0) {
            let mut cache = Matrix::zeros(zero_shot.rows(), zero_shot.cols());
            add_cache(&mut cache, &affinity, &self.labels, 1.0, beta);
            for alpha in grid.values(1) {
                let right = |row: &usize| {
                    let sum = |(z, c): (&f32, &f32)| z + alpha as f32 * c;
                    let row_logits: Vec<f32> = zero_shot.row(*row).iter().zip(cache.row(*row)).map(sum).collect();
                    argmax(&row_logits) == labels[*row]
                };
                let correct = (0..labels.len()).filter(right).count();
                if correct > best {
                    (best, self.beta, self.alpha) = (correct, beta, alpha);
                }
            }
        }
    }
}

fn matrix(keys: &Tensor) -> Matrix {
    Matrix::from_vec(keys.shape[0], keys.shape[1], keys.values.clone())
}

fn affinity(keys: &Tensor, features: &Matrix) -> Matrix {
    logits(features, &matrix(keys), 1.0)
}

impl Tuner for TipAdapter {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        &mut self.parameters
    }

    fn loss(&self, _clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss> {
        Ok(self.key_loss(at, batch))
    }

    fn finish(&mut self, held_out: Option<&Batch<'_>>) -> Result<()> {
        let Some(grid) = self.search else { return Ok(()) };
        let Some(held_out) = held_out else {
            let reason = "alpha and beta are searched on held-out images, and there are none; keep some out of training, \
                          or set search = \"none\" to keep alpha and beta as they are";
            return Err(Error::method("tip-adapter", reason).with_hint(Hint::HeldOut));
        };
        self.search(held_out.features, held_out.labels, &grid);
        Ok(())
    }

    fn prompt(&self) -> Result<PromptContent> {
        Ok(PromptContent::TipAdapter {
            keys: matrix(&self.parameters[0]),
            labels: self.labels.clone(),
            alpha: self.alpha as f32,
            beta: self.beta as f32,
            templates: self.templates.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter() -> TipAdapter {
        let keys = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]);
        let classifier = Matrix::from_vec(2, 2, vec![0.6, 0.8, 0.8, 0.6]);
        TipAdapter::new(keys, vec![0, 1], classifier, 2.0, 1.5, 3.0)
    }

    #[test]
    fn the_key_gradient_is_that_of_finite_differences() {
        let adapter = adapter();
        let features = Matrix::from_vec(2, 2, vec![0.8, 0.6, 0.28, 0.96]);
        let batch = Batch { labels: &[0, 1], features: &features, pixels: &[] };
        let found = adapter.key_loss(adapter.parameters(), &batch);
        for at in 0..4 {
            let loss = |by: f32| {
                let mut moved = adapter.parameters().to_vec();
                moved[0].values[at] += by;
                adapter.key_loss(&moved, &batch).value
            };
            let numeric = (loss(1e-2) - loss(-1e-2)) / 2e-2;
            assert!((numeric - found.gradient[0][at]).abs() < 1e-3, "{at}: {numeric} {:?}", found.gradient);
        }
    }

    #[test]
    fn the_search_keeps_the_first_best_and_needs_held_out_images() {
        let mut adapter = adapter();
        let features = Matrix::from_vec(1, 2, vec![1.0, 0.0]);
        let grid = Grid { scale: [7.0, 3.0], step: [20, 10] };
        // The zero-shot classifier is wrong by 0.4; alpha (1 - exp(-beta)) must exceed it.
        adapter.search(&features, &[0], &grid);
        let (beta, alpha) = adapter.beta_alpha();
        assert!((beta - 0.1).abs() < 1e-12 && alpha * (1.0 - (-beta).exp()) <= 0.4 || beta > 0.1, "{beta} {alpha}");
        assert!(alpha * (1.0 - (-beta).exp()) > 0.4, "{beta} {alpha}");
        adapter.search = Some(grid);
        assert_eq!(adapter.finish(None).unwrap_err().hint(), Some(&Hint::HeldOut));
    }
}
