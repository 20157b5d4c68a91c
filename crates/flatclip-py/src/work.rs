//! Runs work on a thread pool of this process. Meanwhile the calling Python thread waits with the GIL released, checks for
//! signals and reports progress. Workers enter Python only to call the user's code: towers (`bridge.rs`, `tower.rs`), a method
//! (`own`), a loss (`tuning.rs`). Work that such code starts runs on the same worker: waiting for another worker could
//! deadlock.

use crate::{errors, lock};
use flatclip::Progress;
use pyo3::exceptions::{PyRuntimeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the waiting thread checks for signals and progress.
const POLL: Duration = Duration::from_millis(50);
/// How long cancelled work may take to save its results before control returns to Python.
const GRACE: Duration = Duration::from_millis(700);

struct Pool {
    process: u32,
    threads: usize,
    pool: Arc<rayon::ThreadPool>,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);
/// The requested number of threads; 0 means one per core.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The pool of this process. A forked child has none of its parent's threads, so it gets a new pool.
fn pool() -> PyResult<Arc<rayon::ThreadPool>> {
    let mut slot = lock(&POOL);
    let (process, threads) = (std::process::id(), THREADS.load(Ordering::Relaxed));
    if let Some(kept) = slot.as_ref().filter(|kept| kept.process == process && kept.threads == threads) {
        return Ok(Arc::clone(&kept.pool));
    }
    let name = |index| format!("flatclip-{index}");
    let built = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
    let pool = Arc::new(built.map_err(|error| PyRuntimeError::new_err(format!("no thread pool: {error}")))?);
    let old = slot.replace(Pool { process, threads, pool: Arc::clone(&pool) });
    if let Some(old) = old.filter(|old| old.process != process) {
        // Dropping the parent's pool would wait for threads that do not exist in this process.
        std::mem::forget(old);
    }
    Ok(pool)
}

/// Sets the number of threads for all further work of this process; 0 means one per core.
#[pyfunction]
pub(crate) fn set_num_threads(threads: usize) -> PyResult<()> {
    if threads > 4096 {
        return Err(PyValueError::new_err(format!("threads: expected at most 4096, found {threads}")));
    }
    THREADS.store(threads, Ordering::Relaxed);
    Ok(())
}

/// The number of threads that work uses.
#[pyfunction]
pub(crate) fn get_num_threads() -> PyResult<usize> {
    Ok(pool()?.current_num_threads())
}

enum Event {
    Start(String, Option<u64>),
    Advance(u64, String),
    Note(String),
    Warn(String),
    Finish,
}

/// Messages of the work that the waiting thread has not yet read, and the stop flag.
#[derive(Default)]
pub(crate) struct Watch {
    stop: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Watch {
    fn push(&self, event: Event) {
        let mut events = lock(&self.events);
        // Only the latest step is shown.
        if matches!((&event, events.last()), (Event::Advance(..), Some(Event::Advance(..)))) {
            events.pop();
        }
        events.push(event);
    }

    /// Passes all pending messages to the watcher; warnings always go to Python's `warnings`.
    fn tell(&self, py: Python<'_>, watcher: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let events = std::mem::take(&mut *lock(&self.events));
        for event in events {
            match (event, watcher) {
                (Event::Warn(text), _) => warn(py, &text)?,
                (_, None) => {}
                (Event::Start(stage, total), Some(watcher)) => drop(watcher.call_method1("start", (stage, total))?),
                (Event::Advance(done, status), Some(watcher)) => {
                    drop(watcher.call_method1("advance", (done, status))?);
                }
                (Event::Note(text), Some(watcher)) => drop(watcher.call_method1("note", (text,))?),
                (Event::Finish, Some(watcher)) => drop(watcher.call_method0("finish")?),
            }
        }
        Ok(())
    }
}

impl Progress for Watch {
    fn start(&self, stage: &str, total: Option<u64>) {
        self.push(Event::Start(stage.to_owned(), total));
    }
    fn advance(&self, done: u64, status: &str) {
        self.push(Event::Advance(done, status.to_owned()));
    }
    fn note(&self, text: &str) {
        self.push(Event::Note(text.to_owned()));
    }
    fn warn(&self, text: &str) {
        self.push(Event::Warn(text.to_owned()));
    }
    fn finish(&self) {
        self.push(Event::Finish);
    }
    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)
}

/// Runs work that owns its data. After an interrupt, waits for it no longer than [`GRACE`]; it may then still be running.
pub(crate) fn run<T, F>(py: Python<'_>, watcher: Option<&Bound<'_, PyAny>>, work: F) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce(&Watch) -> flatclip::Result<T> + Send + 'static,
{
    if rayon::current_thread_index().is_some() {
        return inside(py, work);
    }
    let watch = Arc::new(Watch::default());
    let (sender, mut receiver) = sync_channel(1);
    let theirs = Arc::clone(&watch);
    pool()?.spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(|| work(&theirs)));
        let _ = sender.send(done.map_err(|panic| told(&*panic)));
    });
    wait(py, &watch, watcher, &mut receiver, true)
}

