//! `flatclip convert IN OUT.safetensors`.

use crate::inputs::model::FindArgs;
use crate::output::{Exit, Output};
use crate::progress::Terminal;
use anyhow::{Result, ensure};
use flatclip::weights;
use std::path::PathBuf;

/// Options of `flatclip convert`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A checkpoint file, a model folder, a known name, or random:ARCH
    input: String,
    /// The safetensors file to write
    output: PathBuf,
    #[command(flatten)]
    find: FindArgs,
    /// Replace the output when it exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    ensure!(args.force || !args.output.exists(), "{}: exists already; --force replaces it", args.output.display());
    let checkpoint = args.find.builder(&args.input)?.open(&Terminal::new(out))?;
    weights::save_canonical(&checkpoint, &args.output)?;
    let (describe, hash, bytes) = (checkpoint.config().describe(), checkpoint.hash()?, args.output.metadata()?.len());
    if out.is_json() {
        out.json(&serde_json::json!({
            "input": args.input, "output": args.output, "bytes": bytes, "hash": hash,
            "parameters": checkpoint.parameters(), "config": checkpoint.config(),
        }))?;
    } else {
        out.line(describe)?;
        out.line(format_args!("wrote {} ({bytes} bytes), weights {hash}", args.output.display()))?;
    }
    Ok(Exit::Done)
}
