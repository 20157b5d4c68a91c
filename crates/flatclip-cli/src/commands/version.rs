//! `flatclip version`: what to quote in a report.

use crate::output::{Exit, Output};
use flatclip::model::Precision;
use flatclip_tensor::isa;

/// Options of `flatclip version`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args, out: &Output) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    let threads = rayon::current_num_threads();
    // What `--isa` or this machine chooses, and what `--precision auto` then is.
    let (isa, precision) = (isa::current().name(), Precision::auto().name());
    if out.is_json() {
        out.json(&serde_json::json!({
            "version": version, "threads": threads, "isa": isa, "precision": precision,
            "optimised": !cfg!(debug_assertions),
        }))?;
    } else {
        out.line(format_args!("flatclip {version}, {threads} threads, instructions {isa}, precision {precision}"))?;
        if cfg!(debug_assertions) {
            out.warn("built without optimisation: everything is many times slower; build with --release");
        }
    }
    Ok(Exit::Done)
}
