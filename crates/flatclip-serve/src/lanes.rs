//! Threads by cost. A small piece of work must not wait behind a large one, so each class of cost has a pool of threads, and
//! the system shares the processors between the pools; what nobody may wait for long (building) runs at a lower priority.

use rayon::{ThreadPool, ThreadPoolBuilder};

/// How much a piece of work costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// A few views.
    Light,
    /// As many views as a method uses by default.
    Normal,
    /// More.
    Heavy,
}

/// Views of light work.
const LIGHT: usize = 4;
/// Views of normal work.
const NORMAL: usize = 64;
/// Bytes of decoding: 2 to 4 megapixels, and 12 (JPEG) to 24 (PNG).
const LIGHT_BYTES: usize = 12 << 20;
const NORMAL_BYTES: usize = 74_000_000;
/// Seconds of text work beside the views.
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

    /// The same for an image that takes so many bytes to decode: a large one costs more than its views.
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

/// A pool for each class, and one for building.
pub(crate) struct Lanes {
    normal: ThreadPool,
    heavy: ThreadPool,
    building: ThreadPool,
}

/// Priorities in Linux's steps of niceness, each of which gives a fifth less: light work and connections go first, and
/// what nobody may wait for goes last.
const NORMAL_NICENESS: i32 = 4;
const HEAVY_NICENESS: i32 = 7;
const BUILDING_NICENESS: i32 = 12;

impl Lanes {
    pub(crate) fn start() -> std::io::Result<Self> {
        Ok(Self {
            normal: pool("normal", NORMAL_NICENESS).build().map_err(std::io::Error::other)?,
            heavy: pool("heavy", HEAVY_NICENESS).build().map_err(std::io::Error::other)?,
            building: pool("build", BUILDING_NICENESS).build().map_err(std::io::Error::other)?,
        })
    }

    pub(crate) fn run<T: Send>(&self, weight: Weight, work: impl FnOnce() -> T + Send) -> T {
        match weight {
            // By a worker that also does other work; the one for light work alone has a pool of its own.
            Weight::Light | Weight::Normal => self.normal.install(work),
            Weight::Heavy => self.heavy.install(work),
        }
    }

    pub(crate) fn build<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.building.install(work)
    }
}

/// A pool that this thread is part of: its work begins at once, without waking another thread. `None` where that cannot be.
pub(crate) fn own_pool() -> Option<ThreadPool> {
    pool("light", 0).use_current_thread().build().ok()
}

/// As many threads as the caller's own pool has.
fn pool(name: &'static str, niceness: i32) -> ThreadPoolBuilder {
    ThreadPoolBuilder::new()
        .num_threads(rayon::current_num_threads())
        .thread_name(move |number| format!("{name}-{number}"))
        .start_handler(move |_| lower_priority(niceness))
}

/// Lets other threads go first. On Linux the call means this thread alone; elsewhere it would mean the process.
fn lower_priority(niceness: i32) {
    #[cfg(target_os = "linux")]
    if niceness > 0 {
        // Where the system refuses, the threads share alike.
        let _ = rustix::process::setpriority_process(None, niceness);
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

    #[cfg(target_os = "linux")]
    #[test]
    fn building_goes_after_answers() {
        let lanes = Lanes::start().unwrap();
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let order = [lanes.run(Weight::Light, niceness), lanes.run(Weight::Heavy, niceness), lanes.build(niceness)];
        assert!(order.is_sorted() && order[0] < order[2], "{order:?}");
        let own = std::thread::spawn(move || own_pool().unwrap().install(|| (std::thread::current().id(), niceness())));
        let thread = own.thread().id();
        assert_eq!(own.join().unwrap(), (thread, niceness()), "light work runs on the thread that took it");
    }
}
