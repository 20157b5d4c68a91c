//! One file per verb.

mod pocket;
mod version;

use crate::output::{Exit, Output};
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Draw pictures of the pocket world: a contact sheet, or a folder to play with
    Pocket(pocket::Args),
    /// What this binary is and which instructions it would use here
    Version(version::Args),
}

impl Command {
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<Exit> {
        match self {
            Self::Pocket(args) => pocket::run(args, out),
            Self::Version(args) => version::run(args, out),
        }
    }
}
