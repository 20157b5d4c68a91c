//! The HTML page of an item.

use super::plan::data_title;
use super::results::Results;
use crate::report::figure::{Axis, Figure};
use crate::report::{Page, Run, Section, grouped_bars};
use std::path::Path;

impl Results {
    /// The HTML page of the item in this folder; it does not contain the path of the folder.
    pub(super) fn page(&self, out: &Path) -> Page {
        let inside = |run: &Run| run.path.strip_prefix(out).map_or_else(|_| run.path.clone(), Path::to_path_buf);
        let runs: Vec<Run> = self.runs().map(|run| Run { path: inside(run), ..run.clone() }).collect();
        let mut first = Section { tables: self.tables.clone(), ..Section::new("Results", "") };
        if runs.len() > 1 {
            let labels: Vec<&str> = self.rows.iter().map(|row| row.label.as_str()).collect();
            first.figures.push(self.bars("Top-1", &labels, &(0..self.recipe.datasets.len()).collect::<Vec<_>>()));
        }
        let mut sections = vec![first];
        sections.extend(self.sections.iter().cloned());
        if !runs.is_empty() {
            sections.push(Page::provenance(&runs));
        }
        let title = format!("flatclip reproduce {}: {}", self.recipe.name, self.recipe.title);
        Page { title, text: self.recipe.about.trim().replace('\n', " "), sections }
    }

    /// Top-1 of these rows on these data sets, by the names of the table.
    pub(crate) fn bars(&self, title: &str, labels: &[&str], columns: &[usize]) -> Figure {
        let rows: Vec<_> = self.rows.iter().filter(|row| labels.contains(&row.label.as_str())).collect();
        let y = Axis::new("top-1 in per cent").within(0.0, 100.0);
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let series = columns.iter().map(|&place| {
            let bars = rows.iter().map(|row| (number(row.means[place]), number(row.deviations[place])));
            (data_title(&self.recipe.datasets[place]), bars.collect())
        });
        grouped_bars(title, rows.iter().map(|row| row.label.clone()).collect(), y, series)
    }
}
