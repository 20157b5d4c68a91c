//! Enforces the memory limit on the resident memory. Budgets count what requests hold; this module measures the process,
//! returns freed memory to the system, and decides when requests must be refused.

use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often memory is measured.
pub(crate) const EVERY: Duration = Duration::from_millis(100);
/// Minimum time between two trims: the call walks the allocator's lists.
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// Below this much memory above the baseline, no trim is needed.
const TRIM_ABOVE: u64 = 24 << 20;

/// Memory of this process above that of its models.
pub(crate) struct Memory {
    allowed: u64,
    baseline: AtomicU64,
    is_short: AtomicBool,
    trimmed: Mutex<Instant>,
}

impl Memory {
    pub(crate) fn new(allowed: u64) -> Self {
        let (baseline, trimmed) = (AtomicU64::new(resident()), Mutex::new(Instant::now()));
        Self { allowed, baseline, is_short: AtomicBool::new(false), trimmed }
    }

    /// Sets the current resident memory as the baseline of the models.
    pub(crate) fn set_baseline(&self) {
        self.baseline.store(resident(), Ordering::Relaxed);
    }

    /// Whether memory is short, so that requests must be refused.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    fn above(&self) -> u64 {
        resident().saturating_sub(self.baseline.load(Ordering::Relaxed))
    }

    /// Measures once, which can take some milliseconds. Returns whether memory is short, so that caches should be reduced.
    pub(crate) fn look(&self) -> bool {
        let (mut above, mut trimmed) = (self.above(), lock(&self.trimmed));
        if above > TRIM_ABOVE && trimmed.elapsed() >= TRIM_EVERY {
            flatclip::give_back();
            *trimmed = Instant::now();
            above = self.above();
        }
        // An eighth is reserved for requests in progress.
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

/// Resident memory of this process in bytes; 0 if the system does not report it.
pub(crate) fn resident() -> u64 {
    flatclip::resident_memory().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_above_the_promise_is_short_until_it_is_freed() {
        let memory = Memory::new(128 << 20);
        assert!(!memory.look());
        let held = vec![1u8; 200 << 20];
        assert!(memory.look() && memory.is_short());
        drop(std::hint::black_box(held));
        let deadline = Instant::now() + Duration::from_secs(20);
        while memory.look() {
            assert!(Instant::now() < deadline, "freed memory was not given back");
            std::thread::sleep(EVERY);
        }
    }
}
