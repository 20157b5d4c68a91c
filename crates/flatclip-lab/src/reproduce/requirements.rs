//! Whether a row is possible with a model and the user's inputs.

use super::plan::Planner;
use super::recipe::RecipePrompt;
use crate::tuners::{self, tuner};
use flatclip::Result;
use flatclip::classify::Capabilities;
use flatclip::prompt::PromptKind;
use std::path::{Path, PathBuf};

impl Planner<'_> {
    /// Why a row is not possible with this model and these inputs.
    pub(super) fn unmet(&self, prompt: &str, method: &str, options: &toml::Table) -> Result<Option<String>> {
        let spec = self.registry.adapter(method)?;
        let mut needs = spec.build(options)?.needs().unwrap_or(spec.needs);
        let source = self.recipe.prompt(prompt)?;
        let config = self.model.config();
        let given = self.given(source);
        let features = given.is_some_and(|path| is_features(path));
        if config.text.is_none() && !features {
            return Ok(Some(format!("needs the text tower for the prompt `{prompt}`, this checkpoint has none")));
        }
        let (tuned, vit) = self.prompt_kind(source)?;
        let kind = match (features, given) {
            (true, _) => PromptKind::Features,
            // The contents of the file are checked when it is read.
            (false, Some(_)) => needs.prompts.first().copied().unwrap_or(tuned),
            (false, None) => tuned,
        };
        let capabilities = Capabilities {
            passes: self.model.clip().passes(),
            model: Some(config),
            prompt: kind,
            contexts: usize::from(!features),
            bank: false,
            statistics: true, // a recipe computes them
            generated: self.request.generated.is_some(),
        };
        needs.vit |= given.is_none() && vit;
        Ok(capabilities.lacks(&needs).map(|(reason, _)| reason))
    }

    /// The user's own file for a prompt.
    pub(super) fn given(&self, prompt: &RecipePrompt) -> Option<&PathBuf> {
        let stands = prompt.name == "template" || self.model.config().text.is_none();
        let features = self.request.text_features.as_ref().filter(|_| prompt.tuner.is_empty() && stands);
        self.request.prompts.get(&prompt.name).or(features)
    }

    /// The kind of a recipe's prompt, and whether learning it needs a vision transformer.
    fn prompt_kind(&self, prompt: &RecipePrompt) -> Result<(PromptKind, bool)> {
        if prompt.tuner.is_empty() {
            return Ok((PromptKind::Templates, false));
        }
        let name = tuners::preset(&prompt.tuner).map_or(prompt.tuner.as_str(), |preset| preset.method);
        let spec = tuner(name)?;
        Ok((spec.prompt, spec.vit))
    }
}

/// Whether a file seems to hold class embeddings; the contents are checked when it is read.
fn is_features(path: &Path) -> bool {
    flatclip::prompt::read_text_features(path).is_ok()
}
