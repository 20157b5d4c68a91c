//! The published numbers that ours are compared with.

use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// One published table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperTable {
    pub id: String,
    pub title: String,
    /// Its label in the paper.
    pub label: String,
    /// Architecture by its released name.
    pub backbone: String,
    /// Data sets, in the table's order.
    pub columns: Vec<String>,
    #[serde(rename = "row")]
    pub rows: Vec<PaperRow>,
}

/// One published row.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperRow {
    /// As printed.
    pub label: String,
    /// The prompt in our words: template, templates-4, templates-80, coop, sapt, cocoop, maple, tip-adapter; `ensemble` for the templates
    /// that TDA takes for the data set, `descriptions` for those with CuPL's sentences.
    pub prompt: String,
    /// The adapter in our words.
    pub method: String,
    /// Whose numbers: `fga` (the paper's own runs), `quoted`, or `re-run`.
    pub origin: String,
    /// Top-1 in per cent by column; NaN where nothing is printed.
    pub values: Vec<f64>,
    /// The printed averages: over all, then over the shifted sets.
    pub averages: Vec<f64>,
    /// What to know before comparing.
    #[serde(default)]
    pub note: String,
}

#[derive(Deserialize)]
struct File {
    table: Vec<PaperTable>,
}

/// The four tables of the FGA paper, then second anchors for some rows.
pub(crate) static PAPER: LazyLock<Vec<PaperTable>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("data/paper.toml")).expect("the embedded file is checked by a test");
    file.table
});

/// One published number for a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Top-1 in per cent.
    pub value: f64,
    /// The row's label.
    pub label: String,
    /// The table's id.
    pub table: String,
    /// Whose number.
    pub origin: String,
    /// What to know before comparing.
    pub note: String,
}

/// Everything published for a backbone, prompt, method and data set. Class embeddings from a file (`features`) are compared
/// with single-template rows.
pub fn published(backbone: &str, prompt: &str, method: &str, dataset: &str) -> Vec<Published> {
    let prompt = if prompt == "features" { "template" } else { prompt };
    let mut found = Vec::new();
    for table in PAPER.iter().filter(|table| table.backbone == backbone) {
        let Some(column) = table.columns.iter().position(|name| name == dataset) else { continue };
        let text = |row: &PaperRow| row.prompt == prompt || (row.prompt == "ensemble" && prompt == ensemble(dataset));
        for row in table.rows.iter().filter(|row| text(row) && row.method == method) {
            let value = row.values.get(column).copied().unwrap_or(f64::NAN);
            if value.is_finite() {
                found.push(Published {
                    value,
                    label: row.label.clone(),
                    table: table.id.clone(),
                    origin: row.origin.clone(),
                    note: row.note.clone(),
                });
            }
        }
    }
    found
}

/// The text that TDA was published with: seven templates, all eighty, or the data set's own.
pub(super) fn ensemble(dataset: &str) -> &'static str {
    match dataset {
        "imagenet" | "imagenet_a" | "imagenetv2" | "caltech101" | "stanford_cars" | "sun397" => "templates-7",
        "imagenet_r" | "imagenet_sketch" => "templates-80",
        _ => "template",
    }
}

/// The place of a prompt and method among the paper's rows, whatever templates they use; behind all where it has none.
pub(super) fn paper_rank(prompt: &str, method: &str) -> usize {
    let plain =
        |prompt: &str| ["features", "ensemble", "descriptions"].contains(&prompt) || prompt.starts_with("template");
    let alike = |row: &PaperRow| row.prompt == prompt || (plain(&row.prompt) && plain(prompt));
    let mut rows = PAPER.iter().flat_map(|table| &table.rows);
    rows.position(|row| row.method == method && alike(row)).unwrap_or(usize::MAX)
}

/// The number that the paper itself prints in the row of this label, for a backbone and data set.
pub(crate) fn published_row(backbone: &str, label: &str, dataset: &str) -> Option<f64> {
    let own = PAPER.iter().filter(|table| table.backbone == backbone && table.label.starts_with("tab:"));
    own.filter_map(|table| {
        let column = table.columns.iter().position(|name| name == dataset)?;
        let row = table.rows.iter().find(|row| row.label == label)?;
        row.values.get(column).copied().filter(|value| value.is_finite())
    })
    .next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Known;

    #[test]
    fn tables_are_whole_and_averages_are_those_printed() {
        assert_eq!(PAPER.iter().take(4).map(|t| t.rows.len()).collect::<Vec<_>>(), [21, 14, 12, 7]);
        for table in PAPER.iter() {
            assert!(table.columns.iter().all(|name| Known::find(name).is_some_and(|k| k.name == name)), "{}", table.id);
            for row in &table.rows {
                assert_eq!(row.values.len(), table.columns.len(), "{} {}", table.id, row.label);
                let mean = row.values.iter().sum::<f64>() / row.values.len() as f64;
                // Two rows of the paper are off in the last digit; their notes say so.
                let tolerance = if row.note.contains("printed average") { 0.011 } else { 0.0051 };
                assert!(
                    mean.is_nan() || (mean - row.averages[0]).abs() < tolerance,
                    "{} {} {mean}",
                    table.id,
                    row.label
                );
            }
        }
    }

    #[test]
    fn a_run_finds_its_rows() {
        let fga = published("ViT-B-16", "sapt", "stss", "imagenet_a");
        assert_eq!(fga.iter().map(|p| p.value).collect::<Vec<_>>(), [65.90]);
        let tpt = published("ViT-B-16", "template", "tpt", "imagenet");
        assert_eq!(
            tpt.iter().map(|p| (p.value, p.origin.as_str())).collect::<Vec<_>>(),
            [(69.70, "re-run"), (68.98, "quoted"), (68.85, "re-run")]
        );
        assert!(published("ViT-B-16", "template", "c-tpt", "imagenet").is_empty(), "a dash is not a number");
        assert!(published("RN50", "template", "tpt", "eurosat").is_empty());
    }
}
