//! One file per verb.

mod convert;
mod embed;
mod explain;
mod landscape;
mod models;
mod pocket;
mod predict;
mod settings;
mod version;

use crate::output::{Exit, Output};
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a checkpoint in canonical form: one safetensors file with OpenAI's tensor names
    Convert(convert::Args),
    /// Features of pictures or texts
    Embed(embed::Args),
    /// Loss surfaces around a prompt: of a few-shot set, or of single views of a picture
    Landscape(landscape::Args),
    /// Which models are known, which are on disk; or what a checkpoint is
    Models(models::Args),
    /// Draw pictures of the pocket world: a contact sheet, or a folder to play with
    Pocket(pocket::Args),
    /// Which class is in each picture
    Predict(predict::Args),
    /// What this binary is and which instructions it would use here
    Version(version::Args),
}

impl Command {
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<Exit> {
        match self {
            Self::Convert(args) => convert::run(args, out),
            Self::Embed(args) => embed::run(args, out),
            Self::Landscape(args) => landscape::run(args, out),
            Self::Models(args) => models::run(args, out),
            Self::Pocket(args) => pocket::run(args, out),
            Self::Predict(args) => predict::run(args, out),
            Self::Version(args) => version::run(args, out),
        }
    }
}
