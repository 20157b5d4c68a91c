//! The `flatclip` command: results to stdout, everything else to stderr.

mod commands;
mod hints;
mod inputs;
mod output;
mod prelude;
mod progress;
#[cfg(feature = "otel")]
mod traces;

use clap::Parser;
use flatclip::Progress as _;
use flatclip_tensor::Isa;
use output::{Exit, Output};
use std::process::ExitCode;

/// Prompt tuning and test-time adaptation for CLIP-like models, led by flatness.
#[derive(Parser)]
#[command(name = "flatclip", version, propagate_version = true, max_term_width = 110, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
    /// Print JSON instead of tables
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Worker threads [default: all cores]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "N")]
    threads: Option<usize>,
    /// Instructions of the kernels: plain, avx2, avx512, amx or neon [default: the best of this machine]
    #[arg(long, global = true, help_heading = GLOBAL, env = "FLATCLIP_ISA", value_name = "NAME")]
    isa: Option<String>,
    /// Print more on stderr (repeat for more)
    #[arg(long, short, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print only warnings and errors on stderr: no notes, no progress
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    quiet: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 finished, with failures that were counted; 2 wrong use or broken input; \
    3 no image could be read; 4 disk full; 130 and 143 interrupted, finished work is saved.";

/// The heading of the options of every command in a help text.
const GLOBAL: &str = "Global options";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let out = Output::new(cli.json, cli.quiet, cli.verbose, cli.command.is_service());
    let done = start(cli, &out);
    out.finish();
    #[cfg(feature = "otel")]
    traces::end();
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out.error(&error);
            Exit::of_error(&error)
        }
    }
}

/// Help and version are answers; wrong use is an error, as JSON where that is asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    let json = error.use_stderr() && std::env::args().any(|word| word == "--json");
    if json {
        let text = error.render().to_string();
        let message = text.trim_start_matches("error: ").trim_end();
        let (message, usage) = message.split_once("\n\n").unwrap_or((message, ""));
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let hint = Some(one_line(usage)).filter(|usage| !usage.is_empty());
        Output::new(true, false, 0, false).fault(&one_line(message), "usage", hint.as_deref());
    } else {
        let _ = error.print();
    }
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn start(cli: Cli, out: &Output) -> anyhow::Result<Exit> {
    if let Some(threads) = cli.threads {
        anyhow::ensure!((1..=1024).contains(&threads), "--threads: expected 1 to 1024, found {threads}");
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    if let Some(name) = &cli.isa {
        let isa = Isa::from_name(name)
            .ok_or_else(|| anyhow::anyhow!("--isa: expected plain, avx2, avx512, amx or neon, found {name:?}"))?;
        flatclip_tensor::isa::force(isa)?;
    }
    cli.command.run(out)
}

/// `flatclip ... | head` ends early on purpose.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut system = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    system.any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
