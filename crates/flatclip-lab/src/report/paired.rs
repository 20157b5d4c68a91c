//! Paired comparison of runs on the same samples, each with a reference.

use super::rows::{distinct, row_names};
use super::{Cell, Run, Table};
use crate::eval::Record;
use crate::eval::metrics::paired;
use flatclip::methods::adapter;
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Paired comparison of runs on the same samples. The reference is a row, named by one of its run directories, by `prompt +
/// method`, by its method or by its prompt where only one row has that; else the first row of each data set.
pub fn paired_table(runs: &[Run], reference: Option<&str>) -> Result<Table> {
    let names = row_names(runs);
    let chosen = reference.map(|word| find_row(runs, &names, word)).transpose()?;
    let (mut compared, mut alone) = (Vec::new(), Vec::new());
    for (number, run) in runs.iter().enumerate() {
        let first_row = || (0..runs.len()).find(|&i| is_on(&runs[i], run)).map(|i| &names[i]);
        let Some(row) = chosen.as_ref().or_else(first_row).filter(|row| **row != names[number]) else { continue };
        match partner(runs, &names, row, run) {
            Some(first) => {
                let (a, b) = common(&first.records()?, &run.records()?);
                compared.push((run, [row, &names[number]], paired(&a, &b, 1000, 0)));
            }
            None => alone.push(format!("{} on {} (seed {})", names[number], run.provenance.dataset, run.config.seed)),
        }
    }
    let mut table = Table::of("Paired comparison", compared)
        .column("second", |(_, [_, second], _)| Cell::text(*second))
        .column("first", |(_, [first, _], _)| Cell::text(*first))
        .column("data", |(run, ..)| Cell::text(&run.provenance.dataset))
        .column("seed", |(run, ..)| Cell::text(run.config.seed.to_string()))
        .column("samples", |(.., found)| Cell::count(found.count))
        .column("only first", |(.., found)| Cell::count(found.only_first))
        .column("only second", |(.., found)| Cell::count(found.only_second))
        .column("difference", |(.., found)| Cell::difference(found))
        .column("95 %", |(.., found)| Cell::signed_interval(found))
        .column("p (McNemar)", |(.., found)| Cell::p_value(found.p_value))
        .with_note(
            "difference of top-1 in points, second minus first, on the samples that both answered; exact test, paired bootstrap; \
             runs of the same seed are compared, or with the only run of the reference",
        );
    if !alone.is_empty() {
        table.notes.push(format!("not compared, since the reference has no such run: {}", alone.join("; ")));
    }
    Ok(table)
}

fn is_on(other: &Run, run: &Run) -> bool {
    other.provenance.dataset == run.provenance.dataset
}

/// The run of a row that another one is compared with: of the same seeds, else of the same seed, else the only one.
fn partner<'r>(runs: &'r [Run], names: &[String], row: &str, run: &Run) -> Option<&'r Run> {
    let own =
        || runs.iter().zip(names).filter(|(other, name)| *name == row && is_on(other, run)).map(|(other, _)| other);
    let one = |mut found: Vec<&'r Run>| if found.len() == 1 { found.pop() } else { None };
    own()
        .find(|other| other.seeds() == run.seeds())
        .or_else(|| one(own().filter(|other| other.config.seed == run.config.seed).collect()))
        .or_else(|| one(own().collect()))
}

/// The row that a word means.
fn find_row(runs: &[Run], names: &[String], word: &str) -> Result<String> {
    let rows = |matches: &Matches<'_>| -> Vec<String> {
        let matching = runs.iter().zip(names).filter(|(run, name)| matches(run, name));
        distinct(matching.map(|(_, name)| name))
    };
    let method = adapter(word).map(|spec| spec.name).unwrap_or(word);
    let ways: [&Matches<'_>; 4] = [
        &|run, _| is_same_path(&run.path, Path::new(word)),
        &|_, name| name == word,
        &|run, _| run.config.method == method,
        &|run, _| run.provenance.prompt == word,
    ];
    let found = ways.iter().map(|way| rows(way)).find(|found| !found.is_empty()).unwrap_or_default();
    match found.as_slice() {
        [row] => Ok(row.clone()),
        [] => {
            let known = rows(&|_, _| true).join(", ");
            let reason = format!(
                "expected a run directory, a row, a method or a prompt of these runs, found `{word}`; rows: {known}"
            );
            Err(Error::config("reference", reason))
        }
        several => {
            let reason = format!("`{word}` names {} rows, expected one: {}", several.len(), several.join(", "));
            Err(Error::config("reference", reason))
        }
    }
}

