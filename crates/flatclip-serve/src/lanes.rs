//! Thread pools by cost. A small job must not wait for a large one, so each cost class has a thread pool, and the system
//! shares the processors between the pools; builds run at a lower priority.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Instant;

/// The cost class of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// A few views.
    Light,
    /// As many views as a method uses by default.
    Normal,
    /// More.
    Heavy,
}

/// Maximum views of a light job.
const LIGHT: usize = 4;
/// Maximum views of a normal job.
const NORMAL: usize = 64;
/// Maximum bytes of decoding for light and normal jobs: 2 to 4 megapixels, and 12 (JPEG) to 24 (PNG).
const LIGHT_BYTES: usize = 12 << 20;
const NORMAL_BYTES: usize = 74_000_000;
/// Maximum estimated seconds of text encoding for light and normal jobs, in addition to the views.
const LIGHT_SECONDS: f64 = 0.1;
const NORMAL_SECONDS: f64 = 1.0;

impl Weight {
    pub(crate) fn new(views: usize, text_seconds: f64) -> Self {
        if views <= LIGHT && text_seconds <= LIGHT_SECONDS {
            Self::Light
        } else if views <= NORMAL && text_seconds <= NORMAL_SECONDS {
            Self::Normal
        } else {
            Self::Heavy
        }
    }

    /// The class including the bytes to decode an image: decoding a large image costs more than its views.
    #[must_use]
    pub(crate) fn with_decoding(self, bytes: usize) -> Self {
        let decoding = if bytes <= LIGHT_BYTES {
            Self::Light
        } else if bytes <= NORMAL_BYTES {
            Self::Normal
        } else {
            Self::Heavy
        };
        self.max(decoding)
    }
}

/// Pools for normal and heavy jobs, and one for builds. While light jobs arrive, normal and heavy jobs use half of the
/// processors each, because a thread that wakes up waits for running threads whatever their priority.
pub(crate) struct Lanes {
    normal: Pools,
    heavy: Pools,
    building: ThreadPool,
    start: Instant,
    /// Milliseconds from the start to the last light job.
    light: AtomicU64,
    /// Number of running long builds.
    builds: AtomicU64,
    /// Held by the batch that uses the shared pool for normal jobs.
    whole: Mutex<()>,
}

struct Pools {
    whole: ThreadPool,
    half: ThreadPool,
}

impl Pools {
    fn start(name: &'static str, niceness: i32) -> std::io::Result<Self> {
        let threads = rayon::current_num_threads();
        Ok(Self { whole: pool(name, niceness, threads)?, half: pool(name, niceness, threads / 2)? })
    }
}

/// Milliseconds after a light job during which another one is expected.
const RECENT: u64 = 500;

/// Priorities as Linux nice values; each step gives about a fifth less CPU time.
const NORMAL_NICENESS: i32 = 0;
const HEAVY_NICENESS: i32 = 3;
const BUILDING_NICENESS: i32 = 10;

impl Lanes {
    pub(crate) fn start() -> std::io::Result<Self> {
        Ok(Self {
            normal: Pools::start("normal", NORMAL_NICENESS)?,
            heavy: Pools::start("heavy", HEAVY_NICENESS)?,
            building: pool("build", BUILDING_NICENESS, rayon::current_num_threads() / 2)?,
            start: Instant::now(),
            light: AtomicU64::new(0),
            builds: AtomicU64::new(0),
            whole: Mutex::new(()),
        })
    }

    pub(crate) fn note_light(&self) {
        self.light.store(self.milliseconds().max(1), Ordering::Relaxed);
    }

