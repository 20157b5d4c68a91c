//! Time and memory per image as measured by `bench`. The paper's numbers are in a separate table, since they were measured
//! differently.

use super::step_store::StepStore;
use crate::bench::MethodTiming;
use crate::report::{Cell, Table};
use flatclip::{Error, Result};
use serde::Deserialize;
use std::path::Path;

/// The file of an item with measurements of methods: the JSON output of `bench`.
pub const BENCH: &str = "bench.json";

/// The part of the measurements that is read.
#[derive(Deserialize)]
struct Measured {
    setting: Setting,
    classes: usize,
    methods: Vec<MethodTiming>,
}

/// The measured method and its settings.
#[derive(Deserialize)]
struct Setting {
    model: String,
    isa: String,
    precision: String,
    text_precision: String,
    threads: usize,
}

/// The paper's numbers for one V100 GPU: method, seconds per image, gigabytes.
const PAPER: [(&str, f64, Option<f64>); 3] =
    [("FGA", 0.07, Some(4.14)), ("TPT", 0.62, Some(19.33)), ("DiffTPT", 1.67, None)];

/// The tables; none without measurements.
pub(super) fn efficiency(file: &Path, store: &StepStore<'_>) -> Result<Vec<Table>> {
    if store.recipe.bench.is_empty() || !file.is_file() {
        return Ok(Vec::new());
    }
    let bytes = std::fs::read(file).map_err(Error::io(file))?;
    let fault = |e: serde_json::Error| Error::Run { path: file.to_path_buf(), reason: e.to_string() };
    let measured: Measured = serde_json::from_slice(&bytes).map_err(fault)?;
    Ok(vec![measured.table(), published()])
}

impl Measured {
    fn table(&self) -> Table {
        let Setting { model, isa, precision, text_precision, threads } = &self.setting;
        let views = self.methods.iter().map(|row| row.views).max().unwrap_or_default();
        let s = if *threads == 1 { "" } else { "s" };
        let title = format!("Time and memory per image: {model}, {threads} thread{s}, {} classes", self.classes);
        let stss = self.methods.iter().find(|row| row.method == "stss").map(|row| row.median);
        let mut table = Table::of(title, &self.methods)
            .column("method", |row| Cell::text(if row.method == "stss" { "stss (FGA)" } else { &row.method }))
            .column("views", |row| Cell::count(row.views))
            .column("s per image", |row| Cell::number(row.median, 3))
            // A ratio is not meaningful if the other method was run without its required inputs.
            .column("x stss", |row| {
                Cell::some(stss.filter(|_| row.stand_ins.is_empty()), |stss| Cell::number(row.median / stss, 2))
            })
            .column("x encoding", |row| Cell::number(row.ratio, 3))
            .column("once, s", |row| Cell::number(row.prepare, 3))
            .column("peak GB", |row| Cell::some(row.peak_rss_mb, |mb| Cell::number(mb / 1024.0, 2)))
            .column("stand-ins", |row| Cell::text(row.stand_ins.join("; ")))
            .table();
        table.notes = vec![
            format!(
                "{model} on this CPU ({isa}, image tower in {precision}, text tower in {text_precision}), {threads} \
                 thread{s}; up to {views} views of one image, {} classes; each method in a process of its own, weights \
                 included in its memory",
                self.classes
            ),
            "included: encoding the views and the method itself. Excluded: reading the image and making its views, and what \
             is computed once per prompt and class list (column \"once\": text features, and the text bank of STSS)"
                .into(),
            "stand-ins: what the method got in place of the real input, or a setting that makes it do its full work on random \
             views. Such a row is a time of this code, not of the method as published, and has no ratio to stss"
                .into(),
        ];
        table
    }
}

fn published() -> Table {
    let fga = PAPER[0].1;
    Table::of("Published: one NVIDIA V100 GPU, not comparable with the table above", PAPER)
        .column("method", |(name, ..)| Cell::text(*name))
        .column("s per image", |(_, seconds, _)| Cell::number(*seconds, 2))
        .column("x FGA", |(_, seconds, _)| Cell::number(seconds / fga, 2))
        .column("GB", |(.., memory)| Cell::some(*memory, |gb| Cell::number(gb, 2)))
        .with_note(
            "the paper's own implementations, per image of ImageNet; it does not say what is included (the text bank, reading \
             the image, generating DiffTPT's views). Its ratios, up to 23.86, are not what the table above measures: there \
             DiffTPT's generated views are random features, and TPT's text tower computes once what all classes share",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let row = |method: &str, median: f64, stand_ins: &[&str]| {
            serde_json::json!({
                "method": method, "views": 64, "prepare": 2.5, "median": median, "fastest": median, "slowest": median,
                "repeats": 5, "added": 0.1, "encode": 1.0, "ratio": median, "peak_rss_mb": 2048.0, "stand_ins": stand_ins,
            })
        };
        let rows = [
            row("stss", 2.0, &[]),
            row("tpt", 5.0, &[]),
            row("difftpt", 8.0, &["64 random features of generated views, their encoding not timed"]),
            row("sar", 6.0, &["every view counts as reliable"]),
        ];
        let setting = serde_json::json!({
            "version": "0", "model": "ViT-B-16/openai", "isa": "avx2", "precision": "f32", "text_precision": "f32",
            "threads": 2,
        });
        serde_json::from_value(serde_json::json!({ "setting": setting, "classes": 1000, "methods": rows })).unwrap()
    }

    #[test]
    fn the_page_names_model_threads_what_is_excluded_and_stand_ins() {
        let table = measured().table();
        assert!(table.title.contains("ViT-B-16/openai, 2 threads, 1000 classes"), "{}", table.title);
        let notes = table.notes.join("\n");
        assert!(notes.contains("Excluded:") && notes.contains("text bank of STSS"), "{notes}");
        let text: Vec<Vec<&str>> =
            table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect();
        assert_eq!(text[1][3..6], ["2.50", "5.000", "2.500"]);
        for (row, what) in [(&text[2], "random features"), (&text[3], "every view counts")] {
            assert!(row[3] == "-" && row[7].contains(what), "{row:?}");
        }
    }

    #[test]
    fn published_ratios_stand_in_a_table_of_their_own() {
        assert!(measured().table().header.iter().all(|column| !column.contains("paper")));
        let table = published();
        assert!(table.title.contains("V100") && table.title.contains("not comparable"));
        assert_eq!(table.rows[2][2].text, "23.86");
    }
}
