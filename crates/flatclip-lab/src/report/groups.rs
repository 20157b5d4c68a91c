//! Runs that differ in nothing but the seed, side by side: what a figure shows as one bar or one line; and statistics over seeds.

use super::Run;
use super::rows::{distinct, row_names};

/// Runs of one prompt and adapter on one data set.
pub(super) struct Group<'a> {
    pub(super) row: String,
    pub(super) dataset: String,
    pub(super) runs: Vec<&'a Run>,
}

impl Group<'_> {
    /// Mean and standard deviation of a number over the runs; no deviation for a single one.
    pub(super) fn mean(&self, of: impl Fn(&Run) -> f64) -> (f64, f64) {
        let values: Vec<f64> = self.runs.iter().map(|run| of(run)).collect();
        let (mean, deviation) = mean_and_deviation(&values).unwrap_or_default();
        (mean, deviation.unwrap_or(f64::NAN))
    }
}

/// The mean, and the sample standard deviation (n-1) of several values.
pub(crate) fn mean_and_deviation(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    Some((mean, (n > 1).then(|| (squares / (n - 1) as f64).sqrt())))
}

/// The mean of at least one value.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    mean_and_deviation(values).map(|(mean, _)| mean)
}

/// Rows in the order of tables; of each the data sets in the order in which they first appear.
pub(super) fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let (mut groups, names): (Vec<Group<'_>>, Vec<String>) = (Vec::new(), row_names(runs));
    for (run, row) in runs.iter().zip(&names) {
        let dataset = run.provenance.dataset.clone();
        match groups.iter_mut().find(|group| group.row == *row && group.dataset == dataset) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { row: row.clone(), dataset, runs: vec![run] }),
        }
    }
    let order = distinct(&names);
    groups.sort_by_key(|group| order.iter().position(|row| *row == group.row));
    groups
}
