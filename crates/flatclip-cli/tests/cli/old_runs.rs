//! Run directories and prompts of version 0.1.0 (`fixtures/runs/0.1.0`) are still read, and things still have the same names.

use super::common::{Home, in_repository, read_json};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn old(name: &str) -> PathBuf {
    in_repository("fixtures/runs/0.1.0").join(name)
}

/// The rows of each table, as columns by name.
fn rows(csv: &str) -> Vec<Vec<BTreeMap<String, String>>> {
    let row = |header: &str, line: &str| {
        let cells = line.split(',').map(str::to_owned);
        header.split(',').map(str::to_owned).zip(cells).collect()
    };
    let table = |text: &str| {
        let (header, lines) = text.split_once('\n').unwrap();
        lines.lines().map(|line| row(header, line)).collect()
    };
    csv.trim().split("\n\n").map(table).collect()
}

/// Column by column, numbers as numbers: order, further columns and how many digits are printed may change, what they say may
/// not. What was one column of text is two of numbers today.
fn assert_same_tables(found: &str, expected: &str) {
    let (found, expected) = (rows(found), rows(expected));
    assert_eq!(found.len(), expected.len());
    for expected in expected.iter().flatten() {
        let same = |row: &&BTreeMap<String, String>| {
            expected.iter().all(|(name, cell)| {
                row.get(name).map_or_else(|| is_interval(row, name, cell), |own| is_same(own, cell))
            })
        };
        assert!(found.iter().flatten().any(|row| same(&row)), "{expected:?} is not in {found:?}");
    }
}

fn is_same(found: &str, expected: &str) -> bool {
    match (found.parse::<f64>(), expected.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * b.abs(),
        _ => found == expected,
    }
}

fn is_interval(row: &BTreeMap<String, String>, name: &str, expected: &str) -> bool {
    let end = |part: &str| row.get(&format!("{name} ({part})")).and_then(|cell| cell.parse::<f64>().ok());
    let (Some(low), Some(high)) = (end("low"), end("high")) else { return false };
    [format!("{low:.2}–{high:.2}"), format!("{low:+.2} to {high:+.2}")].iter().any(|text| text == expected)
}

#[test]
fn report_prints_the_same_numbers() {
    let home = Home::new();
    // The paper has zero-shot before stss; that version compared in the order of the folders' names.
    let runs = old("eval").display().to_string();
    let table = home.works(&format!("report {runs} --order given --paired --format csv"));
    // That version charged zero-shot for encoding all eight views; it looks at one.
    let expected = std::fs::read_to_string(old("report.csv")).unwrap();
    let charged = expected.replace("12.1182025", &(12.118_202_5f64 / 8.0).to_string());
    assert_ne!(expected, charged);
    assert_same_tables(&table, &charged);
}

#[test]
fn classes_and_samples_still_have_the_same_names() {
    let home = Home::new();
    let eval = "eval --method zero-shot --data pocket:sketch --limit 16 --views 1 --no-cache --out new";
    home.works(eval);
    let (new, old) = (read_json(home.path("new/run.json")), read_json(old("eval/zero-shot/run.json")));
    for key in ["class_names", "stream"] {
        assert_eq!(new[key], old[key], "{key}");
    }
}

#[test]
fn an_old_prompt_is_shown_and_refused_by_the_models_of_today() {
    let home = Home::new();
    let prompt = old("tune/prompt.safetensors").display().to_string();
    let shown = home.json(&format!("prompt show {prompt}"));
    let record = read_json(old("tune/run.json"));
    assert_eq!(shown["provenance"]["class_hash"], record["class_hash"], "{shown}");
    assert_eq!(shown["provenance"]["model_hash"], record["model_hash"], "{shown}");
    let eval = "eval --method zero-shot --data pocket:photo --limit 8 --views 1 --no-cache --out new --prompt";
    home.refused_with(&format!("{eval} {prompt}"), "was learned with the weights 07653d4d31ea");
}