/// Whether a run with the name of its row is meant.
type Matches<'a> = dyn Fn(&Run, &String) -> bool + 'a;

/// Whether both name the same place, however they are written.
fn is_same_path(a: &Path, b: &Path) -> bool {
    let absolute = |path: &Path| std::fs::canonicalize(path).ok();
    a == b || absolute(a).is_some_and(|a| absolute(b) == Some(a))
}

/// Right or wrong of both runs on the samples that both answered, matched by id.
fn common(first: &[Record], second: &[Record]) -> (Vec<bool>, Vec<bool>) {
    let right = |record: &Record| Some(record.answer.as_ref()?.prediction == record.label);
    let by_id: BTreeMap<&str, bool> = first.iter().filter_map(|r| Some((r.id.as_str(), right(r)?))).collect();
    second.iter().filter_map(|r| Some((*by_id.get(r.id.as_str())?, right(r)?))).unzip()
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::run;
    use super::*;

    fn of(method: &str, seed: u64) -> Run {
        let mut run = run(seed, "p", 0.5, "f32");
        run.path = format!("runs/{method}-{seed}").into();
        run.config.method = method.into();
        run
    }

    #[test]
    fn a_reference_is_named_by_its_place_row_method_or_prompt() {
        let mut plain = of("zero", 1);
        plain.provenance.prompt = "template".into();
        let runs = [of("stss", 1), of("stss", 2), of("zero", 1), plain];
        let names = row_names(&runs);
        for (word, row) in [
            ("runs/stss-2", "coop + stss"),
            ("coop + zero", "coop + zero"),
            ("stss", "coop + stss"),
            ("fga", "coop + stss"),
            ("template", "template + zero"),
        ] {
            assert_eq!(find_row(&runs, &names, word).unwrap(), row, "{word}");
        }
        let several = find_row(&runs, &names, "zero").unwrap_err().to_string();
        assert!(several.contains("names 2 rows") && several.contains("template + zero"), "{several}");
        let none = find_row(&runs, &names, "mta").unwrap_err().to_string();
        assert!(none.contains("found `mta`") && none.contains("coop + stss, coop + zero"), "{none}");
    }

    #[test]
    fn a_very_small_p_value_is_said_to_be_below_a_bound() {
        let (a, b) = (vec![true; 60], [vec![false; 40], vec![true; 20]].concat());
        let p = Cell::p_value(paired(&a, &b, 1000, 0).p_value);
        assert_eq!(p.text, "< 0.0001");
        assert!(p.value.is_some_and(|p| p > 0.0 && p < 1e-10), "{p:?}");
        assert_eq!(Cell::p_value(paired(&a, &a, 1000, 0).p_value).text, "1.0000");
    }

    #[test]
    fn a_run_is_compared_with_its_own_seed_or_with_the_only_one() {
        let runs = [of("zero-shot", 0), of("stss", 1), of("stss", 2), of("zero", 2), of("zero", 3)];
        let names = row_names(&runs);
        let partner = |row: &str, run: &Run| partner(&runs, &names, row, run).map(|run| run.path.clone());
        assert_eq!(partner("coop + stss", &runs[3]), Some("runs/stss-2".into()));
        assert_eq!(partner("coop + zero-shot", &runs[3]), Some("runs/zero-shot-0".into()));
        assert_eq!(partner("coop + stss", &runs[4]), None);
    }
}
