//! Class caches of online adapters: per class the few most certain items seen so far.

use super::probability::dot;
use super::query::{Query, affinity, normalised_entropy};
use crate::Result;
use crate::options::mismatch;

#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its feature (a mean over views is kept as it is, not normalised again).
    pub feature: Vec<f32>,
    /// What the items of a class are ordered by, ascending.
    pub uncertainty: f32,
    /// Its class probabilities, where the cache needs them (else empty).
    pub probabilities: Vec<f32>,
}

/// The features of some items.
pub fn features(items: &[Item]) -> impl Iterator<Item = &[f32]> {
    items.iter().map(|item| item.feature.as_slice())
}

/// An image that is stored by the entropy of its zero-shot answer.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Unit-norm feature of view 0.
    pub feature: Vec<f32>,
    pub entropy: f64,
}

impl Item {
    /// An image, by its entropy.
    pub fn of(query: &Query) -> Self {
        Self { feature: query.feature.clone(), uncertainty: query.entropy, probabilities: Vec::new() }
    }

    /// The same with its probabilities.
    pub fn with_probabilities(query: &Query) -> Self {
        Self { probabilities: query.probabilities.clone(), ..Self::of(query) }
    }
}

/// The rule of a negative cache: which images are doubtful, and what they subtract from logits.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    pub alpha: f64,
    pub beta: f64,
    /// The normalised entropies between which an image is doubtful.
    pub entropy: (f64, f64),
    /// The probabilities between which a doubtful image lowers the logit of a class.
    pub mask: (f64, f64),
}

impl Doubt {
    /// Refuses an empty window; `table` is the first part of the key that the error names.
    pub fn check(&self, table: &str) -> Result<()> {
        let windows =
            [("entropy_low", "less than entropy_high", self.entropy), ("mask_low", "less than mask_high", self.mask)];
        match windows.into_iter().find(|(_, _, (low, high))| low >= high) {
            Some((key, expected, (low, _))) => Err(mismatch(table, key, expected, low)),
            None => Ok(()),
        }
    }

    /// Whether an image of this entropy (in nats) is doubtful.
    pub fn holds(&self, entropy: f32, classes: usize) -> bool {
        let normalised = f64::from(normalised_entropy(entropy, classes));
        self.entropy.0 < normalised && normalised < self.entropy.1
    }
}

/// Per class a short list, most certain first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassCache {
    capacity: usize,
    classes: Vec<Vec<Item>>,
}

impl ClassCache {
    pub fn new(classes: usize, capacity: usize) -> Self {
        Self { capacity, classes: vec![Vec::new(); classes] }
    }

    /// Adds until the class is full; then replaces the least certain item if the new one is strictly more certain.
    pub fn insert(&mut self, class: usize, item: Item) {
        insert(&mut self.classes[class], self.capacity, item);
    }

    /// Adds as the last item; a full class loses its first, the oldest if nothing else is ever called.
    pub fn push(&mut self, class: usize, item: Item) {
        let list = &mut self.classes[class];
        list.push(item);
        if list.len() > self.capacity {
            list.remove(0);
        }
    }

    /// The items of one class, most certain first.
    pub fn items(&self, class: usize) -> &[Item] {
        &self.classes[class]
    }

    /// The classes that have items, ascending, with them.
    pub fn present(&self) -> impl Iterator<Item = (usize, &[Item])> {
        self.classes.iter().enumerate().filter(|(_, items)| !items.is_empty()).map(|(k, items)| (k, items.as_slice()))
    }

    /// Adds `sum_i alpha exp(-beta (1 - x.k_i))` over the items of each class to its logit.
    pub fn add_affinity(&self, z: &mut [f64], x: &[f32], alpha: f64, beta: f64) {
        self.present().for_each(|(class, items)| z[class] += total_affinity(items, x, alpha, beta));
    }

    /// Subtracts `alpha exp(-beta (1 - x.k_i))` of each item from the classes whose probability for it lies in the mask.
    pub fn subtract_doubt(&self, z: &mut [f64], x: &[f32], doubt: &Doubt) {
        let (low, high) = doubt.mask;
        for item in self.present().flat_map(|(_, items)| items) {
            let weight = affinity(doubt.alpha, doubt.beta, dot(x, &item.feature));
            let masked = z.iter_mut().zip(&item.probabilities);
            masked.filter(|(_, p)| low < f64::from(**p) && f64::from(**p) < high).for_each(|(z, _)| *z -= weight);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(Vec::len).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Caches {
    /// Confident images.
    pub positive: ClassCache,
    /// Doubtful images.
    pub negative: ClassCache,
}

impl Caches {
    /// Empty ones for so many classes, with so many items per class each.
    pub fn new(classes: usize, positive: usize, negative: usize) -> Self {
        Self { positive: ClassCache::new(classes, positive), negative: ClassCache::new(classes, negative) }
    }
}

/// `sum_i alpha exp(-beta (1 - x.k_i))` over some items.
pub fn total_affinity(items: &[Item], x: &[f32], alpha: f64, beta: f64) -> f64 {
    items.iter().map(|item| affinity(alpha, beta, dot(x, &item.feature))).sum()
}

/// Adds to a list while it has fewer than `capacity` items; afterwards replaces the item of largest `entropy`, the first of
/// equals, if that of the new one is smaller. Whether it was added.
pub fn replace_worst<T, E: PartialOrd>(list: &mut Vec<T>, capacity: usize, item: T, entropy: impl Fn(&T) -> E) -> bool {
    if list.len() < capacity {
        list.push(item);
        return true;
    }
    let worst =
        (0..list.len()).fold(0, |worst, at| if entropy(&list[at]) > entropy(&list[worst]) { at } else { worst });
    let is_better = list.get(worst).is_some_and(|last| entropy(&item) < entropy(last));
    if is_better {
        list[worst] = item;
    }
    is_better
}

/// Adds to an ordered list while it has fewer than `capacity` items; afterwards replaces the last, the least certain, if
/// the new item is strictly more certain.
pub fn insert(list: &mut Vec<Item>, capacity: usize, item: Item) {
    if list.len() < capacity {
        list.push(item);
    } else if let Some(last) = list.last_mut()
        && item.uncertainty < last.uncertainty
    {
        *last = item;
    }
    list.sort_by(|a, b| a.uncertainty.total_cmp(&b.uncertainty));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(uncertainty: f32) -> Item {
        Item { feature: vec![uncertainty], uncertainty, probabilities: Vec::new() }
    }

    #[test]
    fn only_a_more_certain_item_enters_a_full_class() {
        let mut cache = ClassCache::new(2, 2);
        [0.5, 0.3, 0.5, 0.4].into_iter().for_each(|u| cache.insert(1, item(u)));
        let kept: Vec<f32> = cache.items(1).iter().map(|i| i.uncertainty).collect();
        assert_eq!(kept, [0.3, 0.4]);
        assert_eq!(cache.present().map(|(k, _)| k).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn what_is_pushed_drives_out_the_oldest() {
        let mut cache = ClassCache::new(1, 2);
        [0.5, 0.3, 0.4].into_iter().for_each(|u| cache.push(0, item(u)));
        assert_eq!(cache.items(0).iter().map(|i| i.uncertainty).collect::<Vec<_>>(), [0.3, 0.4]);
    }

    #[test]
    fn a_cache_without_room_stays_empty() {
        let mut cache = ClassCache::new(1, 0);
        cache.insert(0, item(0.1));
        assert_eq!(cache.len(), 0);
    }
}
