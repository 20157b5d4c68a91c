//! Classifiers are built by two separate threads: one for short builds and one, at lower priority, for long ones. Requests for
//! the same classifier share one build; it continues if they disconnect, and its result is cached.

use crate::cache::{Built, Cached, Classifiers};
use crate::cost::{self, Rates};
use crate::lanes::Lanes;
use crate::work::caught;
use crate::{Client, Limits, Problem, Weight, lock};
use flatclip::{ClassifierBuilder, Model, Progress};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Maximum estimated seconds of a short build.
const SHORT: f64 = 1.0;
/// Maximum waiting builds of each kind; one client may have half of them.
const MOST_WAITING: usize = 32;

/// What to build; the key identifies it in the cache.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) key: String,
    pub(crate) model: Model,
    pub(crate) builder: ClassifierBuilder,
    pub(crate) cost: BuildCost,
}

/// What a classifier needs.
#[derive(Clone, Copy)]
pub(crate) struct BuildCost {
    /// Texts that go through the text tower.
    pub(crate) texts: usize,
    /// Memory of the classifier.
    pub(crate) bytes: usize,
    /// Memory of answering one image with it.
    pub(crate) work_bytes: usize,
}

pub(crate) struct Builds {
    state: Mutex<State>,
    arrived: Condvar,
    lanes: Arc<Lanes>,
    pub(crate) classifiers: Classifiers,
    pub(crate) rates: Arc<Rates>,
    limits: Limits,
}

#[derive(Default)]
struct State {
    waiting: Vec<Arc<Build>>,
    /// Waiting and running builds.
    open: HashMap<String, Arc<Build>>,
    closed: bool,
}

struct Build {
    order: Order,
    client: Client,
    seconds: f64,
    asked: Instant,
    started: OnceLock<Instant>,
    /// Texts of the finished stages, and of all stages so far.
    stages: AtomicU64,
    done: AtomicU64,
    /// Whether a client was told to retry later.
    is_promised: AtomicBool,
    is_cancelled: AtomicBool,
    limit: Duration,
    lanes: Arc<Lanes>,
    /// When the last chunk of texts was done.
    chunk: Mutex<Option<Instant>>,
    finished: watch::Sender<Option<Result<Cached, Problem>>>,
}

