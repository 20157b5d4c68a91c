//! Where the time went. Kept apart from the records: times differ between runs whose answers are the same bytes.

use flatclip::resident_memory;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Seconds of one sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleTime {
    /// Position in the stream.
    pub index: usize,
    /// Reading, decoding, making views, or finding features in the cache.
    pub load: f64,
    /// The image tower for the views that the method uses (a batch's time shared equally). Of features from the cache, what
    /// they took when they were encoded; null where that is not known.
    pub encode: Option<f64>,
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

/// Seconds of a run by stage. Loading is overlapped with the rest, so the stages may add up to more than the wall time.
///
/// `encode` is what the method's own views cost, whichever run encoded them: methods that share features are charged alike,
/// and one that uses a single view of 64 is charged for one. `encode_session` is what this session spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// From the first sample to the last record.
    pub wall: f64,
    /// Sum over samples.
    pub load: f64,
    /// The image tower for the views that the method uses, over the samples of `encode_samples`: measured when they were
    /// encoded, by this run or by an earlier one whose features were cached.
    pub encode: f64,
    /// Samples whose encoding time is known; absent in runs of earlier versions, where it was that of the samples not cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_samples: Option<usize>,
    /// What this session spent in the image tower, for the views of all methods that share them.
    #[serde(default)]
    pub encode_session: f64,
    /// Views of a sample that the method uses; 0 in runs of earlier versions.
    #[serde(default)]
    pub views_used: usize,
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
        let bytes = if end || self.samples >= next { resident_memory().0 } else { 0 };
        let is_new = self.memory.last().is_none_or(|mark| mark.samples < self.samples);
        if bytes > 0 && is_new {
            self.memory.push(MemoryMark { samples: self.samples, bytes });
        }
    }

    /// Counts the encoding of one sample.
    pub(super) fn charge(&mut self, encode: Option<Duration>) {
        self.encode += encode.unwrap_or_default().as_secs_f64();
        *self.encode_samples.get_or_insert(0) += usize::from(encode.is_some());
    }

    /// Seconds of the image tower for one sample; `None` where none was measured.
    pub fn encode_per_sample(&self) -> Option<f64> {
        let count = self.encode_samples.unwrap_or(self.samples.saturating_sub(self.cached));
        (count > 0).then(|| self.encode / count as f64)
    }

    /// Seconds of the method's own work for one sample; `None` where there was none.
    pub fn adapt_per_sample(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.adapt / self.samples as f64)
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
}
