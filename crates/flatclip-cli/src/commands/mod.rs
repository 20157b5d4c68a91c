//! One file per verb.

mod convert;
mod models;
mod pocket;
mod version;

use crate::output::{Exit, Output};
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a checkpoint in canonical form: one safetensors file with OpenAI's tensor names
    Convert(convert::Args),
    /// Which models are known, which are on disk; or what a checkpoint is
    Models(models::Args),
    /// Draw pictures of the pocket world: a contact sheet, or a folder to play with
    Pocket(pocket::Args),
    /// What this binary is and which instructions it would use here
    Version(version::Args),
}

impl Command {
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<Exit> {
        match self {
            Self::Convert(args) => convert::run(args, out),
            Self::Models(args) => models::run(args, out),
            Self::Pocket(args) => pocket::run(args, out),
            Self::Version(args) => version::run(args, out),
        }
    }
}
