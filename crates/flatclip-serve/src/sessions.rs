//! Sessions: streams of online methods. Each belongs to the client that opened it, and is closed after a time without use.

use crate::cache::Cached;
use crate::{Budget, Charge, Client, Limits, Problem, Short, lock};
use axum::http::StatusCode;
use flatclip::Stream;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One stream. A request holds its lock while it is answered, so that the method sees the images in order.
pub(crate) struct Session {
    pub(crate) stream: Arc<tokio::sync::Mutex<Stream>>,
    pub(crate) model: String,
    pub(crate) classifier: Cached,
    used: Mutex<Instant>,
    /// Its share of the session limit, and the memory of its state.
    _held: (Charge, Charge),
}

pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Arc<Session>>>,
    places: Budget,
    pub(crate) lifetime: Duration,
}

impl Sessions {
    pub(crate) fn new(limits: &Limits) -> Self {
        let lifetime = Duration::from_secs(limits.session_seconds);
        let places = Budget::shared(limits.sessions, limits.client_share, 1, 0);
        Self { open: Mutex::new(HashMap::new()), places, lifetime }
    }

    pub(crate) fn place(&self, client: Client) -> Result<Charge, Problem> {
        drop(self.swept());
        self.places.take(client, 1).map_err(|short| {
            let open = self.places.used();
            Problem::unavailable(match short {
                Short::Server => format!("{open} sessions are open, which is the limit; close one or wait"),
                Short::Client => "your sessions have their share of all sessions; close one or wait".to_owned(),
            })
        })
    }

    /// Stores a stream under an id that cannot be guessed.
    pub(crate) fn open(
        &self,
        stream: Stream,
        model: String,
        classifier: Cached,
        held: (Charge, Charge),
    ) -> Result<String, Problem> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(|_| Problem::internal())?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let stream = Arc::new(tokio::sync::Mutex::new(stream));
        let session = Session { stream, model, classifier, used: Mutex::new(Instant::now()), _held: held };
        self.swept().insert(id.clone(), Arc::new(session));
        Ok(id)
    }

    /// Finds a session and resets its timeout.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Session>, Problem> {
        let open = self.swept();
        let session = open.get(id).ok_or_else(absent)?;
        *lock(&session.used) = Instant::now();
        Ok(Arc::clone(session))
    }

    pub(crate) fn close(&self, id: &str) -> Result<(), Problem> {
        self.swept().remove(id).map(drop).ok_or_else(absent)
    }

    pub(crate) fn len(&self) -> usize {
        self.swept().len()
    }

    /// The open sessions, after removing expired ones.
    fn swept(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        let mut open = lock(&self.open);
        open.retain(|_, session| lock(&session.used).elapsed() < self.lifetime);
        open
    }
}

fn absent() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "session.unknown", "no session has this id, or its time is over")
}
