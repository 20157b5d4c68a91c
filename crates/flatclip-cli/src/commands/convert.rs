//! `flatclip convert IN OUT.safetensors`.

use crate::output::{Exit, Output};
use anyhow::{Result, bail, ensure};
use flatclip::architecture::Activation;
use flatclip::weights;
use std::path::PathBuf;

/// Options of `flatclip convert`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A checkpoint file, a model folder, a known name, or random:ARCH
    input: String,
    /// The safetensors file to write
    output: PathBuf,
    /// Where known names are looked for first
    #[arg(long, env = "FLATCLIP_MODEL_DIR", value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// Never fetch a model, only look on disk
    #[arg(long, env = "FLATCLIP_OFFLINE")]
    offline: bool,
    /// Record this activation (quick-gelu, gelu) instead of the one that the checkpoint states or its family suggests
    #[arg(long, value_name = "NAME")]
    activation: Option<String>,
    /// Replace the output when it exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    ensure!(args.force || !args.output.exists(), "{}: exists already; --force replaces it", args.output.display());
    let mut checkpoint = crate::places::open(&args.input, args.model_dir.as_deref(), args.offline, out)?;
    if let Some(word) = &args.activation {
        let Some(activation) = Activation::parse(word) else {
            bail!("--activation: expected quick-gelu or gelu, found {word:?}");
        };
        checkpoint = checkpoint.with_activation(activation);
    }
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
