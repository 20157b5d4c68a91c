//! `flatclip bench`: every stage timed on random weights of real shapes (or on a model of yours).

mod cases;
mod flops;
mod measure;
mod methods;

use crate::inputs::model::PrecisionArg;
use crate::output::{Exit, Output};
use cases::{CASES, Workbench};
use measure::{Repeats, Timing};
use std::path::PathBuf;

/// Options of `flatclip bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases to run [default: all]: gemm, encode-views, views, text-features, context-step, sapt-step, stss-image,
    /// tpt-step, tpt-image
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Instead of the cases: time and peak memory of one image with these adapters (or `all`), each in a process of its own
    #[arg(long, value_delimiter = ',', value_name = "NAME", conflicts_with = "cases")]
    methods: Vec<String>,
    /// One row of --methods, measured in this process
    #[arg(long, hide = true, value_name = "NAME", conflicts_with_all = ["cases", "methods"])]
    method_alone: Option<String>,
    /// `random:ViT-B-16`, `random:RN50`, or a checkpoint
    #[arg(long, short, default_value = "random:ViT-B-16", value_name = "MODEL")]
    model: String,
    /// Arithmetic of the image tower; auto is bf16 where the CPU has AMX, else f32
    #[arg(long, value_enum, default_value = "auto", value_name = "NAME")]
    precision: PrecisionArg,
    /// Repeats of each case, after one that warms up
    #[arg(long, default_value_t = 5, value_name = "N")]
    repeats: usize,
    /// Views of an image
    #[arg(long, default_value_t = 64, value_name = "N")]
    views: usize,
    /// Classes (of ImageNet) for the text cases; context-step runs 100 and this many
    #[arg(long, default_value_t = 1000, value_name = "K")]
    classes: usize,
    /// A picture for the case views, which then decodes it, too [default: noise of 500 x 375]
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// One repeat per line `run` on stdin, answered by a line of JSON; a line `next` goes on to the next case
    #[arg(long)]
    turns: bool,
}

impl Args {
    fn repeats(&self) -> Repeats {
        if self.turns { Repeats::Turns } else { Repeats::Count(self.repeats) }
    }
}

pub(crate) fn run(args: Args, out: &Output) -> anyhow::Result<Exit> {
    for name in &args.cases {
        let known: Vec<&str> = CASES.iter().map(|case| case.0).collect();
        anyhow::ensure!(known.contains(&name.as_str()), "no case `{name}`; known are {}", known.join(", "));
    }
    anyhow::ensure!((1..=1000).contains(&args.classes), "--classes: expected 1 to 1000, found {}", args.classes);
    anyhow::ensure!(args.repeats > 0 && args.views > 0, "--repeats and --views: expected at least 1");
    let chosen = |name: &str| args.cases.is_empty() || args.cases.iter().any(|case| case == name);
    let mut bench = Workbench::new(&args, out);
    if let Some(name) = &args.method_alone {
        out.json(&methods::measure_alone(&args, &mut bench, name)?)?;
        return Ok(Exit::Done);
    }
    if !args.methods.is_empty() {
        methods::run(&args, &bench, out)?;
        return Ok(Exit::Done);
    }
    let mut timings = Vec::new();
    for (name, case) in CASES.iter().filter(|case| chosen(case.0)) {
        out.note(format_args!("{name} ..."));
        timings.extend(case(&mut bench)?);
    }
    if !args.turns {
        report(&bench, &timings, out)?;
    }
    Ok(Exit::Done)
}

fn report(bench: &Workbench<'_>, timings: &[Timing], out: &Output) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&serde_json::json!({ "setting": bench.setting(), "cases": timings }));
    }
    let mut table = out.table(&["case", "median", "fastest", "slowest", "GFLOP/s", "of products", "peak RSS"]);
    for t in timings {
        table.add_row([
            t.case.clone(),
            seconds(t.median),
            seconds(t.fastest),
            seconds(t.slowest),
            t.gflops.map_or(String::new(), |x| format!("{x:.1}")),
            t.share.map_or(String::new(), |x| format!("{:.0} %", 100.0 * x)),
            t.peak_rss_mb.map_or(String::new(), |x| format!("{x:.0} MB")),
        ]);
    }
    out.line(table)
}

fn seconds(s: f64) -> String {
    if s < 0.1 { format!("{:.2} ms", 1e3 * s) } else { format!("{s:.3} s") }
}
