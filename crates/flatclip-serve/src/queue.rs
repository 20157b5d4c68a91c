//! The bounded job queue. An admitted request holds a ticket until its jobs are done, even if the client disconnects, so that
//! the number of jobs never exceeds the limit. Jobs that no client waits for are dropped before they start. Small images that
//! wait for the same tower are run as a batch. Light jobs have their own tickets, workers and threads.

use crate::lanes::{self, Lanes, Weight};
use crate::work::{Batch, Work, caught};
use crate::{Budget, Charge, Client, Limits, Problem, Short, lock};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::Instrument as _;

/// Admission for some images; it is returned when the request and all of its jobs have ended.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    held: Arc<Charge>,
    pub(crate) weight: Weight,
}

/// How often a worker checks again for jobs that it may not start yet.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    light: Budget,
    others: Budget,
    limits: Limits,
    lanes: Arc<Lanes>,
    pixels: Budget,
    in_work: AtomicUsize,
    /// The highest number of jobs that ran at the same time.
    peak: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Start of the batch that each worker runs.
    running: Vec<Option<Instant>>,
    /// Number of running heavy batches.
    heavy: usize,
    /// Views computed for each client with waiting jobs: the client with the fewest is next.
    served: HashMap<Client, usize>,
    /// Since when light jobs, and other jobs, could not be admitted.
    full_since: [Option<Instant>; 2],
    closed: bool,
}

pub(crate) struct Job {
    pub(crate) work: Work,
    /// Bytes of pixels that it needs.
    bytes: usize,
    ticket: Ticket,
    since: Instant,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) waiting: usize,
    pub(crate) in_work: usize,
    pub(crate) admitted: usize,
    pub(crate) peak_in_work: usize,
    /// How long no client could be admitted.
    pub(crate) full_for: Duration,
    /// How long the oldest batch has been running.
    pub(crate) oldest: Duration,
}

