//! Progress on a terminal: a bar for each stage, notes and warnings as lines, Ctrl-C as a request to stop.

use crate::output::Output;
use flatclip::Progress;
use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The signal that asked to stop; 0 while there was none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Signals this close together are one request to stop.
const SAME_MOMENT: Duration = Duration::from_millis(300);

/// The exit code of a process that this signal ended, as shells count it: 130 for Ctrl-C, 143 for `kill`.
pub(crate) fn interrupt_code() -> Option<u8> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}

/// Watches long work for the person at the terminal.
pub(crate) struct Terminal<'a> {
    out: &'a Output,
    bar: Mutex<Option<ProgressBar>>,
    stop: Arc<AtomicBool>,
}

impl<'a> Terminal<'a> {
    /// Interrupts end the program as usual.
    pub(crate) fn new(out: &'a Output) -> Self {
        Self { out, bar: Mutex::default(), stop: Arc::default() }
    }

    /// The first SIGINT or SIGTERM makes the work save and stop; a second one ends the process the usual way, so that
    /// a run that hangs can still be stopped. Signals of the same moment are one: `timeout` sends its signal to the
    /// process and to its group.
    pub(crate) fn with_interrupts(out: &'a Output) -> anyhow::Result<Self> {
        let terminal = Self::new(out);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let stop = Arc::clone(&terminal.stop);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut asked: Option<Instant> = None;
            for signal in signals.forever() {
                match asked {
                    None => {
                        asked = Some(Instant::now());
                        SIGNAL.store(signal, Ordering::Relaxed);
                        stop.store(true, Ordering::Relaxed);
                    }
                    Some(moment) if moment.elapsed() < SAME_MOMENT => {}
                    Some(_) => drop(emulate_default_handler(signal)),
                }
            }
        })?;
        Ok(terminal)
    }

    /// Writes a line without tearing the bar.
    pub(crate) fn line(&self, write: impl FnOnce()) {
        match &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn replace(&self, bar: Option<ProgressBar>) {
        let mut slot = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = std::mem::replace(&mut *slot, bar) {
            old.finish_and_clear();
        }
    }
}

impl Progress for Terminal<'_> {
    fn start(&self, stage: &str, total: Option<u64>) {
        self.replace(Some(self.out.progress(total.unwrap_or(0), stage)));
    }

    fn advance(&self, done: u64, status: &str) {
        if let Some(bar) = &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.set_message(status.to_owned());
            bar.set_position(done);
        }
    }

    fn note(&self, text: &str) {
        self.line(|| self.out.note(text));
    }

    fn warn(&self, text: &str) {
        self.line(|| self.out.warn(text));
    }

    fn finish(&self) {
        self.replace(None);
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