    pub(crate) fn is_light_expected(&self) -> bool {
        let last = self.light.load(Ordering::Relaxed);
        last > 0 && self.milliseconds().saturating_sub(last) < RECENT
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs a batch of a worker whose own pool is `own`. Only one batch at a time uses the shared pool of all processors:
    /// otherwise a thread that waits inside one batch would first run another whole batch.
    pub(crate) fn run<T: Send>(&self, weight: Weight, own: Option<&ThreadPool>, work: impl FnOnce() -> T + Send) -> T {
        match weight {
            Weight::Normal if self.is_light_expected() => self.normal.half.install(work),
            Weight::Heavy if self.is_light_expected() => self.heavy.half.install(work),
            Weight::Heavy => self.heavy.whole.install(work),
            Weight::Light | Weight::Normal => {
                let taken = match self.whole.try_lock() {
                    Ok(taken) => Some(taken),
                    // A batch panicked; the lock guards no data.
                    Err(TryLockError::Poisoned(taken)) => Some(taken.into_inner()),
                    Err(TryLockError::WouldBlock) => None,
                };
                match own.filter(|_| taken.is_none()) {
                    Some(own) => own.install(work),
                    None => self.normal.whole.install(work),
                }
            }
        }
    }

    pub(crate) fn build<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        struct Building<'l>(&'l AtomicU64);
        impl Drop for Building<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.builds.fetch_add(1, Ordering::Relaxed);
        let _building = Building(&self.builds);
        self.building.install(work)
    }

    pub(crate) fn is_building(&self) -> bool {
        self.builds.load(Ordering::Relaxed) > 0
    }
}

/// A pool that includes this thread: jobs start at once, without waking another thread. `None` if it cannot be made.
pub(crate) fn own_pool(threads: usize) -> Option<ThreadPool> {
    builder("light", 0, threads).use_current_thread().build().ok()
}

fn pool(name: &'static str, niceness: i32, threads: usize) -> std::io::Result<ThreadPool> {
    builder(name, niceness, threads).build().map_err(std::io::Error::other)
}

fn builder(name: &'static str, niceness: i32, threads: usize) -> ThreadPoolBuilder {
    ThreadPoolBuilder::new()
        .num_threads(threads.max(1))
        .thread_name(move |number| format!("{name}-{number}"))
        .start_handler(move |_| lower_priority(niceness))
}

/// Lowers the priority of this thread. Only on Linux: on other systems the call would affect the whole process.
fn lower_priority(niceness: i32) {
    #[cfg(target_os = "linux")]
    if niceness > 0 {
        // Below the priority that the server was started with. If the system refuses, all threads have the same priority.
        let own = rustix::process::getpriority_process(None).unwrap_or(0);
        let _ = rustix::process::setpriority_process(None, own + niceness);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_weighed_by_views_and_by_text() {
        assert_eq!(Weight::new(1, 0.0), Weight::Light);
        assert_eq!(Weight::new(1, 0.5), Weight::Normal);
        assert_eq!(Weight::new(64, 0.0), Weight::Normal);
        assert_eq!(Weight::new(65, 0.0), Weight::Heavy);
        assert_eq!(Weight::new(1, 20.0), Weight::Heavy);
        assert_eq!(Weight::Light.with_decoding(1 << 20), Weight::Light);
        assert_eq!(Weight::Light.with_decoding(40 << 20), Weight::Normal);
        assert_eq!(Weight::Normal.with_decoding(150 << 20), Weight::Heavy);
    }

    #[test]
    fn other_work_has_half_of_the_processors_while_light_work_comes_in() {
        let lanes = Lanes::start().unwrap();
        let threads = || lanes.run(Weight::Normal, None, rayon::current_num_threads);
        assert!(!lanes.is_light_expected());
        let whole = threads();
        lanes.note_light();
        assert!(lanes.is_light_expected());
        assert_eq!(threads(), (whole / 2).max(1));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn building_goes_after_answers() {
        let lanes = Lanes::start().unwrap();
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let order =
            [lanes.run(Weight::Light, None, niceness), lanes.run(Weight::Heavy, None, niceness), lanes.build(niceness)];
        assert!(order.is_sorted() && order[0] < order[2], "{order:?}");
        let own =
            std::thread::spawn(move || own_pool(2).unwrap().install(|| (std::thread::current().id(), niceness())));
        let thread = own.thread().id();
        assert_eq!(own.join().unwrap(), (thread, niceness()), "light work runs on the thread that took it");
    }
}
