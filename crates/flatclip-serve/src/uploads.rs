//! Bodies that are on their way. When memory is short, the one that stands still and holds the most is given up: a client that
//! sends most of a body and then waits must not keep others out until its time is over.

use crate::client::Client;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes that count as progress.
const STEP: usize = 16 << 10;
/// How long a body may stand still before it can be given up.
const STILL: Duration = Duration::from_millis(500);

/// All bodies that are being read.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<Vec<Arc<Place>>>);

struct Place {
    client: Client,
    held: AtomicUsize,
    /// Bytes and time of the last progress.
    progress: Mutex<(usize, Instant)>,
    is_cut: AtomicBool,
    cut: Notify,
}

/// One of them; it leaves when this is dropped.
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
        lock(&self.0).push(Arc::clone(&place));
        Reading { uploads: self, place }
    }

    /// Gives up the body that stands still and holds the most, of one client or of all; whether there was one.
    pub(crate) fn cut_one(&self, of: Option<Client>) -> bool {
        let places = lock(&self.0);
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
    /// Done when this body is given up.
    pub(crate) async fn cut(&self) {
        self.place.cut.notified().await;
    }

    /// So many bytes have arrived, in so much memory.
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
        lock(&self.uploads.0).retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
