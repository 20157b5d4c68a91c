//! Which classes a run takes for which: the most frequent pairs as a table, the matrix as a heat map.

use super::figure::{Axis, Cells, Figure, Layer, positions};
use super::{Cell, Run, Table};
use crate::eval::Record;
use crate::eval::metrics::{Outcome, confusion_matrix, confusions};
use flatclip::Result;

/// More classes than this are not drawn: the ones with the most wrong answers are.
const MOST_CLASSES: usize = 40;

/// The counts of a run, with the names of its classes (their numbers, if the run did not keep names).
pub struct ConfusionMatrix {
    title: String,
    names: Vec<String>,
    counts: Vec<usize>,
}

impl ConfusionMatrix {
    /// Reads a run's records.
    pub fn of(run: &Run) -> Result<Self> {
        let outcomes: Vec<Outcome> = run.records()?.iter().filter_map(Record::outcome).collect();
        let classes = run.provenance.classes;
        let kept = run.class_names()?.filter(|names| names.len() == classes);
        let names = kept.unwrap_or_else(|| (0..classes).map(|class| format!("class {class}")).collect());
        let title = format!("{} on {}", run.row_name(), run.provenance.dataset);
        Ok(Self { title, names, counts: confusion_matrix(&outcomes, classes) })
    }

    /// One for each row and data set: the runs of all seeds together.
    pub fn of_all(runs: &[Run]) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for run in runs {
            let one = Self::of(run)?;
            match all.iter_mut().find(|other| other.title == one.title && other.names == one.names) {
                Some(other) => other.counts.iter_mut().zip(one.counts).for_each(|(sum, count)| *sum += count),
                None => all.push(one),
            }
        }
        Ok(all)
    }

    /// The `most` frequent wrong answers.
    pub fn table(&self, most: usize) -> Table {
        let pairs = confusions(&self.counts, self.names.len());
        let wrong: usize = pairs.iter().map(|pair| pair.count).sum();
        let title = format!("Confusions: {}", self.title);
        let (all, shown) = (pairs.len(), pairs.len().min(most));
        Table::of(title, &pairs[..shown])
            .column("true class", |pair| Cell::text(&self.names[pair.label]))
            .column("taken for", |pair| Cell::text(&self.names[pair.prediction]))
            .column("times", |pair| Cell::count(pair.count))
            .column("of", |pair| Cell::count(pair.of))
            .with_note(format!("{wrong} wrong answers in {all} pairs of classes; the {shown} most frequent pairs"))
    }

    /// Per cent of each true class (a row) that got each answer (a column).
    pub fn figure(&self) -> Figure {
        let (all, shown) = (self.names.len(), self.drawn());
        let share = |label: usize, answer: usize| {
            let of: usize = self.counts[label * all..][..all].iter().sum();
            let count = self.counts[label * all + answer];
            // Empty cells are not drawn: a page of many matrices stays small, and filled cells are easy to see.
            if count == 0 { f64::NAN } else { 100.0 * count as f64 / of as f64 }
        };
        // The first class is at the top, and y grows upwards.
        let rows: Vec<usize> = shown.iter().rev().copied().collect();
        let values = rows.iter().flat_map(|&label| shown.iter().map(move |&answer| share(label, answer))).collect();
        let names = |classes: &[usize]| classes.iter().map(|&class| self.names[class].clone()).collect::<Vec<_>>();
        let cells = Cells { x: positions(shown.len()), y: positions(rows.len()), values };
        let heat = Layer::Heat { cells, labels: false, range: Some((0.0, 100.0)), unit: "%" };
        let part = if shown.len() < all { format!(", {} of {all} classes", shown.len()) } else { String::new() };
        let title = format!("{}: per cent of each true class{part}", self.title);
        let (x, y) = (Axis::categories("answer", names(&shown)), Axis::categories("true class", names(&rows)));
        let side = 17.0 * shown.len() as f64;
        Figure::new(title, x, y).with(heat).sized((190.0 + side).max(430.0), (170.0 + side).max(360.0))
    }

    /// The classes to draw, in their order.
    fn drawn(&self) -> Vec<usize> {
        let all = self.names.len();
        let mut shown: Vec<usize> = (0..all).collect();
        if all > MOST_CLASSES {
            let mut wrong = vec![0; all];
            for pair in confusions(&self.counts, all) {
                wrong[pair.label] += pair.count;
                wrong[pair.prediction] += pair.count;
            }
            shown.sort_by_key(|&class| std::cmp::Reverse(wrong[class]));
            shown.truncate(MOST_CLASSES);
            shown.sort_unstable();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(classes: usize, wrong: &[(usize, usize, usize)]) -> ConfusionMatrix {
        let mut counts = vec![0; classes * classes];
        (0..classes).for_each(|class| counts[class * classes + class] = 5);
        wrong.iter().for_each(|&(label, answer, count)| counts[label * classes + answer] = count);
        let names = (0..classes).map(|class| format!("n{class}")).collect();
        ConfusionMatrix { title: "run".into(), names, counts }
    }

    #[test]
    fn the_table_names_the_most_frequent_pairs() {
        let table = matrix(4, &[(0, 1, 1), (2, 3, 4)]).table(1);
        let row: Vec<&str> = table.rows[0].iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!((table.rows.len(), row), (1, vec!["n2", "n3", "4", "9"]));
        assert!(table.notes[0].starts_with("5 wrong answers in 2 pairs"), "{:?}", table.notes);
    }

    #[test]
    fn the_figure_has_the_first_class_on_top_and_shares_of_rows() {
        let figure = matrix(2, &[(0, 1, 15)]).figure();
        let [Layer::Heat { cells: Cells { values, .. }, .. }] = &figure.layers[..] else { panic!("one heat map") };
        assert_eq!(figure.y.categories, ["n1", "n0"]);
        assert!(values[0].is_nan(), "what never happened is not drawn");
        assert_eq!(values[1..], [100.0, 25.0, 75.0]);
    }

    #[test]
    fn of_many_classes_the_confused_ones_are_drawn() {
        let many = matrix(100, &[(98, 99, 3)]);
        assert_eq!(many.drawn().len(), MOST_CLASSES);
        assert!(many.drawn().ends_with(&[98, 99]));
        assert!(many.figure().title.contains("40 of 100 classes"));
    }
}
