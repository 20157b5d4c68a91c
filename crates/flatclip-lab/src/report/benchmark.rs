//! Methods by data sets: means over seeds with their deviations, and the averages of the benchmark.

use super::groups::{mean, mean_and_deviation};
use super::rows::{distinct, row_names};
use super::{Cell, Run, Table};
use crate::data::{Family, KNOWN, Known};

/// Methods by data sets: mean over seeds (± sample standard deviation), then the benchmark's averages. Rows stand in the order
/// in which the runs are given.
pub fn benchmark_table(runs: &[Run], title: &str) -> Table {
    let (datasets, names) = (datasets_of(runs), row_names(runs));
    let is_imagenet = |name: &&String| Known::find(name).is_some_and(|known| known.family == Family::Imagenet);
    let imagenets = datasets.iter().filter(is_imagenet).count() == 5;
    let top1 = |row: &String, dataset: &String| {
        let own = runs.iter().zip(&names).filter(|(run, name)| *name == row && run.provenance.dataset == *dataset);
        let mut seeds: BySeed = own.map(|(run, _)| (run.seeds(), 100.0 * run.summary.metrics.top1)).collect();
        seeds.sort_by_key(|(seed, _)| *seed);
        seeds
    };
    let average_without = |row: &String, excluded: &str| {
        let columns = datasets.iter().filter(|name| *name != excluded).map(|name| top1(row, name));
        average(&columns.collect::<Vec<_>>())
    };
    let mut columns = Table::of(title, distinct(&names)).column("prompt + method", |row| Cell::text(row));
    for name in &datasets {
        let title = Known::find(name).map_or(name.as_str(), |known| known.title);
        columns = columns.column(title, |row| mean_cell(&values(&top1(row, name))));
    }
    let mut table = columns
        .column("Avg.", |row| average_without(row, ""))
        .column_if(imagenets, "OOD Avg.", |row| average_without(row, "imagenet"))
        .with_note(
            "top-1 in per cent; mean over seeds ± sample standard deviation (n-1) where there are several; prompts tuned alike but \
             for the seed are seeds, too; runs that differ in anything else are separate rows",
        );
    let columns = 1..table.header.len();
    table.mark_best(columns);
    table.notes.push("Avg.: unweighted mean over data sets, ± the deviation of the seeds' averages".into());
    table
}

/// Known data sets in the paper's order, then the rest as given.
fn datasets_of(runs: &[Run]) -> Vec<String> {
    let rank = |name: &String| KNOWN.iter().position(|known| known.name == name).unwrap_or(usize::MAX);
    let mut names = distinct(runs.iter().map(|run| &run.provenance.dataset));
    names.sort_by_key(rank);
    names
}

/// Top-1 in per cent of a row on one data set, by seed.
type BySeed = Vec<((u64, Option<u64>), f64)>;

fn values(column: &BySeed) -> Vec<f64> {
    column.iter().map(|(_, value)| *value).collect()
}

/// The average over data sets that all have runs. Its deviation is over the seeds' own averages, where every data set has
/// the same seeds.
fn average(columns: &[BySeed]) -> Cell {
    let Some(first) = columns.first().filter(|_| columns.iter().all(|column| !column.is_empty())) else {
        return Cell::none();
    };
    let seeds = |column: &BySeed| column.iter().map(|(seed, _)| *seed).collect::<Vec<_>>();
    if columns.iter().all(|column| seeds(column) == seeds(first)) {
        let of_seed = |seed: usize| mean(&columns.iter().map(|column| column[seed].1).collect::<Vec<_>>());
        return mean_cell(&(0..first.len()).filter_map(of_seed).collect::<Vec<_>>());
    }
    let means: Vec<f64> = columns.iter().filter_map(|column| mean(&values(column))).collect();
    Cell::some(mean(&means), |mean| Cell::number(mean, 2))
}

fn mean_cell(values: &[f64]) -> Cell {
    Cell::some(mean_and_deviation(values), |(mean, deviation)| Cell::mean(mean, deviation, values.len()))
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

    fn texts(table: &Table) -> Vec<&str> {
        table.rows[0].iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn an_average_has_the_deviation_of_the_seeds_averages() {
        let runs = [on("own-b", 1, 0.5), on("own-a", 1, 0.3), on("own-a", 2, 0.5), on("own-b", 2, 0.3)];
        let table = benchmark_table(&runs, "t");
        assert_eq!(table.header, ["prompt + method", "own-b", "own-a", "Avg."]);
        // What one data set gains the other loses: the average of every seed is 40.
        assert_eq!(texts(&table), ["coop + stss", "40.00 ± 14.14", "40.00 ± 14.14", "40.00 ± 0.00"]);
        assert!(table.notes[0].contains("sample standard deviation (n-1)"));
        // Other seeds on the other data set: a mean, and no deviation that nobody can tell.
        let runs = [on("own-b", 1, 0.5), on("own-a", 3, 0.3), on("own-a", 2, 0.5)];
        let table = benchmark_table(&runs, "t");
        assert_eq!(table.rows[0][3].text, "45.00");
        let alone = benchmark_table(&runs[..1], "t");
        assert_eq!(texts(&alone), ["coop + stss", "50.00", "50.00"]);
    }
}
