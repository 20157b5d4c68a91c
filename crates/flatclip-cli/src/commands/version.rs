//! `flatclip version`: what to quote in a report.

use crate::prelude::*;
use flatclip::model::Precision;
use flatclip_tensor::isa;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args, out: &Output) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let threads = rayon::current_num_threads();
    // What `--isa` or this machine chooses, and what `--precision auto` then is.
    let (isa, precision) = (isa::current().name(), Precision::auto().name());
    let optimised = !cfg!(debug_assertions);
    let document = json!({
        "version": version, "threads": threads, "isa": isa, "precision": precision, "optimised": optimised,
    });
    let text = format!("flatclip {version}, {threads} threads, instructions {isa}, precision {precision}");
    out.say(&document, text)?;
    if !optimised && !out.is_json {
        out.warn("built without optimisation: everything is many times slower; build with --release");
    }
    Ok(())
}
