//! Resident memory against the promise. Budgets count what requests hold; this looks at what the process really has, gives
//! freed memory back to the system, and decides when no more may be accepted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often it looks.
pub(crate) const EVERY: Duration = Duration::from_millis(100);
/// Freed memory is given back at most so often: the call walks the allocator's lists.
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// Growth that is not worth the call.
const TRIM_ABOVE: u64 = 24 << 20;

/// Memory of this process above that of its models.
pub(crate) struct Memory {
    allowed: u64,
    baseline: AtomicU64,
    is_short: AtomicBool,
}

impl Memory {
    pub(crate) fn new(allowed: u64) -> Self {
        Self { allowed, baseline: AtomicU64::new(resident()), is_short: AtomicBool::new(false) }
    }

    /// What is resident now belongs to the models.
    pub(crate) fn set_baseline(&self) {
        self.baseline.store(resident(), Ordering::Relaxed);
    }

    /// Whether nothing more may be taken on.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    fn above(&self) -> u64 {
        resident().saturating_sub(self.baseline.load(Ordering::Relaxed))
    }

    /// One look; `last` is the time of the last trim. Whether memory is short, so that caches should be made smaller.
    pub(crate) fn look(&self, last: &mut Instant) -> bool {
        let mut above = self.above();
        if above > TRIM_ABOVE && last.elapsed() >= TRIM_EVERY {
            flatclip::give_back();
            *last = Instant::now();
            above = self.above();
        }
        // An eighth is left for what was begun before.
        let is_short = above > self.allowed / 8 * 7;
        if is_short && !self.is_short() {
            tracing::warn!(
                megabytes = above >> 20,
                "memory is short: requests with a body are refused until it is freed"
            );
        }
        self.is_short.store(is_short, Ordering::Relaxed);
        is_short
    }
}

/// Bytes of this process in memory; 0 where the system does not tell.
pub(crate) fn resident() -> u64 {
    flatclip::resident_memory().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_above_the_promise_is_short_until_it_is_freed() {
        let memory = Memory::new(128 << 20);
        let mut last = Instant::now();
        assert!(!memory.look(&mut last));
        let held = vec![1u8; 200 << 20];
        assert!(memory.look(&mut last) && memory.is_short());
        drop(std::hint::black_box(held));
        let deadline = Instant::now() + Duration::from_secs(20);
        while memory.look(&mut last) {
            assert!(Instant::now() < deadline, "freed memory was not given back");
            std::thread::sleep(EVERY);
        }
    }
}
