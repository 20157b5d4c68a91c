//! Random draws that are the same on every machine: ChaCha8 for the bits, only IEEE basic operations after it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::{Domain, World};

/// What a stream is for. Each purpose of each image has a stream of its own, so a change in how a style paints does
/// not change which scenes exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The order of the classes within a block of images.
    Order,
    /// The scene graph.
    Scene,
    /// The shape parameters of the figure.
    Shape,
    /// Everything that a style draws while painting.
    Paint,
    /// One caption.
    Caption,
}

/// One stream of draws, keyed by (world, domain, index, purpose, turn).
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    pub(crate) fn new(world: World, domain: Domain, index: u64, purpose: Purpose, turn: u64) -> Self {
        let mut seed = [0u8; 32];
        seed[..8].copy_from_slice(b"pocket 1");
        seed[8] = world as u8;
        seed[9] = domain as u8;
        seed[10] = purpose as u8;
        seed[16..24].copy_from_slice(&index.to_le_bytes());
        seed[24..].copy_from_slice(&turn.to_le_bytes());
        Self(ChaCha8Rng::from_seed(seed))
    }

    /// Uniform in `[low, high)`, 24 bits.
    pub(crate) fn uniform(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.0.next_u32() >> 8) as f32 * (1.0 / (1 << 24) as f32);
        low + (high - low) * unit
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f32) -> bool {
        self.uniform(0.0, 1.0) < p
    }

    /// Uniform in `0..n`; `n` is small, so the bias of the product is below 2^-20.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.0.next_u32()) * n as u64) >> 32) as usize
    }

    /// One of `items`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Mean 0, variance 1, nearly normal: the sum of four uniforms. It needs no logarithm, which would differ between
    /// platforms, and one draw of 64 bits is enough, which matters for the noise of every pixel.
    pub(crate) fn normal(&mut self) -> f32 {
        let bits = self.0.next_u64();
        let sum = (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
        // The sum of four uniforms on [0, 65535] has mean 131070 and standard deviation 37837.
        (sum as f32 - 131_070.0) * (1.0 / 37_837.0)
    }

    /// Fisher-Yates.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(purpose: Purpose) -> Draws {
        Draws::new(World::Train, Domain::Photo, 3, purpose, 0)
    }

    #[test]
    fn moments_are_right() {
        let mut draws = draws(Purpose::Paint);
        let values: Vec<f64> = (0..20_000).map(|_| f64::from(draws.normal())).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    }

    #[test]
    fn purposes_and_worlds_have_their_own_streams() {
        let first = |mut draws: Draws| draws.0.next_u64();
        let here = first(draws(Purpose::Scene));
        assert_eq!(here, first(draws(Purpose::Scene)));
        assert_ne!(here, first(draws(Purpose::Shape)));
        assert_ne!(here, first(Draws::new(World::Test, Domain::Photo, 3, Purpose::Scene, 0)));
    }
}
