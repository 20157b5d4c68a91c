//! Methods by data sets: means over seeds with their deviations, and the averages of the benchmark.

use super::cell::Cell;
use super::rows::{row_names, rows_in_order};
use super::runs::Run;
use super::table::Table;
use crate::data::{Family, Known};

/// Methods by data sets: mean over seeds (± sample standard deviation), then the benchmark's averages. Rows stand in the order
/// in which the runs are given.
pub fn benchmark_table(runs: &[Run], title: &str) -> Table {
    let datasets = datasets_of(runs);
    let names = row_names(runs);
    let imagenets = datasets.iter().filter(|d| family(d) == Some(Family::Imagenet)).count() == 5;
    let mut header: Vec<String> = vec!["prompt + method".into()];
    header.extend(datasets.iter().map(|name| Known::find(name).map_or(name.clone(), |known| known.title.to_owned())));
    header.push("Avg.".into());
    if imagenets {
        header.push("OOD Avg.".into());
    }
    let mut table = Table::new(title, header);
    for row in rows_in_order(&names) {
        let own: Vec<&Run> = runs.iter().zip(&names).filter(|(_, name)| **name == row).map(|(run, _)| run).collect();
        let columns: Vec<Column> = datasets.iter().map(|data| Column::of(&own, data)).collect();
        let mut cells = vec![Cell::text(&row)];
        cells.extend(columns.iter().map(|column| mean_cell(&column.values())));
        cells.push(average(&columns.iter().collect::<Vec<_>>()));
        if imagenets {
            let shifted = columns.iter().zip(&datasets).filter(|(_, name)| *name != "imagenet");
            cells.push(average(&shifted.map(|(column, _)| column).collect::<Vec<_>>()));
        }
        table.push(cells);
    }
    let columns = 1..table.header.len();
    table.mark_best(columns);
    table.notes.push(
        "top-1 in per cent; mean over seeds ± sample standard deviation (n-1) where there are several; prompts tuned alike but for \
         the seed are seeds, too; runs that differ in anything else are separate rows"
            .into(),
    );
    table.notes.push("Avg.: unweighted mean over data sets, ± the deviation of the seeds' averages".into());
    table
}

fn family(dataset: &str) -> Option<Family> {
    Known::find(dataset).map(|known| known.family)
}

/// Known data sets in the paper's order, then the rest as given.
fn datasets_of(runs: &[Run]) -> Vec<String> {
    let rank = |name: &str| crate::data::KNOWN.iter().position(|known| known.name == name).unwrap_or(usize::MAX);
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        if !names.contains(&run.provenance.dataset) {
            names.push(run.provenance.dataset.clone());
        }
    }
    names.sort_by_key(|name| rank(name));
    names
}

/// Top-1 in per cent of a row on one data set, by seed.
struct Column(Vec<((u64, Option<u64>), f64)>);

impl Column {
    fn of(row: &[&Run], dataset: &str) -> Self {
        let own = row.iter().filter(|run| run.provenance.dataset == dataset);
        let mut seeds: Vec<_> = own.map(|run| (run.seeds(), 100.0 * run.summary.metrics.top1)).collect();
        seeds.sort_by_key(|(seed, _)| *seed);
        Self(seeds)
    }

    fn values(&self) -> Vec<f64> {
        self.0.iter().map(|(_, value)| *value).collect()
    }

    fn has_seeds_of(&self, other: &Self) -> bool {
        self.0.iter().map(|(seed, _)| seed).eq(other.0.iter().map(|(seed, _)| seed))
    }
}

/// The average over data sets that all have runs. Its deviation is over the seeds' own averages, where every data set has
/// the same seeds.
fn average(columns: &[&Column]) -> Cell {
    let Some(first) = columns.first().filter(|_| columns.iter().all(|column| !column.0.is_empty())) else {
        return Cell::none();
    };
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / columns.len() as f64;
    if columns.iter().all(|column| column.has_seeds_of(first)) {
        let of_seed = |seed: usize| mean(&mut columns.iter().map(|column| column.0[seed].1));
        return mean_cell(&(0..first.0.len()).map(of_seed).collect::<Vec<_>>());
    }
    Cell::number(mean(&mut columns.iter().filter_map(|column| mean_and_deviation(&column.values())).map(|m| m.0)), 2)
}

fn mean_cell(values: &[f64]) -> Cell {
    match mean_and_deviation(values) {
        None => Cell::none(),
        Some((mean, deviation)) => Cell::mean(mean, deviation, values.len()),
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

#[cfg(test)]
mod tests {
    use super::super::rows::tests::run;
    use super::*;

    fn on(dataset: &str, seed: u64, top1: f64) -> Run {
        let mut run = run(seed, "p", 0.5, "f32");
        run.provenance.dataset = dataset.into();
        run.summary.metrics.top1 = top1;
        run
    }

    #[test]
    fn an_average_has_the_deviation_of_the_seeds_averages() {
        let runs = [on("own-b", 1, 0.5), on("own-a", 1, 0.3), on("own-a", 2, 0.5), on("own-b", 2, 0.3)];
        let table = benchmark_table(&runs, "t");
        assert_eq!(table.header, ["prompt + method", "own-b", "own-a", "Avg."]);
        let texts: Vec<&str> = table.rows[0].iter().map(|cell| cell.text.as_str()).collect();
        // What one data set gains the other loses: the average of every seed is 40.
        assert_eq!(texts, ["coop + stss", "40.00 ± 14.14", "40.00 ± 14.14", "40.00 ± 0.00"]);
        assert!(table.notes[0].contains("sample standard deviation (n-1)"));
        // Other seeds on the other data set: a mean, and no deviation that nobody can tell.
        let runs = [on("own-b", 1, 0.5), on("own-a", 3, 0.3), on("own-a", 2, 0.5)];
        let table = benchmark_table(&runs, "t");
        assert_eq!(table.rows[0][3].text, "45.00");
        let alone = benchmark_table(&runs[..1], "t");
        assert_eq!(
            alone.rows[0].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>(),
            ["coop + stss", "50.00", "50.00"]
        );
    }
}
