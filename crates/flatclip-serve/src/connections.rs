//! Open connections. At the limit, an idle connection is closed for a new one; if none is idle, the new one is refused.

use crate::timeout::Phase;
use crate::{Client, lock};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// File descriptors that the process needs in addition to its connections: standard streams, the listener, the runtime, model
/// and log files, and connections that are being refused.
const OTHER_FILES: usize = 40;
/// Minimum time between two log lines about refusals.
const QUIET: Duration = Duration::from_secs(60);

pub(crate) struct Connections {
    pub(crate) most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Connection>,
    next: u64,
    told: Option<Instant>,
}

struct Connection {
    client: Client,
    phase: Phase,
    since: Instant,
    /// Absent until its task runs.
    task: Option<AbortHandle>,
}

/// The slot of a connection; it is free again when this is dropped.
pub(crate) struct Place {
    all: Arc<Connections>,
    id: u64,
    /// The connection that was closed to make room.
    replaced: Option<AbortHandle>,
}

impl Connections {
    /// The configured limit, or what the system's limit on open files allows.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Arc::new(Self { most: bound(limit, files), state: Mutex::default() })
    }

    /// Reserves a slot for a connection. At the limit, closes the longest idle connection of the client with the most idle ones.
    pub(crate) fn enter(self: &Arc<Self>, client: Client, phase: Phase) -> Option<Place> {
        let mut state = lock(&self.state);
        let mut replaced = None;
        if state.open.len() >= self.most {
            let idle = state.open.iter().filter(|(_, one)| one.phase.is_idle() && one.task.is_some());
            let mut counts: HashMap<Client, usize> = HashMap::new();
            idle.clone().for_each(|(_, one)| *counts.entry(one.client).or_insert(0) += 1);
            let victim = idle.max_by_key(|(_, one)| (counts[&one.client], one.since.elapsed())).map(|(&id, _)| id);
            let closed = victim.and_then(|id| state.open.remove(&id)).and_then(|one| one.task);
            state.tell(self.most, closed.is_some());
            let closed = closed?;
            closed.abort();
            replaced = Some(closed);
        }
        let id = state.next;
        state.next += 1;
        state.open.insert(id, Connection { client, phase, since: Instant::now(), task: None });
        Some(Place { all: Arc::clone(self), id, replaced })
    }
}

fn bound(limit: usize, files: Option<u64>) -> usize {
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    limit.min(files.saturating_sub(OTHER_FILES)).max(4)
}

impl State {
    /// Logs refusals at a limited rate.
    fn tell(&mut self, most: usize, is_closed: bool) {
        if self.told.is_none_or(|told| told.elapsed() > QUIET) {
            self.told = Some(Instant::now());
            let what = if is_closed { "idle ones are closed" } else { "new ones are refused" };
            tracing::warn!(most, "as many connections as the limits allow are open: {what}");
        }
    }
}

impl Place {
    /// Waits briefly until the connection that was closed for this one has released its file descriptor.
    pub(crate) async fn is_free(&self) {
        let Some(closed) = &self.replaced else { return };
        for _ in 0..1000 {
            if closed.is_finished() {
                return;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    /// Sets the task of the connection, which is aborted to close it.
    pub(crate) fn runs(&self, task: AbortHandle) {
        if let Some(one) = lock(&self.all.state).open.get_mut(&self.id) {
            one.task = Some(task);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.all.state).open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_bound_the_connections() {
        assert_eq!(bound(1024, None), 1024);
        assert_eq!(bound(1024, Some(64)), 24);
        assert_eq!(bound(1024, Some(3)), 4);
        assert_eq!(bound(10, Some(1 << 20)), 10);
    }

    #[tokio::test]
    async fn the_one_that_is_idle_makes_room_and_the_one_at_work_does_not() {
        let all = Arc::new(Connections { most: 2, state: Mutex::default() });
        let enter = |phase: &Phase| {
            let place = all.enter(Client::default(), phase.clone())?;
            let task = tokio::spawn(std::future::pending::<()>());
            place.runs(task.abort_handle());
            Some((place, task))
        };
        let (busy, idle) = (Phase::default(), Phase::default());
        let (work, _) = (enter(&busy).unwrap(), busy.set(crate::timeout::IN_REQUEST));
        let old = enter(&idle).unwrap();
        let new = enter(&busy).unwrap();
        assert!(old.1.await.unwrap_err().is_cancelled(), "the idle one is still open");
        assert!(enter(&idle).is_none(), "one at work was closed");
        drop((work, new));
        assert!(enter(&idle).is_some());
    }
}
