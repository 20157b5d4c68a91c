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
            let Some(ensemble) = ensemble(name) else {
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

fn ensemble(name: &str) -> Option<Ensemble> {
    Ensemble::ALL.into_iter().find(|e| e.name() == name)
}

/// The prompt that one word means: a text with `{}`, a known set of templates, `template` for the usual one, a prompt file or the
/// run directory of `flatclip tune`, or a file of class embeddings.
pub(crate) fn prompt_of(word: &str) -> Result<Prompt> {
    if word.contains("{}") {
        return Ok(Prompt::templates(&[word])?);
    }
    if word == "template" {
        return Ok(Prompt::templates(&[DEFAULT_TEMPLATE])?);
    }
    if let Some(ensemble) = ensemble(word) {
        return Ok(Prompt::templates(ensemble.templates())?);
    }
    let path = Path::new(word);
    ensure!(
        path.exists(),
        "prompt {word:?}: there is no such file or folder; expected a prompt file, the run directory of `flatclip tune`, a text with {{}}, \
         template, imagenet7 or imagenet80"
    );
    let file = prompt_file(path)?;
    if file.extension().is_some_and(|ending| ending == "npy") {
        return Ok(read_text_features(&file)?);
    }
    Ok(Prompt::load(&file)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_template_a_known_set_or_a_path_that_exists() {
        use flatclip::prompt::PromptKind::Templates;
        assert!(matches!(prompt_of("a sketch of a {}.").unwrap().kind, Templates(t) if t == ["a sketch of a {}."]));
        assert!(matches!(prompt_of("template").unwrap().kind, Templates(t) if t.len() == 1));
        assert!(matches!(prompt_of("imagenet7").unwrap().kind, Templates(t) if t.len() == 7));
        assert!(prompt_of("no-such-run").unwrap_err().to_string().contains("imagenet80"));
    }
}
