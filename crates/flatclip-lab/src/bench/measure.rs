//! Time and memory of a repeated piece of work.

use flatclip::Result;
use serde::Serialize;
use std::time::Instant;

/// What was measured of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseTiming {
    /// The case with its sizes.
    pub case: String,
    /// Seconds.
    pub median: f64,
    /// Seconds.
    pub fastest: f64,
    /// Seconds.
    pub slowest: f64,
    /// After the one that warms up.
    pub repeats: usize,
    /// Of the median; multiplications and additions of the mathematics, not of padding or recomputation.
    pub gflops: Option<f64>,
    /// Of the rate of bare products in the same precision, measured in the same run.
    pub share: Option<f64>,
    /// Largest resident memory while the case ran, weights included.
    pub peak_rss_mb: Option<f64>,
}

/// One repeat, for a [`TurnTaker`].
#[derive(Clone, Debug, Serialize)]
pub struct Turn<'a> {
    /// The case with its sizes.
    pub case: &'a str,
    /// How long it took.
    pub seconds: f64,
    /// Its arithmetic, in 10^9 operations.
    pub gflop: Option<f64>,
    /// Largest resident memory so far.
    pub peak_rss_mb: Option<f64>,
}

/// Lets another program run between the repeats of a case.
pub trait TurnTaker {
    /// Waits for the next turn; false starts the next case.
    fn wait(&mut self) -> Result<bool>;
    /// The turn is over.
    fn done(&mut self, turn: &Turn<'_>) -> Result<()>;
}

/// Runs `work` once to warm up, then as often as asked.
pub(super) fn measure<R>(
    case: String,
    repeats: usize,
    turns: Option<&mut dyn TurnTaker>,
    flops: Option<f64>,
    mut work: impl FnMut() -> Result<R>,
) -> Result<CaseTiming> {
    reset_peak();
    std::hint::black_box(work()?);
    let mut timed = || seconds(&mut work);
    let times = match turns {
        None => (0..repeats.max(1)).map(|_| timed()).collect::<Result<Vec<f64>>>()?,
        Some(turns) => take_turns(&case, turns, flops, timed)?,
    };
    Ok(CaseTiming::new(case, times, flops))
}

impl CaseTiming {
    pub(super) fn new(case: String, times: Vec<f64>, flops: Option<f64>) -> Self {
        let repeats = times.len();
        let [fastest, median, slowest] = spread(times);
        let gflops = flops.map(|flops| flops / median * 1e-9);
        Self { case, median, fastest, slowest, repeats, gflops, share: None, peak_rss_mb: peak_rss_mb() }
    }
}

/// Smallest, median and largest of at least one value.
pub(super) fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    [values[0], (values[(count - 1) / 2] + values[count / 2]) / 2.0, values[count - 1]]
}

pub(super) fn seconds<R>(work: impl FnOnce() -> Result<R>) -> Result<f64> {
    let start = Instant::now();
    std::hint::black_box(work()?);
    Ok(start.elapsed().as_secs_f64())
}

fn take_turns(
    case: &str,
    turns: &mut dyn TurnTaker,
    flops: Option<f64>,
    mut timed: impl FnMut() -> Result<f64>,
) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    while turns.wait()? {
        let seconds = timed()?;
        times.push(seconds);
        let gflop = flops.map(|flops| flops * 1e-9);
        turns.done(&Turn { case, seconds, gflop, peak_rss_mb: peak_rss_mb() })?;
    }
    // A case that was passed over has no times.
    if times.is_empty() {
        times.push(f64::NAN);
    }
    Ok(times)
}

/// Asks the kernel to forget the largest resident size so far. Where it cannot, the peak is that of the whole process.
pub(super) fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The largest resident size in millions of bytes, where the system reports it.
pub(super) fn peak_rss_mb() -> Option<f64> {
    let (_, peak) = flatclip::resident_memory();
    (peak > 0).then_some(peak as f64 * 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_and_rates_fit_together() {
        let mut calls = 0;
        let timing = measure("nap".to_owned(), 4, None, Some(1e6), || {
            calls += 1;
            std::thread::sleep(std::time::Duration::from_millis(2));
            Ok(())
        })
        .expect("nothing fails");
        assert_eq!((calls, timing.repeats), (5, 4));
        assert!(timing.fastest <= timing.median && timing.median <= timing.slowest && timing.fastest >= 0.002);
        assert!((timing.gflops.expect("flops were given") - 1e-3 / timing.median).abs() < 1e-9);
    }
}