impl Queue {
    /// Starts the workers: the configured number for all jobs, and two for light jobs only. One of these uses all processors; the
    /// other, which is used while other jobs run, only its own thread, so that it need not wait for threads without a processor.
    pub(crate) fn start(limits: &Limits, lanes: &Arc<Lanes>, pixels: &Budget) -> std::io::Result<Arc<Self>> {
        let state = State { running: vec![None; limits.workers + 2], ..State::default() };
        let queue = Arc::new(Self {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            light: Budget::shared(limits.queue, limits.client_share, limits.images, 0),
            others: Budget::shared(limits.queue, limits.client_share, limits.images, 0),
            limits: limits.clone(),
            lanes: Arc::clone(lanes),
            pixels: pixels.clone(),
            in_work: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        });
        for worker in 0..limits.workers + 2 {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("work-{worker}")).spawn(move || queue.work(worker))?;
        }
        Ok(queue)
    }

    /// Admits this many images, or refuses them; never blocks.
    pub(crate) fn admit(&self, client: Client, images: usize, weight: Weight) -> Result<Ticket, Problem> {
        let (budget, kind) = if weight == Weight::Light { (&self.light, 0) } else { (&self.others, 1) };
        match budget.take(client, images) {
            Ok(charge) => {
                lock(&self.state).full_since[kind] = None;
                Ok(Ticket { held: Arc::new(charge), weight })
            }
            Err(short) => {
                if short == Short::Server {
                    lock(&self.state).full_since[kind].get_or_insert_with(Instant::now);
                }
                metrics::counter!("flatclip_refused_total").increment(1);
                Err(Problem::busy(short))
            }
        }
    }

    pub(crate) fn push(&self, work: Work, ticket: &Ticket, deadline: Instant) {
        let bytes = work.bytes();
        let mut state = lock(&self.state);
        let client = ticket.held.client();
        if ticket.weight == Weight::Light {
            self.lanes.note_light();
        }
        // A new client starts at the current minimum, not at 0, which would give it precedence.
        let least = state.served.values().min().copied().unwrap_or(0);
        state.served.entry(client).or_insert(least);
        state.waiting.push_back(Job { work, bytes, ticket: ticket.clone(), since: Instant::now(), deadline });
        drop(state);
        self.arrived.notify_all();
    }

    /// Runs a function on a worker and waits for it, at most until the deadline. It does not start if the caller is gone.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        ticket: Ticket,
        deadline: Instant,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.push(Work::function(work, reply), &ticket, deadline);
        drop(ticket);
        wait(answer, deadline).await
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let state = lock(&self.state);
        let age = |since: Option<Instant>| since.map_or(Duration::ZERO, |since| since.elapsed());
        let full = |budget: &Budget, since: Option<Instant>| age(since.filter(|_| budget.used() >= budget.capacity()));
        Gauges {
            waiting: state.waiting.len(),
            in_work: self.in_work.load(Ordering::Relaxed),
            admitted: self.light.used() + self.others.used(),
            peak_in_work: self.peak.load(Ordering::Relaxed),
            full_for: full(&self.light, state.full_since[0]).max(full(&self.others, state.full_since[1])),
            oldest: state.running.iter().map(|&since| age(since)).max().unwrap_or_default(),
        }
    }

    /// Lets the workers stop when the queue is empty.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.arrived.notify_all();
    }

    fn work(&self, worker: usize) {
        let threads = rayon::current_num_threads();
        let is_light = worker >= self.limits.workers;
        // The pools of all workers together have twice as many threads as there are processors.
        let own = lanes::own_pool(match worker.checked_sub(self.limits.workers) {
            None => 2 * threads / self.limits.workers.max(1),
            Some(0) => threads,
            Some(_) => 1,
        });
        while let Some(jobs) = self.next(worker) {
            let count = jobs.len();
            let now = self.in_work.fetch_add(count, Ordering::Relaxed) + count;
            self.peak.fetch_max(now, Ordering::Relaxed);
            metrics::histogram!("flatclip_batch_images").record(count as f64);
            let (works, tickets): (Vec<Work>, Vec<Ticket>) = jobs.into_iter().map(|job| (job.work, job.ticket)).unzip();
            let weight = tickets[0].weight;
            // Replies are sent inside; the tickets are returned afterwards.
            let run = || Batch::new(works).run(&self.pixels);
            caught(|| match &own {
                Some(own) if is_light => own.install(run),
                own => self.lanes.run(weight, own.as_ref(), run),
            });
            self.in_work.fetch_sub(count, Ordering::Relaxed);
            drop(tickets);
            let mut state = lock(&self.state);
            state.running[worker] = None;
            state.heavy -= usize::from(weight == Weight::Heavy);
            let waits = !state.waiting.is_empty();
            drop(state);
            // Which worker may start a waiting job depends on the running ones.
            if waits {
                self.arrived.notify_all();
            }
        }
    }

    /// Whether this worker may start a job of this weight now. Heavy jobs leave one worker free for others.
    fn may_begin(&self, state: &State, worker: usize, weight: Weight) -> bool {
        match weight {
            // One batch at a time uses all processors: two would each take twice as long. Beside other work, which has
            // processors too, others help when the worker for light work is busy.
            Weight::Light => {
                let workers = self.limits.workers;
                let beside = state.running[..workers].iter().any(Option::is_some) || self.lanes.is_building();
                let own = workers + usize::from(beside);
                worker == own || beside && state.running[own].is_some()
            }
            Weight::Normal => worker < self.limits.workers,
            Weight::Heavy => worker < self.limits.workers && state.heavy < self.limits.workers.saturating_sub(1).max(1),
        }
    }

    /// Index of the job that this worker starts next: of the client with the fewest computed views, the job with the fewest views
    /// in relation to its waiting time. Drops jobs that no client waits for.
    fn choose(&self, state: &mut State, worker: usize) -> Option<usize> {
        state.waiting.retain(Job::is_wanted);
        let State { waiting, served, .. } = &mut *state;
        if served.len() > waiting.len() {
            served.retain(|client, _| waiting.iter().any(|job| job.ticket.held.client() == *client));
        }
        let state = &*state;
        let had = |job: &Job| state.served.get(&job.ticket.held.client()).copied().unwrap_or(0);
        let cost = |job: &Job| job.work.views() as f64 / (1.0 + job.since.elapsed().as_secs_f64());
        let open = state.waiting.iter().enumerate().filter(|(_, job)| self.may_begin(state, worker, job.ticket.weight));
        open.min_by(|(_, a), (_, b)| had(a).cmp(&had(b)).then(cost(a).total_cmp(&cost(b)))).map(|(place, _)| place)
    }

    /// The next batch of jobs; `None` if the queue is closed and empty.
    fn next(&self, worker: usize) -> Option<Vec<Job>> {
        let mut state = lock(&self.state);
        let first = loop {
            match self.choose(&mut state, worker).and_then(|place| state.waiting.remove(place)) {
                Some(job) => break job,
                None if state.closed && state.waiting.is_empty() => return None,
                None if state.waiting.is_empty() => {
                    state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                // The job is probably for another worker. That also depends on builds, which send no notification: check again.
                None => state = self.arrived.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0,
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
        for job in &jobs {
            *state.served.entry(job.ticket.held.client()).or_insert(0) += job.work.views();
        }
        state.heavy += usize::from(jobs[0].ticket.weight == Weight::Heavy);
        state.running[worker] = Some(Instant::now());
        let more = !state.waiting.is_empty();
        drop(state);
        if more {
            self.arrived.notify_all();
        }
        Some(jobs)
    }

    /// Adds waiting jobs that can share a call of the tower; returns whether the batch is full.
    fn gather(&self, state: &mut State, jobs: &mut Vec<Job>) -> bool {
        let Some(key) = jobs[0].work.batch_key() else { return true };
        let weight = jobs[0].ticket.weight;
        let mut views: usize = jobs.iter().map(|job| job.work.views()).sum();
        // Large images are left to other workers.
        let mut bytes = jobs.iter().fold(0usize, |all, job| all.saturating_add(job.bytes));
        let most = self.pixels.capacity() / 4;
        let mut at = 0;
        while at < state.waiting.len() && views < self.limits.batch_views {
            let job = &state.waiting[at];
            if !job.is_wanted() {
                state.waiting.remove(at);
            } else if job.work.batch_key() == Some(key)
                && job.ticket.weight == weight
                && views + job.work.views() <= self.limits.batch_views
                && bytes.saturating_add(job.bytes) <= most
            {
                bytes += job.bytes;
                views += job.work.views();
                jobs.extend(state.waiting.remove(at));
            } else {
                at += 1;
            }
        }
        views >= self.limits.batch_views
    }
}

pub(crate) async fn wait<T>(answer: oneshot::Receiver<Result<T, Problem>>, deadline: Instant) -> Result<T, Problem> {
    // Time in the queue and in the worker, as a span of the request's trace.
    match tokio::time::timeout_at(deadline.into(), answer).instrument(tracing::info_span!("queue and work")).await {
        Ok(Ok(answer)) => answer,
        // The worker dropped the job: its deadline has passed, or the server is stopping.
        Ok(Err(_)) => Err(Problem::late()),
        Err(_) => {
            metrics::counter!("flatclip_late_total").increment(1);
            Err(Problem::late())
        }
    }
}

impl Job {
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

    fn queue(workers: usize, queue: usize) -> Arc<Queue> {
        let limits = Limits { workers, queue, client_share: 1.0, ..Limits::default() };
        Queue::start(&limits, &Arc::new(Lanes::start().unwrap()), &Budget::new(1 << 20)).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn me() -> Client {
        Client::default()
    }

    #[tokio::test]
    async fn more_than_the_limit_is_refused_and_tickets_come_back() {
        let queue = queue(1, 3);
        let held = queue.admit(me(), 2, Weight::Normal).unwrap();
        assert_eq!(queue.admit(me(), 2, Weight::Heavy).unwrap_err().status, 429);
        let last = queue.admit(me(), 1, Weight::Normal).unwrap();
        assert_eq!(queue.gauges().admitted, 3);
        assert!(queue.admit(me(), 3, Weight::Light).is_ok(), "light work has tickets of its own");
        drop((held, last));
        assert_eq!(queue.gauges().admitted, 0);
    }

    /// `/readyz` reports not ready after some seconds of this.
    #[tokio::test]
    async fn a_queue_counts_as_full_from_the_first_refusal_until_there_is_room() {
        let queue = queue(1, 2);
        let held = queue.admit(me(), 2, Weight::Normal).unwrap();
        assert_eq!(queue.gauges().full_for, Duration::ZERO, "nobody was refused");
        assert!(queue.admit(me(), 1, Weight::Normal).is_err());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(queue.admit(me(), 1, Weight::Normal).is_err());
        assert!(queue.gauges().full_for >= Duration::from_millis(20), "counted from the first refusal");
        drop(held);
        assert_eq!(queue.gauges().full_for, Duration::ZERO);
        assert!(queue.admit(me(), 2, Weight::Normal).is_ok());
    }

    /// Work that lasts until it is released.
    fn block(queue: &Arc<Queue>, weight: Weight) -> (Arc<AtomicUsize>, tokio::task::JoinHandle<Result<(), Problem>>) {
        let release = Arc::new(AtomicUsize::new(0));
        let (queue, until) = (Arc::clone(queue), Arc::clone(&release));
        let task = tokio::spawn(async move {
            let work = move || {
                while until.load(Ordering::Relaxed) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            };
            queue.run(queue.admit(me(), 1, weight)?, soon(), work).await
        });
        (release, task)
    }

    #[tokio::test]
    async fn work_of_a_client_that_left_is_not_begun_and_a_late_one_is_refused() {
        let queue = queue(1, 8);
        let started = Arc::new(AtomicUsize::new(0));
        let (release, blocker) = block(&queue, Weight::Normal);
        while queue.gauges().in_work == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let other = queue.admit(me(), 1, Weight::Normal).unwrap();
        let count = Arc::clone(&started);
        let work = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let left = tokio::time::timeout(Duration::from_millis(20), queue.run(other.clone(), soon(), work)).await;
        assert!(left.is_err());
        let late = queue.run(other, Instant::now() + Duration::from_millis(10), || Ok(())).await;
        assert_eq!(late.unwrap_err().code, "server.deadline");
        release.store(1, Ordering::Relaxed);
        blocker.await.unwrap().unwrap();
        queue.run(queue.admit(me(), 1, Weight::Normal).unwrap(), soon(), || Ok(())).await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn light_work_does_not_wait_behind_heavy_work_and_heavy_work_leaves_a_worker() {
        let queue = queue(2, 8);
        let heavy: Vec<_> = (0..4).map(|_| block(&queue, Weight::Heavy)).collect();
        while queue.gauges().in_work == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for weight in [Weight::Light, Weight::Normal] {
            let start = Instant::now();
            queue.run(queue.admit(me(), 1, weight).unwrap(), soon(), || Ok(())).await.unwrap();
            assert!(start.elapsed() < Duration::from_secs(5), "{weight:?}");
        }
        // The worker may still be finishing after the reply.
        let start = Instant::now();
        while queue.gauges().in_work != 1 {
            assert!(start.elapsed() < Duration::from_secs(5), "more than one heavy piece of work at a time");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for (release, task) in heavy {
            release.store(1, Ordering::Relaxed);
            task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_answers_its_own_caller_and_the_worker_goes_on() {
        let queue = queue(1, 8);
        let ticket = queue.admit(me(), 1, Weight::Light).unwrap();
        let failed = queue.run::<()>(ticket.clone(), soon(), || panic!("injected")).await;
        assert_eq!(failed.unwrap_err().status, 500);
        assert_eq!(queue.run(ticket, soon(), || Ok(7)).await.unwrap(), 7);
    }
}
