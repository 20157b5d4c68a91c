//! The `flatclip` command: results to stdout, everything else to stderr.

mod commands;
mod hints;
mod inputs;
mod log_lines;
mod output;
mod progress;

use clap::Parser;
use flatclip_tensor::Isa;
use output::{Exit, Output};
use std::process::ExitCode;

/// Prompt tuning and test-time adaptation for CLIP-like models, led by flatness.
#[derive(Parser)]
#[command(name = "flatclip", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: commands::Command,
}

/// Options of every command.
#[derive(clap::Args)]
struct Global {
    /// Print JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    /// Worker threads [default: all cores]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Instructions of the kernels: plain, avx2, avx512 or amx [default: the best of this machine]
    #[arg(long, global = true, env = "FLATCLIP_ISA", value_name = "NAME")]
    isa: Option<String>,
    /// Say more on stderr (repeat for more)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Say only errors on stderr, no progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = Output::new(cli.global.json, cli.global.quiet, cli.global.verbose, cli.command.is_service());
    match start(cli, &out) {
        Ok(exit) => exit.code(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out.error(&error);
            ExitCode::from(2)
        }
    }
}

fn start(cli: Cli, out: &Output) -> anyhow::Result<Exit> {
    if let Some(threads) = cli.global.threads {
        anyhow::ensure!((1..=1024).contains(&threads), "--threads: expected 1 to 1024, found {threads}");
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    if let Some(name) = &cli.global.isa {
        let isa = Isa::from_name(name)
            .ok_or_else(|| anyhow::anyhow!("--isa: expected plain, avx2, avx512 or amx, found {name:?}"))?;
        flatclip_tensor::isa::force(isa)?;
    }
    cli.command.run(out)
}

/// `flatclip ... | head` ends early on purpose.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}
