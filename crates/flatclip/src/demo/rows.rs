//! The rows of the demo's table: a prompt and an adapter each, on every domain.

use super::{DOMAINS, Size, Tuned, World};
use crate::data::{self, OpenOptions, Split};
use crate::eval::Timing;
use crate::eval::metrics::{Paired, paired};
use crate::facade::{NamedPrompt, RunRequest, Runner};
use crate::image::views::ViewPolicy;
use crate::methods;
use crate::report::{Cell, Run};
use crate::{Error, Result};
use serde::Serialize;
use std::path::Path;

/// Name, prompt, adapter. Always with the untuned prompt beside: selecting views helps it, too.
const ROWS: [(&str, &str, &str); 10] = [
    ("zero-shot", "template", "zero-shot"),
    ("zero-shot + ZERO", "template", "zero"),
    ("TPT", "template", "tpt"),
    ("MTA", "template", "mta"),
    ("TDA", "template", "tda"),
    ("CoOp", "coop", "zero-shot"),
    ("CoOp + ZERO", "coop", "zero"),
    ("STSS + CoOp", "coop", "stss"),
    ("SAPT", "sapt", "zero-shot"),
    ("FGA (SAPT + STSS)", "sapt", "stss"),
];
/// The row that the others are compared with.
const OURS: &str = "FGA (SAPT + STSS)";

/// One row: right or wrong for every picture of every domain.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// `right[domain][picture]`.
    #[serde(skip)]
    pub(super) right: Vec<Vec<bool>>,
    /// Share of right answers per domain.
    pub(super) accuracy: Vec<f64>,
    /// Mean over the shifted domains.
    pub(super) ood: f64,
    /// Milliseconds per picture for adapting, features at hand.
    pub(super) adapt_ms: f64,
}

/// All rows of one seed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    /// Milliseconds per picture to draw, crop and encode all views.
    pub(super) encode_ms: f64,
    pub(super) views: usize,
}

/// A row to be made.
pub(super) struct RowRequest {
    pub(super) name: String,
    /// The name of its prompt.
    pub(super) prompt: String,
    pub(super) method: String,
    pub(super) options: toml::Table,
}

impl RowRequest {
    pub(super) fn new(name: impl Into<String>, prompt: &str, method: &str) -> Self {
        Self { name: name.into(), prompt: prompt.into(), method: method.into(), options: options(method) }
    }
}

pub(super) fn evaluate(
    world: &World<'_>,
    prompts: &[NamedPrompt],
    requests: &[RowRequest],
    size: &Size,
    seed: u64,
    dir: &Path,
) -> Result<Table> {
    let mut rows = Vec::new();
    let (mut encode, mut encoded) = (0.0, 0);
    for RowRequest { name, prompt: prompt_name, method, options } in requests {
        let prompt = prompts.iter().find(|prompt| prompt.name == *prompt_name);
        let prompt = prompt.ok_or_else(|| Error::config("prompt", format!("no prompt is called {prompt_name}")))?;
        let mut row = Row { name: name.clone(), right: vec![], accuracy: vec![], ood: 0.0, adapt_ms: 0.0 };
        for domain in DOMAINS {
            let place = dir.join("runs").join(domain).join(format!("{prompt_name}-{method}"));
            let (right, timing) = world.answer(prompt, method, domain, size, seed, options.clone(), &place)?;
            row.accuracy.push(share(&right));
            row.right.push(right);
            row.adapt_ms += 1e3 * timing.adapt / (size.pictures * DOMAINS.len()) as f64;
            encode += timing.encode;
            encoded += timing.samples - timing.cached;
        }
        row.ood = row.accuracy[1..].iter().sum::<f64>() / (DOMAINS.len() - 1) as f64;
        rows.push(row);
    }
    Ok(Table { rows, encode_ms: 1e3 * encode / encoded.max(1) as f64, views: size.views })
}

/// ZERO keeps as many views as STSS here, so that the rows differ in how views are ranked, not in how many there are.
fn options(method: &str) -> toml::Table {
    let mut options = toml::Table::new();
    if method == "zero" {
        options.insert("fraction".into(), toml::Value::Float(0.1));
    }
    options
}

/// The ten rows.
pub(super) fn usual() -> Vec<RowRequest> {
    ROWS.iter().map(|&(name, prompt, method)| RowRequest::new(name, prompt, method)).collect()
}

/// The share of right answers.
pub(super) fn share(right: &[bool]) -> f64 {
    right.iter().filter(|&&r| r).count() as f64 / right.len().max(1) as f64
}

impl World<'_> {
    /// One run; which pictures were answered rightly.
    pub(super) fn answer(
        &self,
        prompt: &NamedPrompt,
        method: &str,
        domain: &str,
        size: &Size,
        seed: u64,
        options: toml::Table,
        dir: &Path,
    ) -> Result<(Vec<bool>, Timing)> {
        let spec = format!("pocket:{domain}:test:{}", size.pictures);
        let dataset = data::open(&spec, &OpenOptions { split: Split::Test, ..OpenOptions::default() })?;
        let runner = Runner {
            cache: Some(&self.cache),
            statistics: self.statistics.clone(),
            ..Runner::new(self.model, prompt.clone(), self.progress)
        };
        let request = RunRequest {
            method: methods::adapter(method)?,
            options,
            views: size.views,
            certainty: None,
            policy: ViewPolicy::CropFlip,
            seed,
            order_seed: None,
            limit: None,
            shard: None,
            max_errors: 0,
            resume: false,
            dir: dir.to_path_buf(),
        };
        let (_, timing) = runner.run(&dataset, &request)?;
        let records = Run::read(dir)?.records()?;
        let right = records.iter().map(|r| r.answer.as_ref().is_some_and(|a| a.prediction == r.label)).collect();
        Ok((right, timing))
    }
}

