//! Time and memory of a repeated piece of work.

use serde::Serialize;
use std::io::Write as _;
use std::time::Instant;

/// How often a case runs after it has warmed up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeats {
    Count(usize),
    /// Once for every line `run` on stdin, with one line of JSON as the answer, until a line `next`: another program takes
    /// the turns between.
    Turns,
}

/// What was measured of a case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Timing {
    pub(super) case: String,
    /// Seconds.
    pub(super) median: f64,
    pub(super) fastest: f64,
    pub(super) slowest: f64,
    pub(super) repeats: usize,
    /// Of the median; multiplications and additions of the mathematics, not of padding or recomputation.
    pub(super) gflops: Option<f64>,
    /// Of the rate of bare products in the same precision, measured in the same run.
    pub(super) share: Option<f64>,
    /// Largest resident memory while the case ran, weights included.
    pub(super) peak_rss_mb: Option<f64>,
}

/// Runs `work` once to warm up, then as often as asked.
pub(super) fn measure<R>(
    case: impl Into<String>,
    repeats: Repeats,
    flops: Option<f64>,
    mut work: impl FnMut() -> anyhow::Result<R>,
) -> anyhow::Result<Timing> {
    let case = case.into();
    reset_peak();
    std::hint::black_box(work()?);
    let mut timed = || -> anyhow::Result<f64> {
        let start = Instant::now();
        std::hint::black_box(work()?);
        Ok(start.elapsed().as_secs_f64())
    };
    let times = match repeats {
        Repeats::Count(count) => (0..count.max(1)).map(|_| timed()).collect::<anyhow::Result<Vec<f64>>>()?,
        Repeats::Turns => take_turns(&case, flops, timed)?,
    };
    Ok(Timing::new(case, times, flops))
}

impl Timing {
    fn new(case: String, mut times: Vec<f64>, flops: Option<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let repeats = times.len();
        let median = (times[(repeats - 1) / 2] + times[repeats / 2]) / 2.0;
        Self {
            case,
            median,
            fastest: times[0],
            slowest: times[repeats - 1],
            repeats,
            gflops: flops.map(|flops| flops / median * 1e-9),
            share: None,
            peak_rss_mb: peak_rss_mb(),
        }
    }
}

fn take_turns(
    case: &str,
    flops: Option<f64>,
    mut timed: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for line in std::io::stdin().lines() {
        match line?.trim() {
            "run" => times.push(timed()?),
            "next" => break,
            other => anyhow::bail!("--turns: expected `run` or `next` on stdin, found {other:?}"),
        }
        if let Some(&seconds) = times.last() {
            let answer = serde_json::json!({
                "case": case, "seconds": seconds, "gflop": flops.map(|flops| flops * 1e-9), "peak_rss_mb": peak_rss_mb(),
            });
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "{answer}")?;
            stdout.flush()?;
        }
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

/// The largest resident size in millions of bytes, where the system tells.
pub(super) fn peak_rss_mb() -> Option<f64> {
    let (_, peak) = flatclip::eval::memory();
    (peak > 0).then_some(peak as f64 * 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_and_rates_fit_together() {
        let mut calls = 0;
        let timing = measure("nap", Repeats::Count(4), Some(1e6), || {
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
