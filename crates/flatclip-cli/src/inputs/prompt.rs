//! `--prompt`, `--template`, `--ensemble`, `--text-features`: four ways to say what stands for a class.

use anyhow::{Result, bail};
use flatclip::Prompt;
use flatclip::prompt::{PromptKind, read_text_features};
use flatclip::text::templates::Ensemble;
use std::path::PathBuf;

/// What stands for a class.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct PromptArgs {
    /// A text with `{}` for the class name (repeat for several; their features are averaged) [default: "a photo of a {}."]
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ensemble", "prompt", "text_features"])]
    template: Vec<String>,
    /// A known set of templates: imagenet7 or imagenet80
    #[arg(long, value_name = "NAME", conflicts_with_all = ["prompt", "text_features"])]
    ensemble: Option<Ensemble>,
    /// A prompt file, or the run directory of `flatclip tune`
    #[arg(long, value_name = "FILE|RUN", conflicts_with = "text_features")]
    prompt: Option<PathBuf>,
    /// Class embeddings made elsewhere: safetensors or .npy, [classes, width]; no text tower is needed then
    #[arg(long, value_name = "FILE")]
    text_features: Option<PathBuf>,
    /// Accept a prompt that was learned with another model
    #[arg(long)]
    pub(crate) any_model: bool,
}

impl PromptArgs {
    /// The prompt that was asked for.
    pub(crate) fn read(&self) -> Result<Prompt> {
        Ok(match (&self.text_features, &self.prompt, self.ensemble) {
            (Some(file), _, _) => read_text_features(file)?,
            (_, Some(path), _) => Prompt::open(path)?,
            (_, _, Some(ensemble)) => Prompt::templates(ensemble.templates())?,
            _ if self.template.is_empty() => Prompt::templates(&[Prompt::TEMPLATE])?,
            _ => Prompt::templates(&self.template)?,
        })
    }

    /// The templates that were asked for.
    pub(crate) fn read_templates(&self) -> Result<Vec<String>> {
        match self.read()?.kind {
            PromptKind::Templates(templates) => Ok(templates),
            _ => bail!("--descriptions: adds sentences to templates; give --template or --ensemble with it"),
        }
    }

    /// Whether the user said anything.
    pub(crate) fn is_default(&self) -> bool {
        self.template.is_empty() && self.ensemble.is_none() && self.prompt.is_none() && self.text_features.is_none()
    }
}
