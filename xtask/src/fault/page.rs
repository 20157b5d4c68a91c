//! `docs/robustness.md`, written from `records/robustness.jsonl`: a line per test, the latest of each.

use super::Row;
use anyhow::Result;
use std::path::Path;

const LINES: &str = "records/robustness.jsonl";
const PAGE: &str = "docs/robustness.md";

/// The suites in the order of the page, and what stands above each.
const SECTIONS: &[(&str, &str)] = &[
    (
        "bad-input",
        "Bad input\nFiles of `fuzz/corpus`, damaged by `xtask/src/fault/mutate.rs`, and crafted ones. A format without a \
         checksum (weights,\nimages, lists) can be read as other content after a flipped bit: counted apart.",
    ),
    ("kill", "Kills\nRuns that are ended hard and resumed must end with the bytes of a run that was left alone."),
    ("disk", "Full disks, short memory, weights that change"),
    ("determinism", "Repeatable results"),
    ("hub", "Downloads"),
    ("server", "Server"),
    (
        "fuzz",
        "Fuzzing\nNew damage to every file of `fuzz/corpus`, as long as the time allows (ten minutes each at scale 1).",
    ),
    ("anchors", "The same attacks on others\nSide by side on the same files; counts of refused, accepted, crashed."),
];

/// Puts a row in the place of an earlier one with the same name and writes the page.
pub(super) fn merge(root: &Path, row: &Row) -> Result<()> {
    let path = root.join(LINES);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut rows = text.lines().map(Row::parse).collect::<Result<Vec<Row>>>()?;
    match rows.iter_mut().find(|other| other.test == row.test) {
        // A test that was skipped has shown nothing: what an earlier run showed stays, with its own date and commit.
        Some(_) if row.is_skipped() => {}
        Some(other) => *other = row.clone(),
        None => rows.push(row.clone()),
    }
    let lines: String = rows.iter().map(|row| row.line() + "\n").collect();
    std::fs::write(&path, lines)?;
    std::fs::write(root.join(PAGE), page(&rows))?;
    Ok(())
}

fn page(rows: &[Row]) -> String {
    let tried: u64 = rows.iter().map(|row| row.tried).sum();
    let passed: u64 = rows.iter().map(|row| row.passed).sum();
    let skipped = match rows.iter().filter(|row| row.is_skipped()).count() {
        0 => String::new(),
        1 => " 1 test was skipped and counts for nothing.".to_owned(),
        count => format!(" {count} tests were skipped and count for nothing."),
    };
    let mut page = format!(
        "# Robustness\n\nWhat was done to flatclip on purpose, how often, and what came of it. `cargo xtask fault all` runs \
         it and writes\nthis page (fuzzing and the comparison with others apart: `fault fuzz`, `fault anchors`); a part \
         stands in\n`cargo xtask test`. {passed} of {tried} cases passed.{skipped}\n\nA row carries the date, commit and machine of its own \
         run. Peak memory is that of the test's own process\nor of a program that it started, whichever is larger. Seconds are no benchmark: the machine may have been busy.\nScale 1 is \
         the full count.\n"
    );
    let known = |suite: &str| SECTIONS.iter().any(|(name, _)| *name == suite);
    for (suite, words) in SECTIONS {
        section(&mut page, words, rows.iter().filter(|row| row.suite == *suite));
        if *suite == "anchors" {
            beside(&mut page, rows.iter().filter(|row| row.suite == *suite));
        }
    }
    section(&mut page, "Other", rows.iter().filter(|row| !known(&row.suite)));
    let mut machines: Vec<&str> = rows.iter().map(|row| row.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    page += &format!("\nMachine: {}.\n", machines.join("; "));
    page
}

fn section<'a>(page: &mut String, words: &str, rows: impl Iterator<Item = &'a Row>) {
    let mut rows: Vec<&Row> = rows.collect();
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|row| order(&row.test));
    let (title, text) = words.split_once('\n').unwrap_or((words, ""));
    *page += &format!("\n## {title}\n\n");
    if !text.is_empty() {
        *page += &format!("{}\n\n", text.trim());
    }
    *page += "| test | what | passes when | passed / tried | seconds | peak MB | also | run |\n|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let escape = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let result = if row.is_skipped() {
            format!("skipped: {}", escape(&row.skipped))
        } else {
            format!("{} / {}", row.passed, row.tried)
        };
        *page += &format!(
            "| {} | {} | {} | {result} | {:.1} | {} | {} | {} {}, scale {} |\n",
            row.test,
            escape(&row.what),
            escape(&row.rule),
            row.seconds,
            row.peak_mb,
            escape(&row.noted()),
            row.date,
            row.commit,
            row.scale,
        );
        for failure in &row.failures {
            *page += &format!("| | **failed** | {} | | | | | |\n", escape(failure));
        }
    }
}

