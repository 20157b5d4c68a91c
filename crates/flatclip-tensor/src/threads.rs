//! Threading. Products use the caller's rayon pool; inside a loop that is already parallel they stay on their thread.

use rayon::prelude::*;
use std::cell::Cell;

thread_local! {
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` so that products inside it stay on this thread: for bodies of loops that are parallel themselves.
pub fn on_this_thread<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ALONE.set(self.0);
        }
    }
    let _restore = Restore(ALONE.replace(true));
    work()
}

/// Applies `work` to every item; results are in order. With at least as many items as threads, items run in parallel, each on
/// one thread; with fewer, they run one after the other, and each may use all threads.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = rayon::current_num_threads();
    if alone() || threads == 1 || items.len() < threads {
        items.into_iter().map(work).collect()
    } else {
        items.into_par_iter().with_max_len(1).map(|item| on_this_thread(|| work(item))).collect()
    }
}

/// Applies `work` to every item, in parallel except inside [`on_this_thread`]; results are in order.
pub(crate) fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if alone() { items.into_iter().map(work).collect() } else { items.into_par_iter().map(work).collect() }
}

/// Runs `work(offset, part)` on parts of `part` values of `data`, in parallel except inside [`on_this_thread`].
pub(crate) fn for_each_part<T: Send>(data: &mut [T], part: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if alone() || data.len() <= part {
        data.chunks_mut(part.max(1)).enumerate().for_each(|(i, data)| work(i * part, data));
    } else {
        data.par_chunks_mut(part.max(1)).enumerate().for_each(|(i, data)| work(i * part, data));
    }
}

/// Whether this thread is inside [`on_this_thread`].
pub(crate) fn alone() -> bool {
    ALONE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_order_and_stay_on_their_thread() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        let many = pool.install(|| map((0..50).collect(), |i: usize| (i * i, alone())));
        assert!(many.iter().enumerate().all(|(i, &(square, alone))| square == i * i && alone));
        assert_eq!(pool.install(|| map(vec![1, 2], |i| (i, alone()))), [(1, false), (2, false)]);
    }

    #[test]
    fn the_mark_ends_with_the_work_even_when_it_panics() {
        assert!(!alone());
        on_this_thread(|| {
            on_this_thread(|| assert!(alone()));
            assert!(alone());
        });
        let _ = std::panic::catch_unwind(|| on_this_thread(|| panic!("inside")));
        assert!(!alone());
    }
}
