//! Classifiers and text banks that are kept between requests, by content, the least recently used going first.

use flatclip::methods::TextStore;
use flatclip::{Classifier, Matrix};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;

/// A classifier that one request makes and the others wait for.
pub(crate) type Cell = Arc<OnceCell<Classifier>>;

/// Things under keys, at most so many and so large.
struct Shelf<T> {
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

impl<T: Clone> Shelf<T> {
    fn new(most: usize, most_bytes: usize) -> Self {
        Self { entries: HashMap::new(), clock: 0, most, most_bytes }
    }

    fn get(&mut self, key: &str) -> Option<T> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// Something larger than the whole shelf is not kept.
    fn put(&mut self, key: String, value: T, bytes: usize) {
        if bytes > self.most_bytes {
            return;
        }
        self.clock += 1;
        self.entries.insert(key, Entry { value, bytes, used: self.clock });
        while self.entries.len() > self.most || self.bytes() > self.most_bytes {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.entries.remove(&oldest);
        }
    }

    fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.bytes).sum()
    }
}

/// Classifiers by what they were asked for.
pub(crate) struct Classifiers(Mutex<Shelf<Cell>>);

impl Classifiers {
    pub(crate) fn new(most: usize, megabytes: usize) -> Self {
        Self(Mutex::new(Shelf::new(most, megabytes << 20)))
    }

    /// The place of a classifier that takes about so many bytes.
    pub(crate) fn cell(&self, key: &str, bytes: usize) -> Cell {
        let mut shelf = lock(&self.0);
        if let Some(cell) = shelf.get(key) {
            return cell;
        }
        let cell = Cell::default();
        shelf.put(key.to_owned(), Arc::clone(&cell), bytes);
        cell
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).entries.len()
    }
}

/// Text banks in memory: another kept fraction or another vote needs no new one.
pub(crate) struct Banks(Mutex<Shelf<Arc<Matrix>>>);

impl Banks {
    pub(crate) fn new(megabytes: usize) -> Self {
        Self(Mutex::new(Shelf::new(usize::MAX, megabytes << 20)))
    }
}

impl TextStore for Banks {
    fn load(&self, key: &str) -> Option<Matrix> {
        lock(&self.0).get(key).map(|rows| Matrix::clone(&rows))
    }

    fn save(&self, key: &str, rows: &Matrix) {
        let bytes = size_of_val(rows.data());
        lock(&self.0).put(key.to_owned(), Arc::new(rows.clone()), bytes);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_when_number_or_bytes_are_exceeded() {
        let mut shelf = Shelf::new(2, 100);
        shelf.put("a".to_owned(), 1, 10);
        shelf.put("b".to_owned(), 2, 10);
        assert_eq!(shelf.get("a"), Some(1));
        shelf.put("c".to_owned(), 3, 10);
        assert_eq!((shelf.get("a"), shelf.get("b"), shelf.get("c")), (Some(1), None, Some(3)));
        shelf.put("d".to_owned(), 4, 95);
        assert_eq!((shelf.get("a"), shelf.get("d"), shelf.bytes()), (None, Some(4), 95));
        shelf.put("e".to_owned(), 5, 101);
        assert_eq!(shelf.get("e"), None);
    }
}
