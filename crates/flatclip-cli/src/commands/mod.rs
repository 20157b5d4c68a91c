//! One file per verb.

use crate::output::{Exit, Output};
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {}

impl Command {
    pub(crate) fn run(self, _out: &Output) -> anyhow::Result<Exit> {
        match self {}
    }
}
