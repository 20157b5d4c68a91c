//! What all requests share.

use crate::Key;
use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::kept::{Banks, Classifiers};
use crate::problem::Problem;
use crate::queue::Queue;
use crate::sessions::Sessions;
use flatclip::{Classifier, Picture, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The state of a server.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) key: Option<Key>,
    catalogue: RwLock<Arc<Catalogue>>,
    pub(crate) queue: Queue,
    pub(crate) classifiers: Classifiers,
    pub(crate) banks: Arc<Banks>,
    pub(crate) sessions: Sessions,
    /// Kilobytes of bodies that may still be held.
    pub(crate) body_budget: Arc<Semaphore>,
    warm: AtomicBool,
    stopping: AtomicBool,
    pub(crate) started: Instant,
}

/// How long nobody may be admitted before the server says that it is not ready.
const FULL: Duration = Duration::from_secs(5);

impl App {
    pub(crate) fn new(config: Config) -> Result<Arc<Self>> {
        config.check()?;
        let key = match (&config.key, &config.key_file) {
            (Some(key), _) => Some(key.clone()),
            (None, Some(file)) => Some(Key::read(file)?),
            (None, None) => None,
        };
        config.check_exposure(key.is_some())?;
        crate::metrics::install();
        let limits = &config.limits;
        let catalogue = RwLock::new(Arc::new(Catalogue::load(&config, None)?));
        let queue = Queue::start(limits).map_err(flatclip::Error::io("worker thread"))?;
        Ok(Arc::new(Self {
            catalogue,
            queue,
            classifiers: Classifiers::new(limits.kept_classifiers, limits.kept_megabytes),
            banks: Arc::new(Banks::new(limits.kept_megabytes)),
            sessions: Sessions::new(limits),
            body_budget: Arc::new(Semaphore::new(limits.held_bytes.div_ceil(1024))),
            key,
            warm: AtomicBool::new(!config.warm_up),
            stopping: AtomicBool::new(false),
            started: Instant::now(),
            config,
        }))
    }

    /// Models, prompts and class lists of this moment.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the configuration file again. What is being answered goes on with what it began with.
    pub(crate) fn reload(&self) -> Result<()> {
        let Some(file) = &self.config.file else {
            tracing::warn!("there is no configuration file to read again");
            return Ok(());
        };
        let config = Config::read(file)?;
        let fresh = Catalogue::load(&config, Some(&self.catalogue()))?;
        let (models, prompts) = (fresh.models.len(), fresh.prompts.len());
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        tracing::info!(models, prompts, "models, prompts and class lists were read again");
        Ok(())
    }

    /// Runs each model once, so that the first client does not pay for what is made on first use.
    pub(crate) fn warm_up(&self) -> Result<()> {
        let picture = Picture { width: 64, height: 64, rgb: vec![128; 64 * 64 * 3] };
        for (_, model) in &self.catalogue().models {
            if model.config().text.is_some() {
                Classifier::builder(model).classes(["warm", "up"]).build()?.answer(&picture)?;
            } else {
                model.encode_pictures(std::slice::from_ref(&picture))?;
            }
        }
        self.warm.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// When the answer to a request that came now is due.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.limits.deadline()
    }

    /// Whether new requests should be sent here.
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
