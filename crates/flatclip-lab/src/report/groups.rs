//! Runs that differ in nothing but the seed, side by side: what a figure shows as one bar or one line.

use super::rows::{row_names, rows_in_order};
use super::runs::Run;

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
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, if values.len() > 1 { (squares / (values.len() - 1) as f64).sqrt() } else { f64::NAN })
    }
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
    let order = rows_in_order(&names);
    groups.sort_by_key(|group| order.iter().position(|row| *row == group.row));
    groups
}

/// Names in order of first appearance.
pub(super) fn names<'g>(groups: &'g [Group<'_>], of: impl Fn(&'g Group<'_>) -> &'g String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in groups.iter().map(of) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}
