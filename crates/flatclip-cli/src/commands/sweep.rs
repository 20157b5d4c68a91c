//! `flatclip sweep`: a grid of settings, answered from kept features; a table and a figure per axis.

use super::eval::SetupArgs;
use crate::output::{Exit, Output};
use crate::progress::Terminal;
use anyhow::{Result, ensure};
use flatclip_lab::eval::{GridAxis, SWEEP_PRESETS, preset};
use flatclip_lab::{EvaluateRequest, SweepRequest, sweep};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Options of `flatclip sweep`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: SetupArgs,
    /// The adapter, unless an axis is `method`
    #[arg(long, default_value = "stss", value_name = "NAME")]
    method: String,
    /// An axis (or a fixed value): stss.radius=0,0.1,0.2 or stss.radius=0..1:0.1; also method=, prompt=, views= (with `auto`), seed= (repeatable)
    #[arg(long = "set", value_name = "KEY=A,B,..")]
    axes: Vec<GridAxis>,
    /// An ablation of the paper: radius, kept, directions or lambda
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Seed of views and method, unless an axis is `seed`
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Where runs, table and figures go
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Resume an unfinished sweep
    #[arg(long)]
    resume: bool,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let mut axes = args.axes.clone();
    if let Some(name) = &args.preset {
        axes.extend(preset(name)?);
    }
    let presets: Vec<&str> = SWEEP_PRESETS.iter().map(|(name, _, _)| *name).collect();
    ensure!(!axes.is_empty(), "what to vary? give --set KEY=A,B,.. or --preset {}", presets.join("|"));
    ensure!(
        !axes.iter().any(|axis| axis.key == "prompt") || (args.setup.prompt.is_default() && !args.setup.own_templates),
        "prompt is an axis: give no other prompt option, add the prompt to the axis instead"
    );
    let base = EvaluateRequest {
        methods: vec![args.method.clone()],
        seeds: vec![args.seed],
        ..args.setup.request(&args.out, args.resume)?
    };
    let start = Instant::now();
    let swept = if args.setup.features.is_empty() {
        let model = args.setup.model.load(out)?;
        let datasets = args.setup.data.open_all(out)?;
        sweep(&SweepRequest { base, axes }, &model, &datasets, &Terminal::with_interrupts(out)?)?
    } else {
        let (terminal, mut swept) = (Terminal::with_interrupts(out)?, Vec::new());
        for (features, place) in args.setup.imported(&args.out, out)? {
            let request = SweepRequest { base: EvaluateRequest { out: place, ..base.clone() }, axes: axes.clone() };
            swept.extend(sweep(&request, &features, std::slice::from_ref(features.dataset()), &terminal)?);
        }
        swept
    };
    let (page, seconds) = (args.out.join("report.html"), start.elapsed().as_secs_f64());
    out.note(format_args!("{} cells in {seconds:.1} s; page: {}", cells(&swept), page.display()));
    if out.is_json() {
        let sweeps: Vec<_> = swept.iter().map(|data| json!({ "data": data.dataset, "table": data.table })).collect();
        out.json(&json!({ "schema_version": 1, "sweeps": sweeps }))?;
    } else {
        swept.iter().try_for_each(|data| out.line(out.fitted(&data.table)))?;
    }
    Ok(if swept.iter().all(|data| data.failed == 0) { Exit::Done } else { Exit::Counted })
}

fn cells(swept: &[flatclip_lab::SweptData]) -> usize {
    swept.iter().map(|data| data.table.rows.len()).sum()
}
