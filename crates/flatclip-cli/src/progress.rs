//! Progress of long work: a bar for each stage on a terminal, else a line at intervals, so that the log of a job shows it;
//! Ctrl-C as a request to stop.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Signals this close together are one request to stop.
const SAME_MOMENT: Duration = Duration::from_millis(300);

/// Time between two lines where there is no terminal. Shorter work prints none.
const EVERY: Duration = Duration::from_secs(60);

/// The exit code of a process that this signal ended, as shells count it: 130 for Ctrl-C, 143 for `kill`.
pub(crate) fn interrupt_code() -> Option<u8> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}

/// The first SIGINT or SIGTERM makes the work save and stop; a second one ends the process the usual way, so that a run that
/// hangs can still be stopped. Signals of the same moment are one: `timeout` sends its signal to the process and to its group.
pub(crate) fn stop_at_signals() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watch = move || {
        let mut asked: Option<Instant> = None;
        for signal in signals.forever() {
            match asked {
                None => {
                    asked = Some(Instant::now());
                    SIGNAL.store(signal, Ordering::Relaxed);
                }
                Some(moment) if moment.elapsed() < SAME_MOMENT => {}
                Some(_) => drop(emulate_default_handler(signal)),
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop)
}

pub(crate) struct Stage {
    name: String,
    /// Hidden where there is no terminal.
    pub(crate) bar: ProgressBar,
    total: u64,
    /// Steps and time when the first ones were seen.
    first: Option<(u64, Instant)>,
    /// When the last line was written in place of the bar.
    written: Instant,
}

impl Stage {
    pub(crate) fn new(name: &str, total: u64, quiet: bool, now: Instant) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}");
        let bar = ProgressBar::with_draw_target(Some(total), target)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_prefix(name.to_owned());
        Self { name: name.to_owned(), bar, total, first: None, written: now }
    }

    /// Moves the bar, with the time that is left at the mean pace since the first step that was seen: work comes in batches,
    /// which mislead an estimate from the last moments, and a resumed run does not start at zero. Gives the line of a log when it is
    /// due.
    pub(crate) fn advance(&mut self, done: u64, status: &str, now: Instant) -> Option<String> {
        let mut status = status.to_owned();
        if done > 0 {
            let (from, start) = *self.first.get_or_insert((done, now));
            let left = remaining(done.saturating_sub(from), self.total.saturating_sub(done), now - start);
            status.extend(left.map(|left| format!(" {:#} left", HumanDuration(left))));
        }
        let due = self.bar.is_hidden() && now.duration_since(self.written) >= EVERY;
        let line = due.then(|| format!("{} {done}/{} {status}", self.name, self.total).trim_end().to_owned());
        if due {
            self.written = now;
        }
        self.bar.set_message(status);
        self.bar.set_position(done);
        line
    }
}

/// The time of `left` steps when `done` took `elapsed`; none before the first step.
fn remaining(done: u64, left: u64, elapsed: Duration) -> Option<Duration> {
    Duration::try_from_secs_f64(elapsed.as_secs_f64() / done as f64 * left as f64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_once_per_interval_with_the_time_that_is_left() {
        let start = Instant::now();
        let mut stage = Stage::new("images", 20, true, start);
        assert_eq!(stage.advance(5, "", start + EVERY / 2), None);
        assert_eq!(stage.advance(5, "", start + EVERY).as_deref(), Some("images 5/20"));
        assert_eq!(stage.advance(7, "", start + EVERY + EVERY / 2), None);
        assert_eq!(stage.advance(8, "2/s", start + 2 * EVERY).as_deref(), Some("images 8/20 2/s 6m left"));
    }

    #[test]
    fn time_left_follows_the_mean_pace() {
        assert_eq!(remaining(32, 64, Duration::from_secs(60)), Some(Duration::from_secs(120)));
        assert_eq!(remaining(5, 0, Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(remaining(0, 64, Duration::from_secs(60)), None);
        assert_eq!(remaining(0, 64, Duration::ZERO), None);
    }
}
