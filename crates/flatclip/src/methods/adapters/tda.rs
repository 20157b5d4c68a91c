//! TDA: two caches of past test images, one of confident and one of doubtful ones, correct the zero-shot logits.
//!
//! `z' = z + alpha_p sum_j exp(-beta_p (1 - g.k_j)) onehot(c_j) - alpha_n sum_j exp(-beta_n (1 - g.k_j)) [low < P_j < high]`.
//! Golden cases: `tda-*`.

use super::groups::{data_preset, views_kept};
use super::presets::{self, Benchmark};
use crate::Result;
use crate::methods::aggregate::Ballot;
use crate::methods::cache::{ClassCache, Item};
use crate::methods::query::{Query, normalised_entropy};
use crate::methods::select::{LowestScore, ViewLogits};
use crate::methods::{AdapterSpec, Build, Decision, Needs, OnlineAdapter, Task, Verified, ViewSet};
use crate::options::mismatch;

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "tda",
    aliases: &[],
    needs: Needs::FEATURES,
    summary: "online caches of confident and doubtful test images correct the zero-shot logits",
    docs: "\
What: the image is the mean feature g and mean logits z of its most confident views (or its single view). It
enters the positive cache of its class, and, if its normalised entropy lies in a window, the negative cache;
then
  z' = z + alpha sum_j exp(-beta (1 - g.k_j)) onehot(c_j)
         - alpha_n sum_j exp(-beta_n (1 - g.k_j)) [low < P_j < high].
Online: the answer depends on the images before it, and on their order. The image itself is in the cache
when it is answered. The normalised entropy is nats over log2 K, as in the original: it ends at 0.693, and
the window is on that scale.
Cost: one image-tower pass; 5 K dot products.
Reference: Karmanov et al., Efficient Test-Time Adaptation of Vision-Language Models, CVPR 2024.
",
    verified: Verified::AuthorsCode,
    presets: presets::tda,
    build: Build::Online(|table| Ok(Box::new(Tda::new(Config::read(table)?)))),
    options: Config::OPTIONS,
};

crate::options! {
    /// Options of TDA.
    pub struct Config for "tda", check Config::windows_are_open {
        include views_kept;
        include data_preset;
        /// Use the positive cache.
        positive: bool = true, from "authors' code";
        /// Weight of the positive cache.
        alpha: f64 = 2.0, range at_least(0.0), from "authors' ImageNet pair, which later comparisons use for all sets";
        /// Sharpness of the positive cache.
        beta: f64 = 5.0, range at_least(0.0), from "authors' ImageNet pair";
        /// Items per class of the positive cache.
        capacity: usize = 3, range between(1, 10_000), from "authors' code";
        /// Use the negative cache.
        negative: bool = true, from "authors' code";
        /// Weight of the negative cache.
        negative_alpha: f64 = 0.117, range at_least(0.0), from "authors' code";
        /// Sharpness of the negative cache.
        negative_beta: f64 = 1.0, range at_least(0.0), from "authors' code";
        /// Items per class of the negative cache.
        negative_capacity: usize = 2, range between(1, 10_000), from "authors' code";
        /// Lower end of the window of normalised entropy that enters the negative cache.
        entropy_low: f64 = 0.2, from "authors' code";
        /// Upper end of that window.
        entropy_high: f64 = 0.5, from "authors' code";
        /// Lower end of the window of probabilities that a doubtful image speaks against.
        mask_low: f64 = 0.03, from "authors' code";
        /// Upper end of that window.
        mask_high: f64 = 1.0, from "authors' code";
    }
}

impl Config {
    fn windows_are_open(&self) -> Result<()> {
        if self.entropy_low >= self.entropy_high {
            return Err(mismatch(Self::NAME, "entropy_low", "less than entropy_high", self.entropy_low));
        }
        if self.mask_low >= self.mask_high {
            return Err(mismatch(Self::NAME, "mask_low", "less than mask_high", self.mask_low));
        }
        Ok(())
    }
}

/// The adapter and its caches.
#[derive(Clone, Debug)]
pub struct Tda {
    options: Config,
    positive: ClassCache,
    negative: ClassCache,
}

impl Tda {
    /// With these options, empty.
    pub fn new(options: Config) -> Self {
        let (positive, negative) =
            (ClassCache::new(0, options.capacity), ClassCache::new(0, options.negative_capacity));
        Self { options, positive, negative }
    }

    /// The cache of confident images.
    pub fn positive(&self) -> &ClassCache {
        &self.positive
    }

    /// The cache of doubtful images.
    pub fn negative(&self) -> &ClassCache {
        &self.negative
    }

    fn remember(&mut self, query: &Query) {
        let item = |probabilities: &[f32]| Item {
            feature: query.feature.clone(),
            uncertainty: query.entropy,
            probabilities: probabilities.to_vec(),
        };
        if self.options.positive {
            self.positive.insert(query.prediction, item(&[]));
        }
        let doubt = f64::from(normalised_entropy(query.entropy, query.probabilities.len()));
        if self.options.negative && self.options.entropy_low < doubt && doubt < self.options.entropy_high {
            self.negative.insert(query.prediction, item(&query.probabilities));
        }
    }

    fn logits(&self, query: &Query) -> Vec<f32> {
        let o = &self.options;
        let mut z: Vec<f64> = query.logits.iter().map(|&z| f64::from(z)).collect();
        self.positive.add_affinity(&mut z, &query.feature, o.alpha, o.beta);
        let (negative, window) = ((o.negative_alpha, o.negative_beta), (o.mask_low, o.mask_high));
        self.negative.subtract_doubt(&mut z, &query.feature, negative, window);
        z.into_iter().map(|z| z as f32).collect()
    }
}

impl OnlineAdapter for Tda {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.positive = ClassCache::new(task.class_count(), self.options.capacity);
        self.negative = ClassCache::new(task.class_count(), self.options.negative_capacity);
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let lowest = LowestScore { fraction: self.options.fraction, score: self.options.score };
        let (query, selection) = Query::confident(image.features, &views, lowest);
        self.remember(&query);
        Ok(Ballot::from_logits(&self.logits(&query)).answer(views.explain(selection)))
    }

    fn fork(&self) -> Box<dyn OnlineAdapter> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_empty_is_refused() {
        let error = Config::read(&toml::toml! { entropy_low = 0.6 }).unwrap_err().to_string();
        assert!(error.starts_with("tda.entropy_low"), "{error}");
    }
}
