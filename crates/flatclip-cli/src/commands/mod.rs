//! One file per verb.

mod version;

use crate::output::{Exit, Output};
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// What this binary is and which instructions it would use here
    Version(version::Args),
}

impl Command {
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<Exit> {
        match self {
            Self::Version(args) => version::run(args, out),
        }
    }
}
