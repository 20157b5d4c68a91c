//! Request bodies that are being received. When memory is short, the stalled body that holds the most is dropped: a client
//! that sends most of a body and then waits must not block others until its timeout.

use crate::{Client, lock};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes that count as progress.
const STEP: usize = 16 << 10;
/// A body without progress for this long is stalled and may be dropped.
const STILL: Duration = Duration::from_millis(500);

/// Bytes of a body that are read without rate limit.
const UNPACED: usize = 256 << 10;
/// Rate limit in bytes per second for all larger bodies together. Loopback and fast networks deliver far more, and reading it
/// would leave no CPU time for answers.
const RATE: f64 = 400e6;

#[derive(Default)]
pub(crate) struct Uploads {
    places: Mutex<Vec<Arc<Place>>>,
    /// The time at which the bytes read so far would have been read at the rate limit.
    paid: Mutex<Option<Instant>>,
}

struct Place {
    client: Client,
    held: AtomicUsize,
    /// Bytes and time of the last progress.
    progress: Mutex<(usize, Instant)>,
    is_cut: AtomicBool,
    cut: Notify,
}

/// A body that is being read; removed from the list when dropped.
pub(crate) struct Reading<'u> {
    uploads: &'u Uploads,
    place: Arc<Place>,
}

impl Uploads {
    pub(crate) fn enter(&self, client: Client) -> Reading<'_> {
        let place = Arc::new(Place {
            client,
            held: AtomicUsize::new(0),
            progress: Mutex::new((0, Instant::now())),
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
        });
        lock(&self.places).push(Arc::clone(&place));
        Reading { uploads: self, place }
    }

    /// Waits to keep the rate limit, if the body is large.
    pub(crate) async fn pace(&self, read: usize, bytes: usize) {
        if read <= UNPACED {
            return;
        }
        let now = Instant::now();
        let until = {
            let mut paid = lock(&self.paid);
            let until = paid.map_or(now, |paid| paid.max(now)) + Duration::from_secs_f64(bytes as f64 / RATE);
            *paid = Some(until);
            until
        };
        // The resolution of timers.
        if until > now + Duration::from_millis(2) {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Drops the stalled body that holds the most, of one client or of all; returns whether there was one.
    pub(crate) fn cut_one(&self, of: Option<Client>) -> bool {
        let places = lock(&self.places);
        let still = places.iter().filter(|place| {
            let is_candidate = of.is_none_or(|client| client == place.client) && place.held.load(Ordering::Relaxed) > 0;
            is_candidate && !place.is_cut.load(Ordering::Relaxed) && lock(&place.progress).1.elapsed() > STILL
        });
        let Some(place) = still.max_by_key(|place| place.held.load(Ordering::Relaxed)) else { return false };
        place.is_cut.store(true, Ordering::Relaxed);
        place.cut.notify_one();
        true
    }
}

impl Reading<'_> {
    /// Completes when this body is dropped to free memory.
    pub(crate) async fn cut(&self) {
        self.place.cut.notified().await;
    }

    /// Records the bytes received and the memory held.
    pub(crate) fn arrived(&self, bytes: usize, held: usize) {
        self.place.held.store(held, Ordering::Relaxed);
        let mut progress = lock(&self.place.progress);
        if bytes >= progress.0 + STEP {
            *progress = (bytes, Instant::now());
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        lock(&self.uploads.places).retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_bodies_are_read_at_a_rate_and_small_ones_as_they_come() {
        let uploads = Uploads::default();
        let start = Instant::now();
        for _ in 0..100 {
            uploads.pace(UNPACED, 1 << 20).await;
        }
        assert!(start.elapsed() < Duration::from_millis(100));
        let start = Instant::now();
        for _ in 0..40 {
            uploads.pace(UNPACED + 1, 1 << 20).await;
        }
        assert!(start.elapsed() > Duration::from_millis(80), "40 MB in {:?}", start.elapsed());
    }
}
