//! BoostAdapter: TDA's two caches, and for each image a copy of the positive one that its own confident views enter.
//! Golden cases: `boostadapter-*`.

use super::prelude::*;
use crate::methods::cache::{Caches, Item, insert, total_affinity};
pub use crate::methods::query::Represented;
use std::collections::BTreeMap;

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["boost-adapter"],
    summary: "TDA's caches, the positive one boosted by the confident views of the image itself",
    docs: "\
What: the image g (view 0, or the mean of its confident views) enters the positive cache of its class. Then
each of its int(fraction * V) most confident views enters a copy of that cache under its own class, with
delta more places; the copy serves this image only. Doubtful images enter the negative cache, first in first
out.
  z' = z + alpha sum_copy exp(-beta (1 - g.k_j)) onehot(c_j)
         - alpha_n sum_j exp(-beta_n (1 - g.k_j)) [low < P_j < high].
Online: the answer depends on the images before it, and on their order. Normalised entropy as in tda: nats
over log2 K. With fewer than 1 / fraction views nothing is boosted, as in the published ImageNet run with
one view.
Cost: one image-tower pass over the views; about 6 K dot products.
Reference: Zhang et al., BoostAdapter: Improving Vision-Language Test-Time Adaptation via Regional
Bootstrapping, NeurIPS 2024. Verified with the authors' code.
",
    verified: Verified::AuthorsCode,
    presets: presets::boostadapter,
    options: Config::OPTIONS,
    ..AdapterSpec::new("boostadapter", Build::Online(|table| Ok(Box::new(BoostAdapter::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "boostadapter", check Config::windows_are_open {
        include view_selection;
        include data_preset;
        /// What represents the image.
        query: Represented = Represented::View0, from "authors' code for cross-dataset sets; the ImageNet variants take the mean";
        include positive_cache;
        /// More items per class of the boosted copy.
        delta: usize = 1, range up_to(10_000), from "choice: the authors' values are 0 to 3";
        include negative_cache;
    }
}

doubt!(Config);

#[derive(Clone, Debug, Default)]
pub struct BoostAdapter {
    options: Config,
    pub caches: Caches,
}

impl BoostAdapter {
    pub fn new(options: Config) -> Self {
        Self { options, caches: Caches::default() }
    }

    pub fn query(&self, features: &Matrix, views: &ViewLogits) -> (Query, Selection) {
        let o = &self.options;
        let selection = LowestScore { fraction: o.fraction, score: o.score }.select(views);
        (o.query.query(features, views, &selection), selection)
    }

    fn remember(&mut self, query: &Query) {
        self.caches.positive.insert(query.prediction, Item::of(query));
        if self.options.doubt().holds(query.entropy, query.probabilities.len()) {
            self.caches.negative.push(query.prediction, Item::with_probabilities(query));
        }
    }

    /// The classes of the positive cache that the image's own views change, for this image only.
    fn boosted(&self, features: &Matrix, views: &ViewLogits, selection: &Selection) -> BTreeMap<usize, Vec<Item>> {
        let o = &self.options;
        // Fewer than one view is none here: an image with one view is not boosted by itself.
        let count = (o.fraction * features.rows() as f64) as usize;
        let mut changed = BTreeMap::new();
        for &view in selection.ranking.iter().take(count) {
            let class = argmax(views.logits.row(view));
            let list = changed.entry(class).or_insert_with(|| self.caches.positive.items(class).to_vec());
            let (feature, uncertainty) = (features.row(view).to_vec(), views.entropies[view]);
            insert(list, o.capacity + o.delta, Item { feature, uncertainty, probabilities: Vec::new() });
        }
        changed
    }

    fn logits(&self, query: &Query, boosted: &BTreeMap<usize, Vec<Item>>) -> Vec<f32> {
        let o = &self.options;
        let mut z = to_f64(&query.logits);
        for (class, z) in z.iter_mut().enumerate() {
            let items = boosted.get(&class).map_or(self.caches.positive.items(class), Vec::as_slice);
            *z += total_affinity(items, &query.feature, o.alpha, o.beta);
        }
        self.caches.negative.subtract_doubt(&mut z, &query.feature, &o.doubt());
        to_f32(&z)
    }
}

impl OnlineAdapter for BoostAdapter {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.caches = Caches::new(task.class_count(), self.options.capacity, self.options.negative_capacity);
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let (query, selection) = self.query(image.features, &views);
        self.remember(&query);
        let boosted = self.boosted(image.features, &views, &selection);
        Ok(Decision::from_logits(&self.logits(&query, &boosted)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_boost_their_own_image_and_leave_no_trace() {
        let task = task(4, 16, 30.0);
        let run = |count: usize| {
            let mut adapter = ready(BoostAdapter::new(Config::default()), &task);
            let many = views(5, 20, 16);
            let rows: Vec<usize> = (0..count).collect();
            let answer = adapter.adapt(&task, &ViewSet::new("s", &many.select_rows(&rows))).unwrap();
            (answer.class_scores, adapter.caches.positive.len(), adapter)
        };
        let (plain, kept, one) = run(1);
        let (boosted, also, _) = run(20);
        assert_eq!((kept, also), (1, 1));
        assert!(boosted.iter().sum::<f32>() > plain.iter().sum::<f32>() + 0.1, "{plain:?} {boosted:?}");
        let nine = views(5, 9, 16);
        let selection = Selection { scores: vec![0.0; 9], ranking: (0..9).collect(), selected: vec![0] };
        let logits = ViewLogits::new(&nine, task.text_features(), 1.0);
        assert!(one.boosted(&nine, &logits, &selection).is_empty());
    }
}
