//! State shared by all requests.

use crate::builds::Builds;
use crate::cache::{Banks, Classifiers};
use crate::catalogue::Catalogue;
use crate::lanes::Lanes;
use crate::memory::{self, Memory};
use crate::queue::Queue;
use crate::sessions::Sessions;
use crate::statistics::Statistics;
use crate::uploads::Uploads;
use crate::{Budget, Config, Key, Problem, lock};
use flatclip::{Classifier, Error, Image, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

pub(crate) struct App {
    pub(crate) config: Config,
    key: Mutex<Option<Key>>,
    catalogue: Mutex<Arc<Catalogue>>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) builds: Arc<Builds>,
    pub(crate) banks: Arc<Banks>,
    pub(crate) sessions: Sessions,
    /// Memory budget of bodies and answers.
    pub(crate) held: Budget,
    /// Memory budget of decoded pixels and views.
    pub(crate) pixels: Budget,
    pub(crate) uploads: Uploads,
    /// Limits concurrent tasks of some milliseconds, which run outside of the threads that serve connections.
    pub(crate) parsers: Semaphore,
    pub(crate) memory: Memory,
    pub(crate) statistics: Statistics,
    warm: AtomicBool,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) started: Instant,
}

/// Largest body or answer that is still served while large ones fill the budget.
const SMALL: usize = 256 << 10;
/// How long the queue may be full before the server reports that it is not ready.
const FULL: Duration = Duration::from_secs(5);

impl App {
    pub(crate) fn new(config: Config) -> Result<Arc<Self>> {
        config.check()?;
        let key = config.read_key()?;
        config.check_exposure(key.is_some())?;
        crate::metrics::install();
        let limits = &config.limits;
        let catalogue = Mutex::new(Arc::new(Catalogue::load(&config, None)?));
        let lanes = Arc::new(Lanes::start().map_err(Error::io("threads"))?);
        let pixels = Budget::new(limits.pixel_megabytes << 20);
        let queue = Queue::start(limits, &lanes, &pixels).map_err(Error::io("worker thread"))?;
        let kept = limits.kept_megabytes << 20;
        // A quarter is for text banks that are cached longer than their classifiers.
        let classifiers = Classifiers::new(limits.kept_classifiers, kept - kept / 4);
        let builds = Builds::start(limits, &lanes, classifiers).map_err(Error::io("builder thread"))?;
        Ok(Arc::new(Self {
            catalogue,
            queue,
            builds,
            banks: Arc::new(Banks::new(kept / 4)),
            sessions: Sessions::new(limits),
            // One request of the largest size fits into the share of one client.
            held: Budget::shared(limits.held_bytes, limits.client_share, limits.body_bytes * 2, SMALL),
            pixels,
            uploads: Uploads::default(),
            parsers: Semaphore::new(std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)),
            memory: Memory::new((limits.memory_megabytes as u64) << 20),
            key: Mutex::new(key),
            statistics: Statistics::default(),
            warm: AtomicBool::new(!config.warm_up),
            stopping: Arc::default(),
            started: Instant::now(),
            config,
        }))
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&lock(&self.catalogue))
    }

    /// Whether an `Authorization` header contains a valid key, or no key is needed.
    pub(crate) fn is_key_shown(&self, header: Option<&[u8]>) -> bool {
        lock(&self.key).as_ref().is_none_or(|key| key.is_shown(header))
    }

    /// Reads the keys and the configuration file again. Requests in progress finish with the old ones.
    pub(crate) fn reload(&self) -> Result<()> {
        if self.config.key_file.is_some() {
            let key = self.config.read_key()?;
            *lock(&self.key) = key;
            tracing::info!("the keys were read again");
        }
        let Some(file) = &self.config.file else {
            tracing::info!("there is no configuration file to read again");
            return Ok(());
        };
        let config = Config::read(file)?;
        let fresh = Catalogue::load(&config, Some(&self.catalogue()))?;
        let (models, prompts) = (fresh.models.len(), fresh.prompts.len());
        *lock(&self.catalogue) = Arc::new(fresh);
        tracing::info!(models, prompts, "models, prompts and class lists were read again");
        Ok(())
    }

    /// Runs each model once, so that lazy initialisation does not slow down the first request.
    pub(crate) fn warm_up(&self) -> Result<()> {
        let image = Image { width: 64, height: 64, rgb: vec![128; 64 * 64 * 3] };
        for (_, model) in &self.catalogue().models {
            if model.config().text.is_some() {
                self.builds.rates.of(model)?;
                Classifier::builder(model).classes(["warm", "up"]).build()?.answer(&image)?;
            } else {
                model.encode_images(std::slice::from_ref(&image))?;
            }
        }
        self.memory.set_baseline();
        self.warm.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) async fn watch_memory(self: Arc<Self>) {
        let mut tick = tokio::time::interval(memory::EVERY);
        loop {
            tick.tick().await;
            let app = Arc::clone(&self);
            let look = move || app.memory.look().then(|| app.builds.classifiers.halve());
            let _ = tokio::task::spawn_blocking(look).await;
        }
    }

    pub(crate) fn check_ready(&self) -> Result<(), Problem> {
        let queue = self.queue.gauges();
        if self.stopping.load(Ordering::Acquire) {
            Err(Problem::unavailable("the server is stopping"))
        } else if !self.warm.load(Ordering::Acquire) {
            Err(Problem::unavailable("the server is warming up"))
        } else if queue.full_for > FULL {
            Err(Problem::unavailable("the queue has been full for more than 5 s"))
        } else if queue.oldest > self.config.limits.deadline() * 2 {
            Err(Problem::unavailable("a worker has been busy with one batch for more than twice the deadline"))
        } else {
            Ok(())
        }
    }
}
