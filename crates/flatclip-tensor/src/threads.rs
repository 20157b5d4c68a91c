//! Where work runs. Products share the rayon pool of their caller; a loop that is parallel already keeps what it calls on
//! its own thread.

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

/// Whether this thread is inside [`on_this_thread`].
pub(crate) fn alone() -> bool {
    ALONE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

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
