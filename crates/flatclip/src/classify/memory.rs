//! Whether a model fits into memory: an estimate before its numbers are read, against what this process may use. A refusal
//! with numbers is worth more than an abort in the middle of a run.

use crate::architecture::{self, ClipConfig, ImageConfig};
use crate::model::Towers;
use crate::{Error, Result};
use std::path::Path;

/// Views that one batch of the image tower has at most.
const BATCH_VIEWS: u64 = 64;
/// Batches of pixels that are loaded, waiting and encoded at the same time.
const BATCHES: u64 = 4;
/// Classes whose features are kept, unless more are asked for.
const CLASSES: u64 = 1000;
/// Numbers per token and channel that a block of the tower holds while it runs: input, queries, keys, values, result, and
/// the four times wider layer.
const PER_TOKEN: u64 = 12;
/// What a thread keeps for itself: stack, packed panels.
const PER_THREAD: u64 = 8 << 20;
/// The program, its vocabulary, its buffers.
const PROGRAM: u64 = 48 << 20;

/// What a model will take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryNeed {
    /// The weights as they are computed with, and while they are packed a tensor per thread, the largest twice.
    pub weights: u64,
    /// Stacks and buffers of the threads.
    pub threads: u64,
    /// Pixels and activations of the views that are on their way.
    pub batch: u64,
    /// Features of the classes.
    pub classes: u64,
}

impl MemoryNeed {
    /// Of a model with these towers, on so many threads.
    pub fn of(config: &ClipConfig, towers: Towers, threads: usize) -> Self {
        let wanted = |name: &str| match towers {
            Towers::Both => true,
            Towers::Image => name.starts_with("visual.") || name == "logit_scale",
            Towers::Text => !name.starts_with("visual."),
        };
        let sizes = architecture::tensors(config).into_iter().filter(|(name, _)| wanted(name));
        let mut sizes: Vec<u64> = sizes.map(|(_, shape)| 4 * shape.iter().product::<usize>() as u64).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let packing = sizes.iter().take(threads).sum::<u64>() + sizes.first().copied().unwrap_or(0);
        let weights = sizes.iter().sum::<u64>() + packing;
        let side = config.image_size as u64;
        let pixels = BATCHES * BATCH_VIEWS * 3 * side * side * 4;
        let (tokens, width) = match config.image {
            ImageConfig::Vit { width, .. } => (config.image_tokens() as u64, width as u64),
            // The widest place of a ResNet is behind its stem: a quarter of the pixels on each side, 64 channels and more.
            ImageConfig::ResNet { width, .. } => ((side / 4).pow(2), width as u64),
            ImageConfig::Other => (0, 0),
        };
        let batch = if towers == Towers::Text { 0 } else { pixels + BATCH_VIEWS * tokens * width * 4 * PER_TOKEN / 4 };
        let classes = 2 * CLASSES * config.embed_dim as u64 * 4;
        Self { weights, threads: PROGRAM + threads as u64 * PER_THREAD, batch, classes }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.threads + self.batch + self.classes
    }

    /// Refuses when the limit is below the need.
    pub(crate) fn check(&self, model: &str) -> Result<()> {
        match limit() {
            Some((allowed, by)) if self.total() > allowed => Err(self.refusal(model, allowed, by)),
            _ => Ok(()),
        }
    }

    fn refusal(&self, model: &str, allowed: u64, by: &str) -> Error {
        let mb = |bytes: u64| format!("{} MB", bytes.div_ceil(1 << 20));
        let parts = format!(
            "weights {}, threads {}, a batch of views {}, classes {}",
            mb(self.weights),
            mb(self.threads),
            mb(self.batch),
            mb(self.classes)
        );
        Error::Limit {
            what: format!("{model}: bytes of memory (about {}: {parts})", mb(self.total())),
            asked: self.total(),
            allowed,
            hint: format!("{by} allows {}; take a smaller model or fewer threads, or raise that limit", mb(allowed)),
        }
    }
}

/// How many bytes this process may use, and which limit that is: the smallest of the shell's limit on address space, the control
/// group's and the machine's. `None` where none of them can be read.
pub fn limit() -> Option<(u64, &'static str)> {
    let found = [
        (address_space(), "the limit on address space (ulimit -v)"),
        (control_group(), "the control group (container)"),
        (field("/proc/meminfo", "MemTotal:").map(|kb| kb << 10), "this machine's memory"),
    ];
    found.into_iter().filter_map(|(bytes, by)| Some((bytes?, by))).min()
}

/// What is left of the limit on address space; `None` if there is no limit.
fn address_space() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let allowed: u64 = line.split_whitespace().next()?.parse().ok()?;
    let taken = field("/proc/self/status", "VmSize:").map_or(0, |kb| kb << 10);
    Some(allowed.saturating_sub(taken))
}

/// The smallest limit of this process's control group and those above it, in either version of them.
fn control_group() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        limits_above(Path::new(root), path.trim_start_matches('/'), file)
    });
    // A group without a limit has `max`, or a number near 2^63.
    limits.filter(|&bytes| bytes < 1 << 60).min()
}

fn limits_above(root: &Path, path: &str, file: &str) -> Vec<u64> {
    let folder = root.join(path);
    let groups = folder.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(|group| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).collect()
}

/// A number of a file of lines `NAME: number ...`.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Resident memory of this process in bytes: (now, peak). Zero where the system does not tell.
pub fn resident_memory() -> (u64, u64) {
    ["VmRSS:", "VmHWM:"].map(|name| field("/proc/self/status", name).map_or(0, |kb| kb << 10)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_need_grows_with_the_model_and_a_refusal_has_the_numbers() {
        let need = |name: &str| MemoryNeed::of(&ClipConfig::named(name).unwrap(), Towers::Both, 2);
        let (small, large) = (need("ViT-B-32"), need("ViT-L-14"));
        // 151 and 428 million parameters.
        assert!(small.weights > 600 << 20 && small.weights < 900 << 20, "{small:?}");
        assert!(large.total() > 2 * small.total(), "{large:?}");
        let half = MemoryNeed::of(&ClipConfig::named("ViT-B-32").unwrap(), Towers::Text, 2);
        assert!(half.weights < small.weights && half.batch == 0);
        let text = small.refusal("m", 100 << 20, "this machine's memory").to_string();
        assert!(text.contains("100 MB") && text.contains("weights") && text.contains("classes"), "{text}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_limit_is_read_and_a_group_without_one_counts_for_nothing() {
        let (bytes, by) = limit().unwrap();
        assert!(bytes > 64 << 20 && bytes < 1 << 60, "{bytes} by {by}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/memory.max"), "max\n").unwrap();
        assert!(limits_above(folder.path(), "a/b", "memory.max").is_empty());
        std::fs::write(folder.path().join("a/b/memory.max"), "1048576\n").unwrap();
        std::fs::write(folder.path().join("a/memory.max"), "524288\n").unwrap();
        assert_eq!(limits_above(folder.path(), "a/b", "memory.max").into_iter().min(), Some(524_288));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_told_in_bytes() {
        let (now, peak) = resident_memory();
        assert!(now > 1 << 20 && peak >= now / 2, "{now} {peak}");
    }
}
