//! `cargo xtask methods-table`: every adapter on every style of the pocket dataset with both embedded models, and what each gains on
//! the shifted styles over zero-shot, with intervals. Writes `docs/research/methods-on-pocket.md`.

use crate::selection::stats;
use anyhow::{Context as _, Result};
use flatclip::{Model, Progress};
use flatclip_lab::data::{Dataset, OpenOptions, open};
use flatclip_lab::report::{Cell, Run, Table};
use flatclip_lab::{EvaluateRequest, evaluate};
use std::path::PathBuf;

const PAGE: &str = "docs/research/methods-on-pocket.md";
const MODELS: [&str; 2] = ["pocket", "pocket-vit"];
/// The styles; the first is what the models were trained on.
const STYLES: [&str; 7] = ["photo", "sketch", "cartoon", "painting", "noise", "rendition", "hard"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Images of each style
    #[arg(long, default_value_t = 256, value_name = "N")]
    count: usize,
    /// Where features and runs are kept; a second run goes on
    #[arg(long, default_value = "target/methods-table", value_name = "DIR")]
    folder: PathBuf,
}

struct Lines;

impl Progress for Lines {
    fn start(&self, what: &str, _total: Option<u64>) {
        eprintln!("{what}");
    }

    fn note(&self, text: &str) {
        eprintln!("{text}");
    }

    fn warn(&self, text: &str) {
        eprintln!("warning: {text}");
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let (root, count) = (crate::root()?, arguments.count);
    let folder = root.join(&arguments.folder);
    let data: Vec<Dataset> = STYLES
        .iter()
        .map(|style| Ok(open(&format!("pocket:{style}:test:{count}"), &OpenOptions::default())?))
        .collect::<Result<_>>()?;
    let mut page = format!(
        "# All methods on the pocket dataset\n\nWritten by `cargo xtask methods-table --count {count}`. Top-1 in per cent with 95 % \
         bootstrap intervals, {count} test\nimages of each style, template `a photo of a {{}}.`, 64 views (crop and flip), seed 0, the \
         defaults of every method.\nOnline methods see the images in the order of the data set, batch methods a whole style at \
         once. The last column\nis the paired difference to zero-shot over the six shifted styles, with its interval. Methods that need what a\n\
         toy model lacks (generated images, token statistics, a MaPLe prompt) are skipped. Toy models promise\nnothing about \
         ImageNet. onzeta has temperatures of its own (0.01 and 0.04, made for CLIP's 100); these models have 14.\n"
    );
    for name in MODELS {
        let request = EvaluateRequest {
            methods: vec!["all".to_owned()],
            views: Some(64),
            cache: Some(folder.join("cache")),
            resume: true,
            ..EvaluateRequest::new(folder.join(name))?
        };
        let model = Model::load(name)?;
        let runs: Vec<Run> = evaluate(&request, &model, &data, &Lines)?
            .iter()
            .map(|done| Ok(Run::read(&done.dir)?))
            .collect::<Result<_>>()?;
        page.push_str(&format!("\n{}", table(name, &runs)?.to_markdown()));
    }
    println!("{page}");
    std::fs::write(root.join(PAGE), page)?;
    Ok(())
}

fn table(model: &str, runs: &[Run]) -> Result<Table> {
    let header = ["method"].into_iter().chain(STYLES).chain(["shifted - zero-shot"]);
    let mut table = Table::new(format!("`{model}`"), header);
    let mut methods: Vec<&str> = Vec::new();
    for run in runs {
        if !methods.contains(&run.config.method.as_str()) {
            methods.push(&run.config.method);
        }
    }
    let find = |method: &str, style: &str| {
        let name = format!("pocket:{style}");
        let found = runs.iter().find(|run| run.config.method == method && run.provenance.dataset == name);
        found.with_context(|| format!("no run of {method} on {style}"))
    };
    for method in methods {
        let mut row = vec![Cell::text(method)];
        for style in STYLES {
            let m = &find(method, style)?.summary.metrics;
            let range =
                m.top1_interval.map_or(String::new(), |i| format!(" ({:.0}–{:.0})", 100.0 * i.low, 100.0 * i.high));
            row.push(Cell { text: format!("{:.1}{range}", 100.0 * m.top1), ..Cell::percent(m.top1) });
        }
        let shifted = STYLES[1..]
            .iter()
            .map(|style| Ok((*style, stats::rights(find(method, style)?)?, stats::rights(find("zero-shot", style)?)?)));
        let gain = stats::paired(&shifted.collect::<Result<Vec<_>>>()?);
        let text = format!("{:+.1} ({:+.1} to {:+.1})", gain.difference, gain.low, gain.high);
        row.push(Cell { text, ..Cell::number(gain.difference, 2) });
        table.push(row);
    }
    Ok(table)
}
