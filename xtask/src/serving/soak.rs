//! A load for a while at a share of the capacity: memory and open files must stay flat.

use super::load::{Until, run as load};
use super::running::Running;
use crate::serving::http::post_form;
use anyhow::{Result, ensure};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Share of the capacity that is measured first
    #[arg(long, default_value_t = 0.8)]
    share: f64,
}

/// What a soak found.
pub struct Soaked {
    pub requests: usize,
    pub errors: usize,
    pub files_before: usize,
    pub files_after: usize,
    /// Kilobytes per ten minutes, by least squares over the second half.
    pub slope_kb: f64,
    /// Seconds and bytes.
    samples: Vec<(f64, u64)>,
    rate: f64,
    p99: f64,
}

impl Soaked {
    /// Below 1 MB in ten minutes; over a short time, where a page more or less is a steep slope, no growth above 2 MB. Growth is
    /// that of the line, not of two samples: a single one has a request's buffers in it.
    pub fn is_flat(&self) -> bool {
        let seconds = self.samples.last().map_or(0.0, |last| last.0);
        let grown_kb = self.slope_kb * (seconds / 2.0) / 600.0;
        self.slope_kb < 1024.0 || (seconds < 600.0 && grown_kb < 2048.0)
    }
}

/// Requests of several kinds, so that caches, sessions and errors take part.
fn requests() -> Result<Vec<Vec<u8>>> {
    let mut requests = Vec::new();
    for number in 0..12u32 {
        let rgb = (0..96 * 96 * 3u32).map(|place| (place * 5 + number * 29 + place / 211 * number) as u8).collect();
        let image = flatclip::Image { width: 96, height: 96, rgb };
        let png = flatclip::image::sheet::encode_png(&image)?;
        let (method, views) = [("zero-shot", "1"), ("zero", "16"), ("stss", "32"), ("vte", "8")][number as usize % 4];
        let fields = [("classes", "fish,lamp,snail,boat,clock"), ("method", method), ("views", views)];
        requests.push(post_form("/v1/classify", &fields, &[&png]));
    }
    Ok(requests)
}

pub fn soak(binary: &Path, folder: &Path, seconds: f64, share: f64) -> Result<Soaked> {
    let server = Running::start(binary, folder, &[])?;
    let requests = requests()?;
    load(server.address, 4, Until::Seconds(3.0), None, &requests)?;
    let capacity =
        load(server.address, 8, Until::Seconds((seconds / 20.0).clamp(3.0, 20.0)), None, &requests)?.per_second();
    let rate = capacity * share;
    let files_before = server.files()?;
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    let (outcome, samples) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut samples = Vec::new();
            while !over.load(Ordering::Relaxed) {
                samples.push((start.elapsed().as_secs_f64(), server.memory().unwrap_or(0)));
                std::thread::sleep(Duration::from_millis(500));
            }
            samples
        });
        let outcome = load(server.address, 16, Until::Seconds(seconds), Some(rate), &requests);
        over.store(true, Ordering::Relaxed);
        (outcome, watch.join().unwrap_or_default())
    });
    let outcome = outcome?;
    ensure!(samples.len() >= 4, "too short");
    std::thread::sleep(Duration::from_millis(300));
    Ok(Soaked {
        requests: outcome.statuses.values().sum(),
        errors: outcome.statuses.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum(),
        files_before,
        files_after: server.files()?,
        slope_kb: slope(&samples[samples.len() / 2..]) * 600.0 / 1024.0,
        samples,
        rate,
        p99: outcome.quantile(0.99),
    })
}

/// Bytes per second by least squares.
fn slope(samples: &[(f64, u64)]) -> f64 {
    let n = samples.len() as f64;
    let (mx, my) = (samples.iter().map(|s| s.0).sum::<f64>() / n, samples.iter().map(|s| s.1 as f64).sum::<f64>() / n);
    let above: f64 = samples.iter().map(|s| (s.0 - mx) * (s.1 as f64 - my)).sum();
    above / samples.iter().map(|s| (s.0 - mx).powi(2)).sum::<f64>().max(f64::MIN_POSITIVE)
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::root()?;
    let binary = crate::build(root)?;
    // A copy: what is built meanwhile does not change what runs.
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("flatclip");
    std::fs::copy(&binary, &copy)?;
    let found = soak(&copy, folder.path(), arguments.minutes * 60.0, arguments.share)?;
    for (seconds, bytes) in found.samples.iter().step_by((found.samples.len() / 30).max(1)) {
        println!("{:>7.0} s  {:>8.1} MB", seconds, *bytes as f64 / 1048576.0);
    }
    println!(
        "{} requests in {} minutes at {:.1} per second ({:.0} % of the capacity), {} errors, p99 {:.0} ms; memory {:+.0} KB per 10 \
         minutes over the second half; {} open files before, {} after",
        found.requests,
        arguments.minutes,
        found.rate,
        arguments.share * 100.0,
        found.errors,
        found.p99,
        found.slope_kb,
        found.files_before,
        found.files_after
    );
    ensure!(found.errors == 0 && found.is_flat(), "not flat, or errors");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_slope_is_bytes_per_second() {
        let samples: Vec<(f64, u64)> = (0..10).map(|t| (f64::from(t), 1000 + 50 * t as u64)).collect();
        assert!((super::slope(&samples) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_short_soak_may_grow_by_its_noise_and_a_long_one_may_not() {
        let soaked = |seconds: f64, slope_kb: f64| super::Soaked {
            requests: 1,
            errors: 0,
            files_before: 1,
            files_after: 1,
            slope_kb,
            samples: vec![(0.0, 1), (seconds, 1)],
            rate: 1.0,
            p99: 1.0,
        };
        assert!(soaked(120.0, 3374.0).is_flat() && soaked(1800.0, 1000.0).is_flat());
        assert!(!soaked(120.0, 30_000.0).is_flat() && !soaked(1800.0, 1100.0).is_flat());
    }
}
