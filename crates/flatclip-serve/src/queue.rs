//! One bounded queue. Whoever is admitted holds a ticket that travels with the work, so that a client that leaves does not let
//! more work in than the limit; what nobody waits for any more is dropped before it starts; small pictures that wait for the
//! same tower are worked on together.

use crate::config::Limits;
use crate::problem::Problem;
use crate::work::{Batch, Work};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Admission for some pictures; it is given back when the request and all of its work are gone.
pub(crate) type Ticket = Arc<OwnedSemaphorePermit>;

/// Handle on the queue and its workers.
#[derive(Clone)]
pub(crate) struct Queue(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    arrived: Condvar,
    admission: Arc<Semaphore>,
    limits: Limits,
    in_work: AtomicUsize,
    /// The most that was ever worked on at the same time.
    peak: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// When each batch that is worked on was begun.
    running: Vec<Option<Instant>>,
    full_since: Option<Instant>,
    closed: bool,
}

/// Work, who holds the admission for it, and until when it makes sense.
pub(crate) struct Job {
    pub(crate) work: Work,
    ticket: Ticket,
    deadline: Instant,
}

/// What the queue looks like from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) waiting: usize,
    pub(crate) in_work: usize,
    pub(crate) admitted: usize,
    pub(crate) peak_in_work: usize,
    /// For how long nobody could be admitted.
    pub(crate) full_for: Duration,
    /// For how long the oldest batch has been worked on.
    pub(crate) oldest: Duration,
}

impl Queue {
    /// Starts the workers.
    pub(crate) fn start(limits: &Limits) -> std::io::Result<Self> {
        let state = State { running: vec![None; limits.workers], ..State::default() };
        let inner = Arc::new(Inner {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            admission: Arc::new(Semaphore::new(limits.queue)),
            limits: limits.clone(),
            in_work: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        });
        for worker in 0..limits.workers {
            let inner = Arc::clone(&inner);
            std::thread::Builder::new().name(format!("work-{worker}")).spawn(move || inner.work(worker))?;
        }
        Ok(Self(inner))
    }

    /// Room for so many pictures, or a refusal; never waits.
    pub(crate) fn admit(&self, pictures: usize) -> Result<Ticket, Problem> {
        let count = u32::try_from(pictures).unwrap_or(u32::MAX);
        match Arc::clone(&self.0.admission).try_acquire_many_owned(count) {
            Ok(permit) => {
                self.0.lock().full_since = None;
                Ok(Arc::new(permit))
            }
            Err(_) => {
                self.0.lock().full_since.get_or_insert_with(Instant::now);
                metrics::counter!("flatclip_refused_total").increment(1);
                Err(Problem::busy())
            }
        }
    }

    /// Puts work into the queue.
    pub(crate) fn push(&self, work: Work, ticket: &Ticket, deadline: Instant) {
        let mut state = self.0.lock();
        state.waiting.push_back(Job { work, ticket: Arc::clone(ticket), deadline });
        drop(state);
        self.0.arrived.notify_one();
    }

    /// Runs a function on a worker and waits for it, at most until the deadline. It is not begun once the caller has left.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        ticket: &Ticket,
        deadline: Instant,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.push(Work::function(work, reply), ticket, deadline);
        wait(answer, deadline).await
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let inner = &self.0;
        let state = inner.lock();
        let age = |since: Option<Instant>| since.map_or(Duration::ZERO, |since| since.elapsed());
        let full = inner.admission.available_permits() == 0;
        Gauges {
            waiting: state.waiting.len(),
            in_work: inner.in_work.load(Ordering::Relaxed),
            admitted: inner.limits.queue - inner.admission.available_permits().min(inner.limits.queue),
            peak_in_work: inner.peak.load(Ordering::Relaxed),
            full_for: age(state.full_since.filter(|_| full)),
            oldest: state.running.iter().map(|&since| age(since)).max().unwrap_or_default(),
        }
    }

    /// Lets the workers end when there is nothing left.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
        self.0.arrived.notify_all();
    }
}

/// The answer of a worker, or why there is none.
pub(crate) async fn wait<T>(answer: oneshot::Receiver<Result<T, Problem>>, deadline: Instant) -> Result<T, Problem> {
    match tokio::time::timeout_at(deadline.into(), answer).await {
        Ok(Ok(answer)) => answer,
        // The worker dropped it: it came too late, or the server is stopping.
        Ok(Err(_)) => Err(Problem::late()),
        Err(_) => {
            metrics::counter!("flatclip_late_total").increment(1);
            Err(Problem::late())
        }
    }
}

