//! TDA: two caches of past test images, one of confident and one of doubtful ones, correct the zero-shot logits.
//! Golden cases: `tda-*`.

use super::prelude::*;
use crate::methods::cache::{Caches, Item};

pub static SPEC: AdapterSpec = AdapterSpec {
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
    options: Config::OPTIONS,
    ..AdapterSpec::new("tda", Build::Online(|table| Ok(Box::new(Tda::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "tda", check Config::windows_are_open {
        include view_selection;
        include data_preset;
        /// Use the positive cache.
        positive: bool = true, from "authors' code";
        include positive_cache { alpha = 2.0, from "authors' ImageNet pair, which later comparisons use for all sets"; };
        /// Use the negative cache.
        negative: bool = true, from "authors' code";
        include negative_cache;
    }
}

doubt!(Config);

#[derive(Clone, Debug, Default)]
pub struct Tda {
    options: Config,
    pub caches: Caches,
}

impl Tda {
    pub fn new(options: Config) -> Self {
        Self { options, caches: Caches::default() }
    }

    fn remember(&mut self, query: &Query) {
        let o = &self.options;
        if o.positive {
            self.caches.positive.insert(query.prediction, Item::of(query));
        }
        if o.negative && o.doubt().holds(query.entropy, query.probabilities.len()) {
            self.caches.negative.insert(query.prediction, Item::with_probabilities(query));
        }
    }

    fn logits(&self, query: &Query) -> Vec<f32> {
        let o = &self.options;
        let mut z = to_f64(&query.logits);
        self.caches.positive.add_affinity(&mut z, &query.feature, o.alpha, o.beta);
        self.caches.negative.subtract_doubt(&mut z, &query.feature, &o.doubt());
        to_f32(&z)
    }
}

impl OnlineAdapter for Tda {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.caches = Caches::new(task.class_count(), self.options.capacity, self.options.negative_capacity);
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let lowest = LowestScore { fraction: self.options.fraction, score: self.options.score };
        let (query, selection) = Query::confident(image.features, &views, lowest);
        self.remember(&query);
        Ok(Decision::from_logits(&self.logits(&query)).answer(views.explain(selection)))
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
