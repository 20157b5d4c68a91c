//! `flatclip version`: what to quote in a report.

use crate::output::{Exit, Output};

/// Options of `flatclip version`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args, out: &Output) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    let threads = rayon::current_num_threads();
    if out.is_json() {
        out.json(&serde_json::json!({ "version": version, "threads": threads, "optimised": !cfg!(debug_assertions) }))?;
    } else {
        out.line(format_args!("flatclip {version}, {threads} threads"))?;
        if cfg!(debug_assertions) {
            out.warn("built without optimisation: everything is many times slower; build with --release");
        }
    }
    Ok(Exit::Done)
}