/// Ours and theirs in columns.
fn beside<'a>(page: &mut String, rows: impl Iterator<Item = &'a Row>) {
    let read = |row: &&Row| row.notes.keys().any(|key| key.starts_with("ours "));
    let mut rows: Vec<&Row> = rows.filter(read).collect();
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|row| order(&row.test));
    *page += "\n| test | files | ours: refused, accepted | theirs: refused, accepted, panicked, crashed, hung | only ours accepted | \
              only theirs accepted | accepted by both: same pixels, other pixels |\n|---|---:|---|---|---:|---:|---|\n";
    for row in rows {
        let count = |key: &str| row.notes.get(key).map_or("0".to_owned(), ToString::to_string);
        let all = |keys: &[&str]| keys.iter().map(|key| count(key)).collect::<Vec<_>>().join(", ");
        let pixels = ["both accepted, the same pixels", "both accepted, other pixels"];
        let has_pixels = pixels.iter().any(|key| row.notes.contains_key(*key));
        *page += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            row.test,
            row.tried,
            all(&["ours refused", "ours accepted"]),
            all(&["theirs refused", "theirs accepted", "theirs panicked", "theirs crashed", "theirs hung"]),
            count("only ours accepted"),
            count("only theirs accepted"),
            if has_pixels { all(&pixels) } else { String::new() },
        );
    }
}

/// B2 before B10.
fn order(name: &str) -> (String, u32, String) {
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let end = name[digits..].find(|c: char| !c.is_ascii_digit()).map_or(name.len(), |end| digits + end);
    (name[..digits].to_owned(), name[digits..end].parse().unwrap_or(0), name[end..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, tried: u64) -> Row {
        let line = format!(r#"{{"test":"{name}","suite":"x","tried":{tried},"passed":{tried}}}"#);
        Row::parse(&line).unwrap()
    }

    #[test]
    fn a_skipped_test_says_so_counts_for_nothing_and_replaces_no_result() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["docs", "records"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let skipped = |name: &str| {
            let line = format!(r#"{{"test":"{name}","suite":"x","tried":0,"passed":0,"skipped":"no Ray here"}}"#);
            Row::parse(&line).unwrap()
        };
        for row in [row("B2", 2), skipped("F10"), skipped("B2")] {
            merge(folder.path(), &row).unwrap();
        }
        let page = std::fs::read_to_string(folder.path().join(PAGE)).unwrap();
        assert!(page.contains("2 of 2 cases passed. 1 test was skipped"), "{page}");
        assert!(page.contains("| skipped: no Ray here |") && page.contains("| 2 / 2 |"), "{page}");
    }

    #[test]
    fn a_partial_run_keeps_the_other_rows() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["docs", "records"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for row in [row("B10", 1), row("B2", 2), row("B10", 5)] {
            merge(folder.path(), &row).unwrap();
        }
        let lines = std::fs::read_to_string(folder.path().join(LINES)).unwrap();
        assert_eq!(lines.lines().count(), 2);
        let page = std::fs::read_to_string(folder.path().join(PAGE)).unwrap();
        assert!(page.contains("7 of 7 cases"), "{page}");
        assert!(!page.contains("skipped"), "{page}");
        assert!(page.find("| B2 |") < page.find("| B10 |") && page.contains("| 5 / 5 |"), "{page}");
    }
}
