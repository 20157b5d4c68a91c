//! `summary.json`: what a run's records say, a function of the records alone.

use super::metrics::{MetricOptions, Metrics, Outcome, QuantileBin, by_score, metrics};
use super::record::Record;
use flatclip::methods::Confidence;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    /// What the confidence of an answer is, and so what ECE, NLL and Brier score measure.
    #[serde(default)]
    pub confidence: Confidence,
    /// The metrics of the answered ones.
    pub metrics: Metrics,
    /// Accuracy by the mean score of the selected views, from low to high; empty for methods without scores.
    pub by_score: Vec<QuantileBin>,
    /// Views encoded per answered sample, where that differs from image to image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_views: Option<f64>,
    /// Ids and reasons of the samples that failed.
    pub failures: Vec<(String, String)>,
    /// How the stream was cut into sets, for methods that answer sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Sets>,
}

/// How a stream was cut into sets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sets {
    /// Images of a set; the last may have fewer.
    pub images: usize,
    /// Number of sets.
    pub count: usize,
    /// Mean over the sets of the number of classes that occur in them: what these methods are sensitive to.
    pub mean_classes: f64,
}

impl Sets {
    /// Of a whole run's records, `images` at a time; 0 for all together.
    pub(crate) fn new(images: usize, records: &[Record]) -> Self {
        let images = if images == 0 { records.len() } else { images };
        let classes = |set: &[Record]| set.iter().map(|record| record.label).collect::<BTreeSet<usize>>().len();
        let counts: Vec<usize> = records.chunks(images.max(1)).map(classes).collect();
        let mean_classes = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
        Self { images, count: counts.len(), mean_classes }
    }
}

impl Summary {
    /// Computes everything from the records.
    pub(crate) fn new(dataset: &str, method: &str, classes: usize, records: &[Record]) -> Self {
        let outcomes: Vec<Outcome> = records.iter().filter_map(Record::outcome).collect();
        let failure = |record: &Record| Some((record.id.clone(), record.error.clone()?));
        Self {
            dataset: dataset.to_owned(),
            method: method.to_owned(),
            classes,
            samples: records.len(),
            failed: records.len() - outcomes.len(),
            confidence: Confidence::default(),
            metrics: metrics(&outcomes, classes, MetricOptions::default()),
            by_score: by_score(&outcomes, SCORE_GROUPS),
            mean_views: mean_views(records),
            failures: records.iter().filter_map(failure).collect(),
            sets: None,
        }
    }

    /// The same for a method with this kind of confidence.
    #[must_use]
    pub(crate) fn with_confidence(self, confidence: Confidence) -> Self {
        Self { confidence, ..self }
    }

    /// The same for a method that answered sets of so many images.
    #[must_use]
    pub(crate) fn with_sets(self, sets: Sets) -> Self {
        Self { sets: Some(sets), ..self }
    }
}

/// The mean over the records that say how many views they took.
fn mean_views(records: &[Record]) -> Option<f64> {
    let views: Vec<usize> = records.iter().filter_map(|record| record.answer.as_ref()?.views).collect();
    (!views.is_empty()).then(|| views.iter().sum::<usize>() as f64 / views.len() as f64)
}
