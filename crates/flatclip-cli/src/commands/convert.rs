//! `flatclip convert IN OUT.safetensors`.

use crate::prelude::*;
use flatclip::weights;

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

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    ensure!(args.force || !args.output.exists(), "{}: exists already; --force replaces it", args.output.display());
    let checkpoint = args.find.builder(&args.input)?.open(out)?;
    weights::save_canonical(&checkpoint, &args.output)?;
    let (config, hash, bytes) = (checkpoint.config(), checkpoint.hash()?, args.output.metadata()?.len());
    let document = json!({
        "input": args.input, "output": args.output, "bytes": bytes, "hash": hash, "parameters": checkpoint.parameters(),
        "config": config,
    });
    let file = args.output.display();
    out.say(&document, format_args!("{}\nwrote {file} ({bytes} bytes), weights {hash}", config.describe()))
}