/// Runs work that borrows from the caller. After an interrupt, waits until the work has stopped.
pub(crate) fn run_borrowing<T, F>(py: Python<'_>, watcher: Option<&Bound<'_, PyAny>>, work: F) -> PyResult<T>
where
    T: Send,
    F: FnOnce(&Watch) -> flatclip::Result<T> + Send,
{
    if rayon::current_thread_index().is_some() {
        return inside(py, work);
    }
    let watch = Watch::default();
    let (sender, mut receiver) = sync_channel(1);
    let theirs = &watch;
    pool()?.in_place_scope(|scope| {
        scope.spawn(move |_| {
            let done = catch_unwind(AssertUnwindSafe(|| work(theirs)));
            let _ = sender.send(done.map_err(|panic| told(&*panic)));
        });
        wait(py, &watch, watcher, &mut receiver, false)
    })
}

/// Runs work on a worker that is already inside Python code.
fn inside<T: Send>(py: Python<'_>, work: impl FnOnce(&Watch) -> flatclip::Result<T> + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&Watch::default()))));
    finished(py, done.map_err(|panic| told(&*panic)))
}

type Done<T> = Result<flatclip::Result<T>, String>;

fn wait<T: Send>(
    py: Python<'_>,
    watch: &Watch,
    watcher: Option<&Bound<'_, PyAny>>,
    receiver: &mut Receiver<Done<T>>,
    may_leave: bool,
) -> PyResult<T> {
    let mut stopped: Option<(PyErr, Instant)> = None;
    loop {
        let mine = &mut *receiver;
        let received = py.detach(move || mine.recv_timeout(POLL));
        if stopped.is_none()
            && let Err(error) = watch.tell(py, watcher).and_then(|()| py.check_signals())
        {
            watch.stop.store(true, Ordering::Relaxed);
            stopped = Some((error, Instant::now()));
        }
        match (received, &stopped) {
            (Ok(_), Some(_)) => break,
            (Ok(done), None) => return finished(py, done),
            (Err(RecvTimeoutError::Timeout), Some((_, since))) if may_leave && since.elapsed() > GRACE => break,
            (Err(RecvTimeoutError::Timeout), _) => {}
            (Err(RecvTimeoutError::Disconnected), _) => return finished(py, Err("the work has vanished".to_owned())),
        }
    }
    // The loop ends only with an interrupt or an error of the watcher.
    Err(stopped.map_or_else(|| PyRuntimeError::new_err("interrupted"), |(error, _)| error))
}

fn finished<T>(py: Python<'_>, done: Done<T>) -> PyResult<T> {
    match done {
        Ok(result) => result.map_err(|error| errors::raised(py, error)),
        Err(panic) => Err(errors::internal(py, &panic)),
    }
}

fn told(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
