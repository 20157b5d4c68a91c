//! Time and memory per picture beside the paper's, from what `bench` measured.

use super::desk::Desk;
use crate::bench::MethodTiming;
use crate::report::{Cell, Table};
use crate::{Error, Result};
use serde::Deserialize;
use std::path::Path;

/// The file of an item in which measurements of methods lie: what `bench` prints as JSON.
pub const BENCH: &str = "bench.json";

/// The part of the measurements that is read.
#[derive(Deserialize)]
struct Measured {
    methods: Vec<MethodTiming>,
}

/// What the paper prints of one V100 GPU: method, seconds per picture, gigabytes.
const PAPER: [(&str, f64, Option<f64>); 3] =
    [("stss", 0.07, Some(4.14)), ("tpt", 0.62, Some(19.33)), ("difftpt", 1.67, None)];

/// The table; `None` where nothing was measured.
pub(super) fn efficiency(file: &Path, desk: &Desk<'_>) -> Result<Option<Table>> {
    if desk.recipe.bench.is_empty() || !file.is_file() {
        return Ok(None);
    }
    let bytes = std::fs::read(file).map_err(Error::io(file))?;
    let fault = |e: serde_json::Error| Error::Run { path: file.to_path_buf(), reason: e.to_string() };
    let Measured { methods } = serde_json::from_slice(&bytes).map_err(fault)?;
    let header = ["method", "s per picture", "x FGA", "paper: s", "paper: x FGA", "x encoding", "peak GB", "paper: GB"];
    let mut table = Table::new("Time and memory per picture, 1000 classes", header);
    let ours = methods.iter().find(|row| row.method == "stss").map(|row| row.median);
    let fga = PAPER[0].1;
    for row in &methods {
        let paper = PAPER.iter().find(|(name, ..)| *name == row.method);
        let optional = |value: Option<f64>, digits| value.map_or_else(Cell::none, |v| Cell::number(v, digits));
        let name = if row.method == "stss" { "stss (FGA)".to_owned() } else { row.method.clone() };
        table.push(vec![
            Cell::text(name),
            Cell::number(row.median, 3),
            optional(ours.map(|ours| row.median / ours), 2),
            optional(paper.map(|(_, seconds, _)| *seconds), 2),
            optional(paper.map(|(_, seconds, _)| seconds / fga), 2),
            Cell::number(row.ratio, 3),
            optional(row.peak_rss_mb.map(|mb| mb / 1024.0), 2),
            optional(paper.and_then(|(_, _, memory)| *memory), 2),
        ]);
    }
    table.notes.push(
        "the paper measures one V100 GPU, this machine is a CPU: ratios compare, seconds do not. Ours are smaller for TPT: its \
         text tower computes the part of a prompt that all classes share once, forward and backward, and encoding the 64 views \
         takes most of the time of every method"
            .into(),
    );
    Ok(Some(table))
}