impl Table {
    /// Right and wrong over all shifted domains, one after the other.
    fn shifted(&self, name: &str) -> Vec<bool> {
        let row = self.rows.iter().find(|row| row.name == name);
        row.map(|row| row.right[1..].concat()).unwrap_or_default()
    }

    /// FGA minus another row, on the shifted domains.
    pub(super) fn difference(&self, name: &str) -> Paired {
        paired(&self.shifted(name), &self.shifted(OURS), 2000, 0)
    }

    /// A row's mean over the shifted domains.
    fn ood(&self, name: &str) -> f64 {
        self.rows.iter().find(|row| row.name == name).map_or(f64::NAN, |row| row.ood)
    }
}

/// Accuracy per domain; with several seeds, their mean.
pub(super) fn accuracy_table(model: &str, tables: &[Table]) -> crate::report::Table {
    let mut header: Vec<String> = vec!["prompt and adapter".into()];
    header.extend(DOMAINS.iter().map(|&d| d.to_owned()));
    header.extend(["OOD mean".to_owned(), "ms".to_owned()]);
    let count = tables.len() as f64;
    let seeds = if tables.len() > 1 { format!(", mean of {count} seeds") } else { String::new() };
    let title = format!("Accuracy of {model} in %{seeds}");
    let mut table = crate::report::Table::new(title, header);
    for (i, row) in tables[0].rows.iter().enumerate() {
        let mean = |value: &dyn Fn(&Row) -> f64| tables.iter().map(|t| value(&t.rows[i])).sum::<f64>() / count;
        let mut cells = vec![Cell::text(&row.name)];
        cells.extend((0..DOMAINS.len()).map(|d| Cell::percent(mean(&|row| row.accuracy[d]))));
        cells.push(Cell::percent(mean(&|row| row.ood)));
        cells.push(Cell::number(mean(&|row| row.adapt_ms), 2));
        table.push(cells);
    }
    table.mark_best(1..=DOMAINS.len() + 1);
    table.notes.push(format!(
        "{} test pictures per style; OOD mean: of the six shifted styles; ms: what the adapter adds per picture once its views are encoded",
        tables[0].rows.first().and_then(|row| row.right.first()).map_or(0, Vec::len)
    ));
    table
}

/// FGA against each row, on the same pictures.
pub(super) fn difference_table(table: &Table) -> crate::report::Table {
    let title = "FGA minus each row, all shifted pictures, points with 95 % paired bootstrap interval";
    let mut out = crate::report::Table::new(title, ["row", "difference", "interval", "mended", "spoilt", "McNemar p"]);
    for row in table.rows.iter().filter(|row| row.name != OURS) {
        let d = table.difference(&row.name);
        let interval =
            d.interval.map_or("-".to_owned(), |i| format!("{:+.1} to {:+.1}", 100.0 * i.low, 100.0 * i.high));
        out.push(vec![
            Cell::text(&row.name),
            Cell { text: format!("{:+.1}", 100.0 * d.difference), ..Cell::number(100.0 * d.difference, 1) },
            Cell::text(interval),
            Cell::number(d.only_second as f64, 0),
            Cell::number(d.only_first as f64, 0),
            Cell::number(d.p_value, 3),
        ]);
    }
    out
}

/// What the table says, in words that follow from its numbers.
pub(super) fn reading(table: &Table, tuned: &Tuned, size: &Size) -> String {
    let points = |a: &str, b: &str| 100.0 * (table.ood(a) - table.ood(b));
    let verdict = |name: &str| {
        let d = table.difference(name);
        match d.interval {
            Some(i) if i.low > 0.0 => format!("better ({:+.1})", 100.0 * d.difference),
            Some(i) if i.high < 0.0 => format!("worse ({:+.1})", 100.0 * d.difference),
            _ => format!("not told apart ({:+.1})", 100.0 * d.difference),
        }
    };
    let sharpness = tuned.sharpness("coop").zip(tuned.sharpness("sapt")).map_or(String::new(), |(coop, sapt)| {
        format!(
            " Within the same radius, the training loss rises by {:.4} around CoOp's prompt and by {:.4} around SAPT's; over all settings tried, \
             by {:.4} to {:.4} and by {:.4} to {:.4}.",
            coop.chosen, sapt.chosen, coop.least, coop.most, sapt.least, sapt.most
        )
    });
    format!(
        "What this shows. 94 % of what the model was trained on were photos; the other six styles, 1 % each, are shifts. Keeping confident views of a picture instead of one \
         view changes the shifted mean by {:+.1} points without any tuning (zero-shot + ZERO against zero-shot). CoOp changes it by {:+.1}, \
         SAPT by {:+.1} (single view, against the untuned prompt; both start from noise).{sharpness} FGA against zero-shot + ZERO: {}; against CoOp + ZERO: {}; \
         against STSS + CoOp: {}.\n\n{} pictures per style and {} views; a drawn world of 32 classes is a miniature, not ImageNet. Settings were \
         chosen on held-out photos, three for CoOp (lowest loss) and three for SAPT (largest rho within 2 % of the lowest loss); the test world was \
         read once; rho' = 0.5 and 10 % of \
         the views kept, by ZERO, too, as in the paper.",
        points("zero-shot + ZERO", "zero-shot"),
        points("CoOp", "zero-shot"),
        points("SAPT", "zero-shot"),
        verdict("zero-shot + ZERO"),
        verdict("CoOp + ZERO"),
        verdict("STSS + CoOp"),
        size.pictures,
        size.views,
    )
}
