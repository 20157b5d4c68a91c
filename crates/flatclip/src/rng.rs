//! Named random streams. Every draw belongs to a stream keyed by (seed, purpose, ...), so an answer does not depend on
//! thread count, batch size, order, shard or resume.

use crate::digest::Digest;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// One stream of draws. The distributions are defined here, so that no library update can change a result.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of `seed` for a purpose and its keys, e.g. `Stream::new(0, &["views", dataset, sample])`.
    pub fn new(seed: u64, keys: &[&str]) -> Self {
        let digest = keys.iter().fold(Digest::default().bytes(seed.to_le_bytes()), Digest::part);
        Self(ChaCha8Rng::from_seed(digest.finish()))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `0..n` without bias; 0 for `n = 0`.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        if n == 0 {
            return 0;
        }
        let limit = u64::MAX - u64::MAX % n;
        loop {
            let bits = self.bits();
            if bits < limit {
                return (bits % n) as usize;
            }
        }
    }

    /// Standard normal (Box-Muller, the cosine half).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Fisher-Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_separate_streams_and_draws_repeat() {
        let draw = |keys: &[&str]| Stream::new(7, keys).bits();
        assert_eq!(draw(&["a", "b"]), draw(&["a", "b"]));
        assert_ne!(draw(&["a", "b"]), draw(&["ab"]));
        assert_ne!(Stream::new(7, &["a"]).bits(), Stream::new(8, &["a"]).bits());
    }

    #[test]
    fn moments_are_right() {
        let mut stream = Stream::new(3, &["moments"]);
        let draws: Vec<f64> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let var = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.04, "{mean} {var}");
    }
}