/// The library reports how many texts are done, and checks whether to stop.
impl Progress for Build {
    fn start(&self, _stage: &str, _total: Option<u64>) {
        self.stages.store(self.done.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn advance(&self, done: u64, _status: &str) {
        self.done.store(self.stages.load(Ordering::Relaxed) + done, Ordering::Relaxed);
        self.rest();
    }

    fn cancelled(&self) -> bool {
        // The estimate may be wrong: cancel at twice the limit.
        let is_late = self.started.get().is_some_and(|start| start.elapsed() > self.limit * 2);
        self.is_cancelled.load(Ordering::Relaxed) || is_late
    }
}

/// The longest pause between two chunks.
const REST: Duration = Duration::from_millis(200);

impl Build {
    /// While light jobs arrive, a long build pauses after each chunk for as long as the chunk took.
    fn rest(&self) {
        let mut chunk = lock(&self.chunk);
        let took = chunk.or(self.started.get().copied()).map_or(Duration::ZERO, |last| last.elapsed());
        if !self.is_short() && self.lanes.is_light_expected() && !self.is_cancelled.load(Ordering::Relaxed) {
            std::thread::sleep(took.min(REST));
        }
        *chunk = Some(Instant::now());
    }

    fn is_short(&self) -> bool {
        self.seconds <= SHORT
    }

    fn is_wanted(&self) -> bool {
        self.is_promised.load(Ordering::Relaxed) || self.finished.receiver_count() > 0
    }

    /// Estimated remaining seconds, from the progress so far.
    fn seconds_left(&self) -> f64 {
        let done = self.done.load(Ordering::Relaxed) as f64;
        let Some(start) = self.started.get().filter(|_| done > 0.0) else { return self.seconds };
        let left = (self.order.cost.texts as f64 - done).max(0.0);
        start.elapsed().as_secs_f64() / done * left
    }

    /// The response if the build takes longer than the client can wait.
    fn promise(&self) -> Problem {
        self.is_promised.store(true, Ordering::Relaxed);
        let (done, total) = (self.done.load(Ordering::Relaxed), self.order.cost.texts);
        Problem::building(done, total, self.seconds_left())
    }
}

impl Builds {
    pub(crate) fn start(limits: &Limits, lanes: &Arc<Lanes>, classifiers: Classifiers) -> std::io::Result<Arc<Self>> {
        let builds = Arc::new(Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            lanes: Arc::clone(lanes),
            classifiers,
            rates: Arc::default(),
            limits: limits.clone(),
        });
        for is_short in [true, false] {
            let builds = Arc::clone(&builds);
            let name = if is_short { "build-short" } else { "build-long" };
            std::thread::Builder::new().name(name.to_owned()).spawn(move || builds.work(is_short))?;
        }
        Ok(builds)
    }

    /// A classifier that is not cached, or an error with the estimated time if it cannot be built before the deadline; the build then continues.
    pub(crate) async fn get(&self, order: Order, client: Client, deadline: Instant) -> Result<Cached, Problem> {
        let seconds = self.estimate(&order).await?;
        let limit = Duration::from_millis(self.limits.build_ms);
        cost::check("classes x templates", order.cost.texts, seconds, limit)?;
        let build = match self.join(order, client, seconds, limit) {
            Ok(build) => build,
            Err(answer) => return answer,
        };
        let mut finished = build.finished.subscribe();
        let left = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        if build.seconds_left() > left {
            return Err(build.promise());
        }
        match tokio::time::timeout_at(deadline.into(), finished.wait_for(Option::is_some)).await {
            Ok(Ok(done)) => done.clone().unwrap_or_else(|| Err(Problem::internal())),
            Ok(Err(_)) => Err(Problem::late()),
            Err(_) => Err(build.promise()),
        }
    }

    async fn estimate(&self, order: &Order) -> Result<f64, Problem> {
        if order.cost.texts == 0 {
            return Ok(0.0);
        }
        let rate = match self.rates.known(&order.model) {
            Some(rate) => rate,
            None => {
                let (rates, model) = (Arc::clone(&self.rates), order.model.clone());
                let measured = tokio::task::spawn_blocking(move || rates.of(&model)).await;
                measured.map_err(|_| Problem::internal())??
            }
        };
        Ok(order.cost.texts as f64 / rate)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.state).open.len()
    }

    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.open.values().for_each(|build| build.is_cancelled.store(true, Ordering::Relaxed));
        state.waiting.clear();
        drop(state);
        self.arrived.notify_all();
    }

    /// The waiting or running build of this key, or a new one; an error is the answer without a build.
    fn join(
        &self,
        order: Order,
        client: Client,
        seconds: f64,
        limit: Duration,
    ) -> Result<Arc<Build>, Result<Cached, Problem>> {
        let mut state = lock(&self.state);
        if let Some(build) = state.open.get(&order.key) {
            return Ok(Arc::clone(build));
        }
        if let Some(cached) = self.classifiers.get(&order.key) {
            return Err(Ok(cached)); // finished meanwhile
        }
        state.sweep();
        let is_short = seconds <= SHORT;
        let others = state.waiting.iter().filter(|build| build.is_short() == is_short);
        let (all, own) = others.fold((0, 0), |(all, own), build| (all + 1, own + usize::from(build.client == client)));
        if all >= MOST_WAITING || own >= MOST_WAITING / 2 {
            metrics::counter!("flatclip_refused_total").increment(1);
            return Err(Err(Problem::busy_building(all)));
        }
        let build = Arc::new(Build {
            order,
            client,
            seconds,
            asked: Instant::now(),
            started: OnceLock::new(),
            stages: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_promised: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            limit,
            lanes: Arc::clone(&self.lanes),
            chunk: Mutex::new(None),
            finished: watch::Sender::new(None),
        });
        state.open.insert(build.order.key.clone(), Arc::clone(&build));
        state.waiting.push(Arc::clone(&build));
        drop(state);
        self.arrived.notify_all();
        Ok(build)
    }

    fn work(&self, is_short: bool) {
        while let Some(build) = self.next(is_short) {
            let _ = build.started.set(Instant::now());
            let done = caught(|| self.build(&build, is_short)).unwrap_or_else(|| Err(Problem::internal()));
            if let Ok(cached) = &done {
                self.classifiers.put(&build.order.key, Arc::clone(cached));
            }
            lock(&self.state).open.remove(&build.order.key);
            build.finished.send_replace(Some(done));
        }
    }

    fn build(&self, build: &Arc<Build>, is_short: bool) -> Result<Cached, Problem> {
        let Order { builder, model, cost, .. } = &build.order;
        let charge = self.classifiers.charge(cost.bytes)?;
        let start = Instant::now();
        let make = || builder.clone().progress(Arc::clone(build) as _).build();
        let classifier = if is_short { self.lanes.run(Weight::Normal, None, make) } else { self.lanes.build(make) }?;
        self.rates.observe(model, cost.texts, start.elapsed());
        metrics::histogram!("flatclip_build_seconds").record(start.elapsed().as_secs_f64());
        Ok(Arc::new(Built { classifier, work_bytes: cost.work_bytes, charge }))
    }

    /// The next build of a kind: the one with the fewest texts in relation to its waiting time.
    fn next(&self, is_short: bool) -> Option<Arc<Build>> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            state.sweep();
            let cost = |build: &Build| build.order.cost.texts as f64 / (1.0 + build.asked.elapsed().as_secs_f64());
            let open = state.waiting.iter().enumerate().filter(|(_, build)| build.is_short() == is_short);
            let first = open.min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b))).map(|(place, _)| place);
            if let Some(place) = first {
                return Some(state.waiting.remove(place));
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// Removes waiting builds that no client waits for.
    fn sweep(&mut self) {
        let open = &mut self.open;
        self.waiting.retain(|build| {
            // The client of a new build may not have subscribed yet.
            let is_wanted = build.is_wanted() || build.asked.elapsed() < Duration::from_millis(100);
            if !is_wanted {
                open.remove(&build.order.key);
            }
            is_wanted
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::Classifier;

    struct Room {
        builds: Arc<Builds>,
        model: Model,
    }

    fn room(limits: Limits) -> Room {
        let lanes = Arc::new(Lanes::start().unwrap());
        let builds = Builds::start(&limits, &lanes, Classifiers::new(8, 64 << 20)).unwrap();
        Room { builds, model: Model::load("pocket").unwrap() }
    }

    impl Room {
        /// A build of so many classes, in 80 templates each.
        fn order(&self, key: &str, classes: usize) -> Order {
            let names: Vec<String> = (0..classes).map(|number| format!("thing {number}")).collect();
            Order {
                key: key.to_owned(),
                model: self.model.clone(),
                builder: Classifier::builder(&self.model).classes(names).ensemble("imagenet80").unwrap(),
                cost: BuildCost { texts: classes * 80, bytes: 1 << 20, work_bytes: 0 },
            }
        }
    }

    fn within(seconds: f64) -> Instant {
        Instant::now() + Duration::from_secs_f64(seconds)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_share_a_build_and_it_is_kept_when_they_leave() {
        let room = room(Limits::default());
        let ask = || {
            let (builds, order) = (Arc::clone(&room.builds), room.order("a", 30));
            tokio::spawn(async move { builds.get(order, Client::default(), within(60.0)).await })
        };
        let (first, second) = (ask(), ask());
        let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
        assert!(Arc::ptr_eq(&first, &second), "built twice");
        // A client that disconnects at once: a build that has started is finished anyway.
        let left = tokio::time::timeout(
            Duration::from_millis(150),
            room.builds.get(room.order("b", 1500), Client::default(), within(600.0)),
        );
        assert!(left.await.is_err(), "the build was too short for this test");
        let until = within(300.0);
        while room.builds.classifiers.get("b").is_none() {
            assert!(Instant::now() < until, "what was begun was thrown away");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_takes_too_long_is_refused_or_promised_with_its_number_and_others_are_built_meanwhile() {
        let room = room(Limits::default());
        let promised = room.builds.get(room.order("long", 1500), Client::default(), within(0.05)).await.err().unwrap();
        assert_eq!((promised.status.as_u16(), promised.code), (503, "classifier.building"));
        assert!(promised.message.contains("120000 texts"), "{}", promised.message);
        let mut short = room.order("short", 1);
        short.cost.texts = 1;
        assert!(room.builds.get(short, Client::default(), within(30.0)).await.is_ok());
        room.builds.close(); // cancels the long one between chunks
        let until = within(60.0);
        while room.builds.len() > 0 {
            assert!(Instant::now() < until, "a build cannot be cancelled");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(room.builds.classifiers.get("long").is_none());
        let strict = self::room(Limits { build_ms: 1, ..Limits::default() });
        let refused = strict.builds.get(strict.order("x", 1500), Client::default(), within(30.0)).await.err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.code), (413, "limit.exceeded"));
    }
}
