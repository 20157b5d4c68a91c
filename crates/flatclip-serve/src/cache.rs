//! LRU caches of classifiers and text banks between requests, by content. The memory of a classifier counts against the budget
//! until the last request that uses it has ended.

use crate::{Budget, Charge, Client, Problem, lock};
use flatclip::methods::TextStore;
use flatclip::{Classifier, Matrix};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

/// A classifier, and the memory that it and its jobs need.
pub(crate) struct Built {
    pub(crate) classifier: Classifier,
    /// Bytes needed to answer one image, in addition to decoding it.
    pub(crate) work_bytes: usize,
    pub(crate) charge: Charge,
}

pub(crate) type Cached = Arc<Built>;

impl Deref for Built {
    type Target = Classifier;

    fn deref(&self) -> &Classifier {
        &self.classifier
    }
}

/// An LRU cache with limits on the number and the total size of entries.
struct LruCache<T> {
    entries: HashMap<String, Entry<T>>,
    clock: u64,
    most: usize,
    most_bytes: usize,
}

struct Entry<T> {
    value: T,
    bytes: usize,
    used: u64,
}

impl<T: Clone> LruCache<T> {
    fn new(most: usize, most_bytes: usize) -> Self {
        Self { entries: HashMap::new(), clock: 0, most, most_bytes }
    }

    fn get(&mut self, key: &str) -> Option<T> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// Stores an entry, unless it is larger than the whole cache.
    fn put(&mut self, key: String, value: T, bytes: usize) {
        if bytes > self.most_bytes {
            return;
        }
        self.clock += 1;
        self.entries.insert(key, Entry { value, bytes, used: self.clock });
        while (self.entries.len() > self.most || self.bytes() > self.most_bytes) && self.drop_oldest().is_some() {}
    }

    fn drop_oldest(&mut self) -> Option<T> {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())?;
        self.entries.remove(&oldest).map(|entry| entry.value)
    }

    fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.bytes).sum()
    }
}

pub(crate) struct Classifiers {
    lru: Mutex<LruCache<Cached>>,
    memory: Budget,
}

impl Classifiers {
    pub(crate) fn new(most: usize, bytes: usize) -> Self {
        Self { lru: Mutex::new(LruCache::new(most, usize::MAX)), memory: Budget::new(bytes) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Cached> {
        lock(&self.lru).get(key)
    }

    pub(crate) fn put(&self, key: &str, cached: Cached) {
        let bytes = cached.charge.amount();
        lock(&self.lru).put(key.to_owned(), cached, bytes);
    }

    /// Memory for a classifier or a session. The least recently used ones are dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Result<Charge, Problem> {
        if bytes > self.memory.capacity() {
            let megabytes = |bytes: usize| bytes.div_ceil(1 << 20);
            let (asked, allowed) = (megabytes(bytes), megabytes(self.memory.capacity()));
            return Err(Problem::too_much("megabytes of text features", asked, allowed)
                .with_hint("ask for fewer classes, perturbations or templates, or raise limits.kept_megabytes"));
        }
        loop {
            if let Ok(charge) = self.memory.take(Client::default(), bytes) {
                return Ok(charge);
            }
            if lock(&self.lru).drop_oldest().is_none() {
                return Err(Problem::unavailable("the memory for class lists is in use"));
            }
        }
    }

    /// Drops the least recently used half.
    pub(crate) fn halve(&self) {
        let mut lru = lock(&self.lru);
        for _ in 0..lru.entries.len().div_ceil(2) {
            lru.drop_oldest();
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.lru).entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.used()
    }
}

/// Text banks in memory: they do not depend on the selected fraction or on the vote.
pub(crate) struct Banks(Mutex<LruCache<Arc<Matrix>>>);

impl Banks {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Mutex::new(LruCache::new(usize::MAX, bytes)))
    }
}

impl TextStore for Banks {
    fn load(&self, key: &str) -> Option<Matrix> {
        // The copy is made outside of the lock.
        let rows = lock(&self.0).get(key)?;
        Some(Matrix::clone(&rows))
    }

    fn save(&self, key: &str, rows: &Matrix) {
        let bytes = size_of_val(rows.data());
        if bytes <= lock(&self.0).most_bytes {
            let rows = Arc::new(rows.clone());
            lock(&self.0).put(key.to_owned(), rows, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_when_number_or_bytes_are_exceeded() {
        let mut lru = LruCache::new(2, 100);
        lru.put("a".to_owned(), 1, 10);
        lru.put("b".to_owned(), 2, 10);
        assert_eq!(lru.get("a"), Some(1));
        lru.put("c".to_owned(), 3, 10);
        assert_eq!((lru.get("a"), lru.get("b"), lru.get("c")), (Some(1), None, Some(3)));
        lru.put("d".to_owned(), 4, 95);
        assert_eq!((lru.get("a"), lru.get("d"), lru.bytes()), (None, Some(4), 95));
        lru.put("e".to_owned(), 5, 101);
        assert_eq!(lru.get("e"), None);
    }

    #[test]
    fn a_classifier_that_is_in_use_stays_counted_and_others_make_room() {
        let model = flatclip::Model::load("pocket").unwrap();
        let classifier = Classifier::builder(&model).classes(["a", "b"]).build().unwrap();
        let cache = Classifiers::new(8, 100);
        let build = |bytes: usize| -> Cached {
            let charge = cache.charge(bytes).unwrap();
            Arc::new(Built { classifier: classifier.clone(), work_bytes: 0, charge })
        };
        let used = build(60);
        cache.put("used", Arc::clone(&used));
        cache.put("idle", build(30));
        cache.put("new", build(40));
        assert!(cache.get("new").is_some() && cache.get("idle").is_none());
        assert_eq!(cache.bytes(), 100);
        assert_eq!(cache.charge(50).unwrap_err().status, 503, "what is in use cannot be freed");
        assert_eq!(cache.charge(101).unwrap_err().status, 413);
        drop(used);
        assert!(cache.charge(100).is_ok());
    }
}
