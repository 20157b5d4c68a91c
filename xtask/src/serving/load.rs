//! Clients that ask again and again, for a number of requests or for a time, each on a connection of its own.

use super::http::Connection;
use anyhow::{Result, ensure};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a load found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Milliseconds of every request that was answered with 200.
    pub times: Vec<f64>,
    /// Requests by status; 0 is a connection that broke.
    pub statuses: std::collections::BTreeMap<u16, usize>,
    pub seconds: f64,
}

impl Outcome {
    pub fn count(&self, status: u16) -> usize {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    pub fn per_second(&self) -> f64 {
        self.count(200) as f64 / self.seconds
    }

    /// A quantile of the times.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let place = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len().max(1)) - 1;
        times.get(place).copied().unwrap_or(f64::NAN)
    }
}

/// When a load ends.
#[derive(Clone, Copy)]
pub enum Until {
    Requests(usize),
    Seconds(f64),
}

/// A thread needs little; a thousand of them fit.
const STACK: usize = 160 << 10;

/// So many clients ask `requests` in turn; with a rate, so many requests per second are begun in all.
pub fn run(
    address: SocketAddr,
    clients: usize,
    until: Until,
    rate: Option<f64>,
    requests: &[Vec<u8>],
) -> Result<Outcome> {
    ensure!(address.ip().is_loopback(), "load is for this machine only");
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let client = || {
        let mut outcome = Outcome::default();
        let mut connection = None;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let begin = rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(number as f64 / rate));
            let is_over = match until {
                Until::Requests(count) => number >= count,
                Until::Seconds(seconds) => start.elapsed().max(begin).as_secs_f64() >= seconds,
            };
            if is_over {
                return outcome;
            }
            std::thread::sleep(begin.saturating_sub(start.elapsed()));
            let asked = Instant::now();
            let answer = match connection.take().map_or_else(|| Connection::open(address), Ok) {
                Ok(mut open) => open.ask(&requests[number % requests.len()]).inspect(|answer| {
                    if answer.header("connection") != Some("close") {
                        connection = Some(open);
                    }
                }),
                Err(error) => Err(error),
            };
            let status = answer.map_or(0, |answer| answer.status);
            if status == 200 {
                outcome.times.push(asked.elapsed().as_secs_f64() * 1e3);
            }
            *outcome.statuses.entry(status).or_insert(0) += 1;
        }
    };
    let mut all = Outcome::default();
    std::thread::scope(|scope| {
        let start_one = |_| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, client);
        let threads: Vec<_> = (0..clients).map(start_one).collect::<std::io::Result<_>>()?;
        for thread in threads {
            let one = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
            all.times.extend(one.times);
            one.statuses.iter().for_each(|(status, count)| *all.statuses.entry(*status).or_insert(0) += count);
        }
        Ok::<(), anyhow::Error>(())
    })?;
    all.seconds = start.elapsed().as_secs_f64();
    Ok(all)
}
