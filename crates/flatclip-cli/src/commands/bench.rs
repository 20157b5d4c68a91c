//! `flatclip bench`: every stage timed on random weights of real shapes (or on a model of yours).

use crate::inputs::model::{PRECISIONS, precision};
use crate::prelude::*;
use flatclip::Model;
use flatclip_lab::bench::{
    BenchRequest, CaseTiming, MethodTiming, Turn, TurnTaker, method_names, time_cases, time_method,
};
use std::io::Write as _;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases to run [default: all]: gemm, encode-views, files, rounds, views, text-features, context-step, sapt-step, stss-image,
    /// stss-rounds, stss-scores, tpt-step, tpt-image
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
    /// Arithmetic of the image tower; auto is bf16 where the CPU has AMX, i16 where it has AVX2 alone or AVX-512 with VNNI,
    /// else f32
    #[arg(long, value_parser = PRECISIONS, default_value = "auto", value_name = "NAME")]
    precision: String,
    /// Arithmetic of the text tower, forward and backward
    #[arg(long, value_parser = PRECISIONS, default_value = "f32", value_name = "NAME")]
    text_precision: String,
    /// Repeats of each case, after one that warms up
    #[arg(long, default_value_t = 5, value_name = "N")]
    repeats: usize,
    /// Views of an image
    #[arg(long, default_value_t = 64, value_name = "N")]
    views: usize,
    /// Classes (of ImageNet) for the text cases; context-step runs 100 and this many
    #[arg(long, default_value_t = 1000, value_name = "K")]
    classes: usize,
    /// An image for the case views, which then decodes it, too [default: noise of 500 x 375], and for the case files, which needs one
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// One repeat per line `run` on stdin, answered by a line of JSON; a line `next` starts the next case
    #[arg(long)]
    turns: bool,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let request = BenchRequest {
        model: args.model.clone(),
        find: Model::builder(&args.model).offline(true),
        precision: precision(&args.precision),
        text_precision: precision(&args.text_precision),
        repeats: args.repeats,
        views: args.views,
        classes: args.classes,
        image: args.image.clone(),
    };
    if let Some(name) = &args.method_alone {
        out.json(&time_method(&request, name, out)?)
    } else if !args.methods.is_empty() {
        methods(&args, &request, out)
    } else if args.turns {
        time_cases(&request, &args.cases, Some(&mut LinesOfStdin), out)?;
        Ok(())
    } else {
        report(&request, &time_cases(&request, &args.cases, None, out)?, out)
    }
}

/// A line `run` on stdin is a turn, answered by a line of JSON; a line `next` starts the next case.
struct LinesOfStdin;

impl TurnTaker for LinesOfStdin {
    fn wait(&mut self) -> flatclip::Result<bool> {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(flatclip::Error::io("stdin"))?;
        match line.trim() {
            "run" => Ok(true),
            "next" | "" => Ok(false),
            other => Err(flatclip::Error::config("turns", format!("expected `run` or `next`, found {other:?}"))),
        }
    }

    fn done(&mut self, turn: &Turn<'_>) -> flatclip::Result<()> {
        let mut stdout = std::io::stdout().lock();
        let line = serde_json::to_string(turn).unwrap_or_default();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(flatclip::Error::io("stdout"))
    }
}

fn report(request: &BenchRequest, timings: &[CaseTiming], out: &Output) -> Result<()> {
    if out.is_json {
        return out.json(&json!({ "setting": request.setting(), "cases": timings }));
    }
    let row = |t: &CaseTiming| {
        let [median, fastest, slowest] = [t.median, t.fastest, t.slowest].map(seconds);
        let gflops = t.gflops.map_or(String::new(), |x| format!("{x:.1}"));
        let share = t.share.map_or(String::new(), |x| format!("{:.0} %", 100.0 * x));
        [t.case.clone(), median, fastest, slowest, gflops, share, megabytes(t.peak_rss_mb)]
    };
    out.rows(&["case", "median", "fastest", "slowest", "GFLOP/s", "of products", "peak RSS"], timings.iter().map(row))
}

/// All rows of `--methods`, each from a separate process: a peak of resident memory belongs to a process.
fn methods(args: &Args, request: &BenchRequest, out: &Output) -> Result<()> {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for name in method_names(&args.methods)? {
        out.note(format_args!("{name} ..."));
        match alone(args, request, &name)? {
            Ok(row) => done.push(row),
            Err(reason) => {
                out.warn(format_args!("{name} was not measured: {reason}"));
                refused.push(json!({ "method": name, "reason": reason }));
            }
        }
    }
    if out.is_json {
        return out.json(&json!({
            "setting": request.setting(), "classes": args.classes, "processes": "one per row", "methods": done,
            "refused": refused,
        }));
    }
    let row = |t: &MethodTiming| {
        let [median, fastest, slowest, added, once] = [t.median, t.fastest, t.slowest, t.added, t.prepare].map(seconds);
        let (views, ratio, peak) = (t.views.to_string(), format!("{:.3}", t.ratio), megabytes(t.peak_rss_mb));
        [t.method.clone(), views, median, fastest, slowest, added, ratio, once, peak, t.stand_ins.join("; ")]
    };
    let header =
        ["method", "views", "per image", "fastest", "slowest", "added", "x encode", "once", "peak RSS", "stand-ins"];
    out.rows(&header, done.iter().map(row))?;
    out.line(format_args!(
        "\nper image: {} views encoded and answered for, K={}, median of {}; added: by the adapter, after the encoding; x encode: per image \
         against encoding the same views, in turns; once: per prompt and class list; peak RSS: each row in a process of its own, weights included",
        args.views, args.classes, args.repeats
    ))
}

/// This program, to run in a process of its own with the same threads and instructions.
pub(super) fn itself() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    let threads = rayon::current_num_threads().to_string();
    command.args(["--quiet", "--threads", &threads, "--isa", flatclip_tensor::isa::current().name()]);
    command.stdin(Stdio::null());
    Ok(command)
}

/// One row from a fresh process, or why the method refused.
fn alone(args: &Args, request: &BenchRequest, name: &str) -> Result<Result<MethodTiming, String>> {
    let mut command = itself()?;
    command.args(["bench", "--json", "--method-alone", name, "--model", &args.model]);
    command.args(["--precision", request.precision.name(), "--text-precision", request.text_precision.name()]);
    for (flag, value) in [("--repeats", args.repeats), ("--views", args.views), ("--classes", args.classes)] {
        command.args([flag, &value.to_string()]);
    }
    let ended = command.output()?;
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    if let Ok(error) = serde_json::from_str::<Value>(&said)
        && error["code"] == "method.needs"
    {
        return Ok(Err(error["error"].as_str().unwrap_or_default().to_owned()));
    }
    ensure!(ended.status.success(), "{name}: its process ended with {}: {said}", ended.status);
    Ok(Ok(serde_json::from_slice(&ended.stdout).with_context(|| format!("{name}: its process gave no row"))?))
}

fn megabytes(value: Option<f64>) -> String {
    value.map_or(String::new(), |x| format!("{x:.0} MB"))
}

fn seconds(s: f64) -> String {
    if s < 0.1 { format!("{:.2} ms", 1e3 * s) } else { format!("{s:.3} s") }
}
