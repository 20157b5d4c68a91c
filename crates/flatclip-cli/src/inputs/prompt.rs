//! `--prompt`, `--template`, `--ensemble`, `--text-features`: four ways to say what stands for a class.

use anyhow::{Result, bail, ensure};
use flatclip::prompt::{Prompt, read_text_features};
use flatclip::text::templates::{DEFAULT_TEMPLATE, Ensemble};
use std::path::{Path, PathBuf};

/// What stands for a class.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct PromptArgs {
    /// A text with `{}` for the class name (repeat for several; their features are averaged) [default: "a photo of a {}."]
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ensemble", "prompt", "text_features"])]
    template: Vec<String>,
    /// A known set of templates: imagenet7 or imagenet80
    #[arg(long, value_name = "NAME", conflicts_with_all = ["prompt", "text_features"])]
    ensemble: Option<String>,
    /// A prompt file, or the run directory of `flatclip tune`
    #[arg(long, value_name = "FILE|RUN", conflicts_with = "text_features")]
    prompt: Option<PathBuf>,
    /// Class embeddings made elsewhere: safetensors or .npy, [classes, width]; no text tower is needed then
    #[arg(long, value_name = "FILE")]
    text_features: Option<PathBuf>,
}

impl PromptArgs {
    /// The prompt that was asked for.
    pub(crate) fn read(&self) -> Result<Prompt> {
        if let Some(file) = &self.text_features {
            return Ok(read_text_features(file)?);
        }
        if let Some(path) = &self.prompt {
            return Ok(Prompt::load(&prompt_file(path)?)?);
        }
        if let Some(name) = &self.ensemble {
            let Some(ensemble) = Ensemble::ALL.into_iter().find(|e| e.name() == name) else {
                let known: Vec<&str> = Ensemble::ALL.iter().map(|e| e.name()).collect();
                bail!("--ensemble: expected one of {}, found {name:?}", known.join(", "));
            };
            return Ok(Prompt::templates(ensemble.templates())?);
        }
        if self.template.is_empty() {
            return Ok(Prompt::templates(&[DEFAULT_TEMPLATE])?);
        }
        Ok(Prompt::templates(&self.template)?)
    }

    /// Whether the user said anything.
    pub(crate) fn is_default(&self) -> bool {
        self.template.is_empty() && self.ensemble.is_none() && self.prompt.is_none() && self.text_features.is_none()
    }
}

/// A run directory holds its prompt under a fixed name.
pub(crate) fn prompt_file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let file = path.join("prompt.safetensors");
    ensure!(
        file.is_file(),
        "{}: no prompt.safetensors in this folder; is it the run directory of a finished `flatclip tune`?",
        path.display()
    );
    Ok(file)
}
