//! `summary.json`: what a run's records say, a function of the records alone.

use super::metrics::{MetricOptions, Metrics, Outcome, QuantileBin, by_score, metrics};
use super::record::Record;
use serde::{Deserialize, Serialize};

/// Groups of the score table.
const SCORE_GROUPS: usize = 5;

/// The numbers of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the data set.
    pub dataset: String,
    /// Name of the adapter.
    pub method: String,
    /// Number of classes.
    pub classes: usize,
    /// Samples with a record.
    pub samples: usize,
    /// Samples that could not be answered; they are in no metric.
    pub failed: usize,
    /// The metrics of the answered ones.
    pub metrics: Metrics,
    /// Accuracy by the mean score of the kept views, from low to high; empty for methods without scores.
    pub by_score: Vec<QuantileBin>,
    /// Ids and reasons of the samples that failed.
    pub failures: Vec<(String, String)>,
}

impl Summary {
    /// Computes everything from the records.
    pub fn new(dataset: &str, method: &str, classes: usize, records: &[Record]) -> Self {
        let outcomes: Vec<Outcome> = records.iter().filter_map(Record::outcome).collect();
        let failure = |record: &Record| Some((record.id.clone(), record.error.clone()?));
        Self {
            dataset: dataset.to_owned(),
            method: method.to_owned(),
            classes,
            samples: records.len(),
            failed: records.len() - outcomes.len(),
            metrics: metrics(&outcomes, classes, MetricOptions::default()),
            by_score: by_score(&outcomes, SCORE_GROUPS),
            failures: records.iter().filter_map(failure).collect(),
        }
    }
}
