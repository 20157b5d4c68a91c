//! `--model` and what belongs to it.

use crate::output::Output;
use anyhow::{Result, bail};
use flatclip::model::config::Activation;
use flatclip::model::{Clip, LoadOptions};
use flatclip::text::Tokenizer;
use flatclip::weights::Checkpoint;
use std::path::PathBuf;

/// Which model, and how to run it.
#[derive(clap::Args, Debug)]
pub(crate) struct ModelArgs {
    /// A checkpoint file, a model directory, a known name such as ViT-B-16/openai, `pocket`, or `random:ViT-B-16`
    #[arg(long, short, env = "FLATCLIP_MODEL", default_value = "pocket", value_name = "MODEL")]
    pub(crate) model: String,
    /// Where known names are looked for first
    #[arg(long, env = "FLATCLIP_MODEL_DIR", value_name = "DIR")]
    pub(crate) model_dir: Option<PathBuf>,
    /// Never fetch a model, only look on disk
    #[arg(long, env = "FLATCLIP_OFFLINE")]
    pub(crate) offline: bool,
    /// Override the activation (quick-gelu, gelu) that the checkpoint states or its family suggests
    #[arg(long, value_name = "NAME")]
    pub(crate) activation: Option<String>,
}

/// A loaded model with the tokenizer that belongs to it.
pub(crate) struct Model {
    pub(crate) clip: Clip,
    pub(crate) tokenizer: Tokenizer,
}

impl ModelArgs {
    /// The embedded model.
    pub(crate) fn pocket() -> Self {
        Self { model: "pocket".into(), model_dir: None, offline: true, activation: None }
    }

    /// The checkpoint, opened but not loaded; fetched first when it is a known name that is not on disk.
    pub(crate) fn open(&self, out: &Output) -> Result<Checkpoint> {
        let checkpoint = crate::places::open(&self.model, self.model_dir.as_deref(), self.offline, out)?;
        Ok(match self.activation.as_deref().map(|word| (word, Activation::parse(word))) {
            None => checkpoint,
            Some((_, Some(activation))) => checkpoint.with_activation(activation),
            Some((word, None)) => bail!("--activation: expected quick-gelu or gelu, found {word:?}"),
        })
    }

    /// Loads the towers and says what was loaded.
    pub(crate) fn load(&self, out: &Output) -> Result<Model> {
        let checkpoint = self.open(out)?;
        let tokenizer = Tokenizer::of(&checkpoint)?;
        out.note(format_args!("{}: {}", self.model, checkpoint.config().describe()));
        let clip = Clip::load(&checkpoint, LoadOptions::default())?;
        Ok(Model { clip, tokenizer })
    }
}
