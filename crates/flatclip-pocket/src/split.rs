//! Many images at once.

use rayon::prelude::*;

use crate::{Domain, SIDE, World, draw, scene};

/// The first images of one world and domain.
pub struct Split {
    /// `SIDE * SIDE * 3` bytes per image, one after another.
    pub pixels: Vec<u8>,
    /// The class of each image.
    pub labels: Vec<usize>,
}

impl Split {
    /// The bytes of one image; empty beyond the last.
    pub fn image(&self, index: usize) -> &[u8] {
        let size = SIDE * SIDE * 3;
        self.pixels.get(index * size..(index + 1) * size).unwrap_or_default()
    }
}

/// Draws images `0..count` on the threads of the current rayon pool.
pub fn render_split(world: World, domain: Domain, count: usize) -> Split {
    let mut pixels = vec![0u8; count * SIDE * SIDE * 3];
    let images = pixels.par_chunks_exact_mut(SIDE * SIDE * 3).enumerate();
    let labels = images.map(|(index, image)| {
        let scene = scene(world, domain, index as u64);
        image.copy_from_slice(&draw(&scene));
        scene.class
    });
    let labels = labels.collect();
    Split { pixels, labels }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a: enough to notice a changed byte, and needs no dependency.
    fn hash(bytes: &[u8]) -> u64 {
        bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    #[test]
    fn images_are_these_bytes_everywhere() {
        let found = Domain::ALL.map(|domain| hash(&render_split(World::Validation, domain, 8).pixels));
        assert_eq!(found.map(|hash| format!("{hash:016x}")), PINNED);
    }

    /// The pocket models were trained on these images: a change here is a new world and needs new models.
    const PINNED: [&str; 7] = [
        "46d6023ada0d7fc6",
        "a4c3d097e4cf1194",
        "54735c32c00318a0",
        "6b937162ebd098a2",
        "52031346c5effadc",
        "38c96609140c943d",
        "d7964f539d54b575",
    ];

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| render_split(World::Train, Domain::Painting, 6).pixels)
        };
        assert_eq!(with(1), with(3));
    }
}