impl Inner {
    /// A worker that panicked is caught, so the lock is never poisoned by half-done changes.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, worker: usize) {
        while let Some(jobs) = self.next(worker) {
            let count = jobs.len();
            let now = self.in_work.fetch_add(count, Ordering::Relaxed) + count;
            self.peak.fetch_max(now, Ordering::Relaxed);
            metrics::histogram!("flatclip_batch_pictures").record(count as f64);
            let (works, tickets): (Vec<Work>, Vec<Ticket>) = jobs.into_iter().map(|job| (job.work, job.ticket)).unzip();
            // Replies are sent inside; the tickets go back after that.
            if catch_unwind(AssertUnwindSafe(|| Batch::new(works).run())).is_err() {
                crate::metrics::count_panic();
            }
            self.in_work.fetch_sub(count, Ordering::Relaxed);
            drop(tickets);
            self.lock().running[worker] = None;
        }
    }

    /// The next jobs to work on together; `None` when the queue was closed and is empty.
    fn next(&self, worker: usize) -> Option<Vec<Job>> {
        let mut state = self.lock();
        let first = loop {
            match state.waiting.pop_front() {
                Some(job) if job.is_wanted() => break job,
                Some(_) => {}
                None if state.closed => return None,
                None => state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let until = Instant::now() + Duration::from_millis(self.limits.batch_wait_ms);
        let mut jobs = vec![first];
        loop {
            let is_full = self.gather(&mut state, &mut jobs);
            let left = until.saturating_duration_since(Instant::now());
            if is_full || left.is_zero() || jobs[0].work.batch_key().is_none() {
                break;
            }
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.running[worker] = Some(Instant::now());
        let more = !state.waiting.is_empty();
        drop(state);
        if more {
            self.arrived.notify_one();
        }
        Some(jobs)
    }

    /// Takes waiting jobs that can share a call of the tower; whether the batch is full.
    fn gather(&self, state: &mut State, jobs: &mut Vec<Job>) -> bool {
        let Some(key) = jobs[0].work.batch_key() else { return true };
        let mut views: usize = jobs.iter().map(|job| job.work.views()).sum();
        let mut at = 0;
        while at < state.waiting.len() && views < self.limits.batch_views {
            let job = &state.waiting[at];
            if !job.is_wanted() {
                state.waiting.remove(at);
            } else if job.work.batch_key() == Some(key) && views + job.work.views() <= self.limits.batch_views {
                views += job.work.views();
                jobs.extend(state.waiting.remove(at));
            } else {
                at += 1;
            }
        }
        views >= self.limits.batch_views
    }
}

impl Job {
    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool {
        let wanted = !self.work.is_abandoned() && Instant::now() < self.deadline;
        if !wanted {
            metrics::counter!("flatclip_dropped_total").increment(1);
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(workers: usize, queue: usize) -> Queue {
        Queue::start(&Limits { workers, queue, ..Limits::default() }).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[tokio::test]
    async fn more_than_the_limit_is_refused_and_tickets_come_back() {
        let queue = queue(1, 3);
        let held = queue.admit(2).unwrap();
        assert_eq!(queue.admit(2).unwrap_err().status, 429);
        let last = queue.admit(1).unwrap();
        assert_eq!(queue.gauges().admitted, 3);
        drop((held, last));
        assert_eq!(queue.gauges().admitted, 0);
    }

    #[tokio::test]
    async fn work_of_a_client_that_left_is_not_begun_and_a_late_one_is_refused() {
        let queue = queue(1, 8);
        let (started, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ticket = queue.admit(1).unwrap();
        let blocker = {
            let (queue, release) = (queue.clone(), Arc::clone(&release));
            tokio::spawn(async move {
                let work = move || {
                    while release.load(Ordering::Relaxed) == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(())
                };
                queue.run(&ticket, soon(), work).await
            })
        };
        while queue.gauges().in_work == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let other = queue.admit(1).unwrap();
        let count = Arc::clone(&started);
        let work = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let left = tokio::time::timeout(Duration::from_millis(20), queue.run(&other, soon(), work)).await;
        assert!(left.is_err());
        let late = queue.run(&other, Instant::now() + Duration::from_millis(10), || Ok(())).await;
        assert_eq!(late.unwrap_err().code, "server.deadline");
        release.store(1, Ordering::Relaxed);
        blocker.await.unwrap().unwrap();
        drop(other);
        queue.run(&queue.admit(1).unwrap(), soon(), || Ok(())).await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_panic_answers_its_own_caller_and_the_worker_goes_on() {
        let queue = queue(1, 8);
        let ticket = queue.admit(1).unwrap();
        let failed = queue.run::<()>(&ticket, soon(), || panic!("injected")).await;
        assert_eq!(failed.unwrap_err().status, 500);
        assert_eq!(queue.run(&ticket, soon(), || Ok(7)).await.unwrap(), 7);
    }
}
