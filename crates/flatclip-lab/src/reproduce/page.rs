//! The page of an item.

use super::plan::data_title;
use super::results::Results;
use crate::report::figure::{Axis, Figure, Layer};
use crate::report::{Page, Run, Section};
use std::path::Path;

impl Results {
    /// The page of an item in this folder; where that lies is no part of it.
    pub(super) fn page(&self, out: &Path) -> Page {
        let inside = |run: &Run| run.path.strip_prefix(out).map_or_else(|_| run.path.clone(), Path::to_path_buf);
        let runs: Vec<Run> = self.runs().map(|run| Run { path: inside(run), ..run.clone() }).collect();
        let mut first = Section { title: "Results".into(), tables: self.tables.clone(), ..Section::default() };
        if runs.len() > 1 {
            first.figures.push(self.bars());
        }
        let mut sections = vec![first];
        sections.extend(self.sections.iter().cloned());
        if !runs.is_empty() {
            sections.push(Page::provenance(&runs));
        }
        let title = format!("flatclip reproduce {}: {}", self.recipe.name, self.recipe.title);
        Page { title, text: self.recipe.about.trim().replace('\n', " "), sections }
    }

    /// Top-1 of every row by the names of the table.
    fn bars(&self) -> Figure {
        let labels = self.rows.iter().map(|row| row.label.clone());
        let y = Axis::new("top-1 in per cent").within(0.0, 100.0);
        let mut figure = Figure::new("Top-1", Axis::categories("", labels), y);
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        for (place, data) in self.recipe.datasets.iter().enumerate() {
            let values: Vec<f64> = self.rows.iter().map(|row| number(row.means[place])).collect();
            let spread = self.rows.iter().map(|row| number(row.deviations[place])).collect();
            figure.layers.push(Layer::Bars { name: data_title(data), values: values.clone() });
            figure.layers.push(Layer::Deviations { values, spread });
        }
        figure.size = ((160.0 + 90.0 * self.rows.len() as f64).clamp(560.0, 1120.0), 400.0);
        figure
    }
}
