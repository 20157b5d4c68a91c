//! The estimated cost of a plan, and options that lower it; and time and memory of methods for an item that shows them, from
//! `flatclip bench`, which measures each in a process of its own.

use super::Planned;
use crate::commands::bench::itself;
use crate::commands::cache::size;
use crate::prelude::*;
use flatclip::Model;
use flatclip::model::Precision;
use flatclip_lab::reproduce::{BENCH, Estimate, ReproduceRequest, State, Work, plan, prices};
use std::process::Stdio;

/// Above this, options that lower the cost are printed.
const HOUR: f64 = 3600.0;

/// Prints the sum by kind of work, and above an hour what each option would leave of it.
pub(super) fn print(request: &ReproduceRequest, model: &Model, steps: &[Planned<'_>], out: &Output) -> Result<()> {
    let (mut rows, mut sum) = (Vec::new(), Estimate::default());
    for (name, is_it) in KINDS {
        sum = Estimate::default();
        let mine = steps.iter().filter(|step| *step.state != State::Done && is_it(&step.step.work));
        let count = mine.map(|step| sum += *step.price).count();
        if count > 0 || name == "all" {
            let [encode, compute] = [sum.encode, sum.compute].map(duration);
            rows.push([name.to_owned(), count.to_string(), sum.images.to_string(), encode, compute, size(sum.disk)]);
        }
    }
    out.line("")?;
    out.rows(&["work", "steps", "images", "encode", "compute", "disk"], rows)?;
    let total = sum.seconds();
    out.line(format_args!("about {} on this machine at the current load", duration(total)))?;
    if total > HOUR {
        for (what, smaller) in savings(request) {
            let left = priced(&smaller, model)?;
            if left < 0.95 * total {
                out.line(format_args!("  {what}: about {}", duration(left)))?;
            }
        }
    }
    Ok(())
}

type IsKind = fn(&Work) -> bool;

const KINDS: [(&str, IsKind); 6] = [
    ("tune", |work| matches!(work, Work::Tune(_))),
    ("statistics", |work| matches!(work, Work::Statistics(_))),
    ("evaluate", |work| matches!(work, Work::Evaluate(_))),
    ("sweep", |work| matches!(work, Work::Sweep(_))),
    ("landscape", |work| matches!(work, Work::Landscape(_))),
    ("all", |_| true),
];

fn priced(request: &ReproduceRequest, model: &Model) -> Result<f64> {
    let (plan, states) = plan(request, model)?;
    Ok(prices(request, model, (&plan, &states), &())?.iter().map(Estimate::seconds).sum())
}

fn savings(request: &ReproduceRequest) -> Vec<(String, ReproduceRequest)> {
    let mut all = Vec::new();
    let mut offer = |what: &str, change: &dyn Fn(&mut ReproduceRequest)| {
        let mut smaller = request.clone();
        change(&mut smaller);
        all.push((what.to_owned(), smaller));
    };
    offer("--limit 1000", &|r| r.limit = Some(1000));
    offer("--seeds 1", &|r| r.seeds = vec![1]);
    offer("--views 16", &|r| r.views = Some(16));
    offer("--epochs 5", &|r| r.epochs = Some(5));
    if let Some(last) = request.recipe.rows.last() {
        offer(&format!("--methods {}", last.label), &|r| r.methods = vec![last.label.clone()]);
    }
    if let Some(data) = request.recipe.datasets.get(1) {
        offer(&format!("--datasets {data}"), &|r| r.datasets = vec![data.clone()]);
    }
    offer("--shard 0/4, one of four machines", &|r| r.shard = "0/4".parse().ok());
    all
}

pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", 1e3 * s),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * HOUR => format!("{:.1} h", s / HOUR),
        s => format!("{:.0} h ({:.1} days)", s / HOUR, s / HOUR / 24.0),
    }
}

/// The words of the command; `None` for an item that measures nothing.
pub(super) fn bench_words(request: &ReproduceRequest, model: &str) -> Option<Vec<String>> {
    let methods = request.recipe.bench.join(",");
    let views = request.views.unwrap_or(64).to_string();
    let words = ["bench", "--json", "--methods", &methods, "--model", model, "--views", &views];
    (!methods.is_empty()).then(|| words.map(str::to_owned).to_vec())
}

pub(super) fn measure(request: &ReproduceRequest, model: &Model, precision: Precision, out: &Output) -> Result<()> {
    let (file, words) = (request.out.join(BENCH), bench_words(request, model.name()));
    let Some(words) = words.filter(|_| !file.is_file()) else { return Ok(()) };
    out.note(format_args!("measuring {} methods, each in a process of its own ...", request.recipe.bench.len()));
    let mut command = itself()?;
    command.args(&words).args(["--precision", precision.name()]);
    let ended = command.stderr(Stdio::inherit()).output()?;
    ensure!(ended.status.success(), "flatclip {}: ended with {}", words.join(" "), ended.status);
    std::fs::create_dir_all(&request.out).with_context(|| request.out.display().to_string())?;
    Ok(write_atomic(&file, &ended.stdout)?)
}
