//! A load for a while at a share of the capacity, where memory and open files must stay flat, and loads above it.

use super::load::{Outcome, Until, run as load};
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
struct Soaked {
    requests: usize,
    errors: usize,
    files_before: usize,
    files_after: usize,
    /// Kilobytes per ten minutes, by least squares over the second half.
    slope_kb: f64,
    /// Seconds and bytes.
    samples: Vec<(f64, u64)>,
    rate: f64,
    p99: f64,
}

impl Soaked {
    /// Below 1 MB in ten minutes; over a short time, where a page more or less is a steep slope, no growth above 2 MB. Growth is
    /// that of the line, not of two samples: a single one has a request's buffers in it.
    fn is_flat(&self) -> bool {
        let seconds = self.samples.last().map_or(0.0, |last| last.0);
        let grown_kb = self.slope_kb * (seconds / 2.0) / 600.0;
        self.slope_kb < 1024.0 || (seconds < 600.0 && grown_kb < 2048.0)
    }
}

/// Requests of several images, with methods and views in turn.
fn requests(kinds: &[(&str, &str)]) -> Result<Vec<Vec<u8>>> {
    let mut requests = Vec::new();
    for number in 0..12u32 {
        let rgb = (0..96 * 96 * 3u32).map(|place| (place * 5 + number * 29 + place / 211 * number) as u8).collect();
        let image = flatclip::Image { width: 96, height: 96, rgb };
        let png = flatclip::image::sheet::encode_png(&image)?;
        let (method, views) = kinds[number as usize % kinds.len()];
        let fields = [("classes", "fish,lamp,snail,boat,clock"), ("method", method), ("views", views)];
        requests.push(post_form("/v1/classify", &fields, &[&png]));
    }
    Ok(requests)
}

fn soak(binary: &Path, folder: &Path, seconds: f64, share: f64) -> Result<Soaked> {
    let server = Running::start(binary, folder, &[])?;
    let requests = requests(&[("zero-shot", "1"), ("zero", "16"), ("stss", "32"), ("vte", "8")])?;
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

#[derive(clap::Args)]
pub struct OverloadArguments {
    /// Seconds of each load
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
}

/// Nothing but answers and refusals that tell when to come back.
fn check_statuses(outcome: &Outcome) -> Result<()> {
    let known = outcome.statuses.keys().all(|status| [200, 429, 503].contains(status));
    ensure!(known && outcome.count(200) > 0, "{:?}", outcome.statuses);
    Ok(())
}

/// At 2 and 10 times the capacity at least 90 % of it is served, and p99 stays within twice that at the capacity. A thousand clients
/// at once get answers or refusals, and memory grows by less than 100 MB.
pub fn overload(arguments: &OverloadArguments) -> Result<()> {
    let (binary, folder) = (crate::build(crate::root()?)?, tempfile::tempdir()?);
    let views = requests(&[("zero", "8")])?;
    // A tower of real size: with the embedded one, refusing hundreds of requests a second is itself a tenth of the work.
    let server = Running::start(&binary, folder.path(), &["--model", "random:ViT-B-32"])?;
    let at = |clients, rate| load(server.address, clients, Until::Seconds(arguments.seconds), rate, &views);
    load(server.address, 4, Until::Seconds(2.0), None, &views)?;
    let capacity = at(16, None)?.per_second();
    let usual = at(64, Some(capacity))?.quantile(0.99);
    for part in [2.0, 10.0] {
        let found = at(128, Some(capacity * part))?;
        let (served, p99) = (found.per_second() / capacity, found.quantile(0.99));
        println!(
            "{part} times the capacity of {capacity:.1} per second: {:.0} % served, p99 {p99:.0} ms",
            100.0 * served
        );
        check_statuses(&found)?;
        // A full queue of 64 takes 64 / capacity, whatever is sent.
        let allowed = (2.0 * usual).max(2.0 * 64.0 / capacity * 1e3);
        ensure!(served >= 0.9 && p99 <= allowed, "served {served:.2}, p99 {p99:.0} ms, allowed {allowed:.0} ms");
    }
    drop(server);
    let server = Running::start(&binary, folder.path(), &[])?;
    let single = requests(&[("zero-shot", "1")])?;
    load(server.address, 4, Until::Requests(100), None, &single)?;
    let before = server.memory()?;
    let crowd = load(server.address, 1_000, Until::Requests(10_000), None, &single)?;
    let (grown, p99) = (server.memory()?.saturating_sub(before) >> 20, crowd.quantile(0.99));
    println!("10 000 requests of 1 000 clients: {:?}, {grown} MB grown, p99 {p99:.0} ms", crowd.statuses);
    check_statuses(&crowd)?;
    ensure!(grown < 100 && p99 < 30_000.0, "grew by {grown} MB, p99 {p99:.0} ms");
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
