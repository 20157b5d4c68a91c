//! `flatclip sweep`: a grid of settings, answered from cached features; a table and a figure per axis.

use super::eval::SetupArgs;
use crate::prelude::*;
use flatclip_lab::eval::{GridAxis, SWEEP_PRESETS, preset};
use flatclip_lab::{EvaluateRequest, SweepRequest, sweep};
use std::time::Instant;

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
    /// An ablation of the paper: radius, fraction, directions or lambda
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
    let swept = args.setup.on_each(&args.out, out, |subject, datasets, place| {
        let folder = place.unwrap_or(&args.out).to_path_buf();
        let request = SweepRequest { base: EvaluateRequest { out: folder, ..base.clone() }, axes: axes.clone() };
        Ok(sweep(&request, subject, datasets, out)?)
    })?;
    let (page, seconds) = (args.out.join("report.html"), start.elapsed().as_secs_f64());
    let cells: usize = swept.iter().map(|data| data.table.rows.len()).sum();
    out.note(format_args!("{cells} cells in {seconds:.1} s; page: {}", page.display()));
    if out.is_json {
        let sweeps: Vec<_> = swept.iter().map(|data| json!({ "data": data.dataset, "table": data.table })).collect();
        out.json(&json!({ "schema_version": 1, "sweeps": sweeps }))?;
    } else {
        swept.iter().try_for_each(|data| out.line(out.fitted(&data.table)))?;
    }
    Ok(Exit::unless(swept.iter().any(|data| data.failed > 0)))
}
