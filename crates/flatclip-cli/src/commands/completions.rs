//! `flatclip completions SHELL`: a script that a shell reads to complete commands and options.

use crate::output::{Exit, Output};
use clap::CommandFactory as _;
use clap_complete::Shell;

/// Options of `flatclip completions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: Args, out: &Output) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "flatclip", &mut script);
    out.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
