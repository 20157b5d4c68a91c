//! Counts of inference requests by model, in Triton's format.

use crate::lock;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests of the Open Inference Protocol since the start.
#[derive(Default)]
pub(crate) struct Statistics(Mutex<BTreeMap<String, Counts>>);

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Images and texts that were answered.
    inferences: u64,
    /// Milliseconds since 1970.
    last: u64,
    success: Sum,
    fail: Sum,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.ns = self.ns.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl Statistics {
    /// Counts a request to a model that exists; `answered` is how many images or texts were answered, if it did not fail.
    pub(crate) fn count(&self, model: &str, answered: Option<usize>, took: Duration) {
        let mut all = lock(&self.0);
        let counts = all.entry(model.to_owned()).or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        counts.last = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        match answered {
            Some(answered) => {
                counts.inferences += answered as u64;
                counts.success.add(took);
            }
            None => counts.fail.add(took),
        }
    }

    /// Triton's statistics of a model, as far as they are measured.
    pub(crate) fn of(&self, model: &str) -> Value {
        let Counts { inferences, last, success, fail } = lock(&self.0).get(model).copied().unwrap_or_default();
        json!({
            "name": model, "version": "1", "last_inference": last, "inference_count": inferences,
            "execution_count": success.count, "inference_stats": { "success": success, "fail": fail }, "batch_stats": [],
        })
    }
}
