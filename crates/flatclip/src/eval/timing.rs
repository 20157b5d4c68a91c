//! Where the time went. Kept apart from the records: times differ between runs whose answers are the same bytes.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Seconds of one sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleTime {
    /// Position in the stream.
    pub index: usize,
    /// Reading, decoding, making views, or finding features in the cache.
    pub load: f64,
    /// The image tower (a batch's time shared equally); 0 when the features came from the cache.
    pub encode: f64,
    /// The adapter.
    pub adapt: f64,
}

/// Resident memory at one moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryMark {
    /// Samples answered in this session so far.
    pub samples: usize,
    /// Bytes.
    pub bytes: u64,
}

/// Memory is noted after so many samples and after ten times, a hundred times as many: a run whose memory grows is seen.
const FIRST_MARK: usize = 100;

/// Seconds of a run by stage. Loading runs beside the rest, so the stages may add up to more than the wall time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// From the first sample to the last record.
    pub wall: f64,
    /// Sum over samples.
    pub load: f64,
    /// Sum over batches.
    pub encode: f64,
    /// Wall time of adapting.
    pub adapt: f64,
    /// Samples answered in this session (not those of an earlier one).
    pub samples: usize,
    /// Of these, how many had their features in the cache.
    pub cached: usize,
    /// Largest resident memory of the process in bytes, 0 where the system does not tell.
    pub peak_memory: u64,
    /// Resident memory after 100, 1000, 10 000, ... samples and at the end; empty where the system does not tell.
    #[serde(default)]
    pub memory: Vec<MemoryMark>,
    /// Per sample, in order.
    #[serde(skip)]
    pub per_sample: Vec<SampleTime>,
}

impl Timing {
    /// Notes the memory if `samples` have passed the next mark, or if this is the end.
    pub(super) fn note_memory(&mut self, end: bool) {
        let next = FIRST_MARK.saturating_mul(10usize.saturating_pow(self.memory.len() as u32));
        let bytes = if end || self.samples >= next { memory().0 } else { 0 };
        let is_new = self.memory.last().is_none_or(|mark| mark.samples < self.samples);
        if bytes > 0 && is_new {
            self.memory.push(MemoryMark { samples: self.samples, bytes });
        }
    }

    /// Samples per second.
    pub fn rate(&self) -> f64 {
        if self.wall > 0.0 { self.samples as f64 / self.wall } else { 0.0 }
    }

    /// Per-sample times as JSON lines.
    pub fn lines(&self) -> String {
        let line = |time: &SampleTime| serde_json::to_string(time).unwrap_or_default() + "\n";
        self.per_sample.iter().map(line).collect()
    }
}

/// A duration with microseconds: more digits would be noise.
pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

/// Resident memory of this process in bytes: (now, peak). Zero where the system does not tell.
pub fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kb| kb * 1024)
    };
    (field("VmRSS:").unwrap_or_default(), field("VmHWM:").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_noted_at_a_hundred_a_thousand_and_the_end() {
        let mut timing = Timing::default();
        for _ in 0..150 {
            timing.samples += 10;
            timing.note_memory(false);
        }
        timing.note_memory(true);
        timing.note_memory(true);
        let samples: Vec<usize> = timing.memory.iter().map(|mark| mark.samples).collect();
        assert_eq!(samples, [100, 1000, 1500]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_told_in_bytes() {
        let (now, peak) = memory();
        assert!(now > 1 << 20 && peak >= now / 2, "{now} {peak}");
    }
}
