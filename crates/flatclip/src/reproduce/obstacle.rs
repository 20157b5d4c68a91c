//! Why a model with what the user brought cannot give a row.

use super::plan::Planner;
use super::recipe::RecipePrompt;
use crate::Result;
use crate::methods::tuners;
use crate::model::ImageConfig;
use std::path::{Path, PathBuf};

impl Planner<'_> {
    /// Why this model with these inputs cannot give a row.
    pub(super) fn obstacle(&self, prompt: &str, method: &str, options: &toml::Table) -> Result<Option<String>> {
        let spec = self.registry.adapter(method)?;
        let needs = spec.build(options)?.needs().unwrap_or(spec.needs);
        let source = self.recipe.prompt(prompt)?;
        let config = self.model.config();
        let given = self.given(source);
        let is_features = given.is_some_and(|path| is_features(path));
        let resnet = !matches!(config.image, ImageConfig::Vit { .. });
        let kind = self.prompt_kind(source)?;
        let vit = needs.vit || (given.is_none() && kind.vit);
        Ok(if vit && resnet {
            Some("needs a vision transformer, this image tower is a ResNet".into())
        } else if needs.generated && self.request.generated.is_none() {
            Some("needs pictures that a diffusion model made".into())
        } else if config.text.is_none() && !is_features {
            Some(format!("needs the text tower for the prompt `{prompt}`, this checkpoint has none"))
        } else if is_features && needs.text_tower {
            Some("perturbs or tunes a prompt, but only class embeddings were given".into())
        } else if given.is_none() && !needs.prompts.contains(&kind.name) {
            Some(format!("{} does not work with {} prompts", spec.name, kind.name))
        } else {
            None
        })
    }

    /// The user's own file for a prompt.
    pub(super) fn given(&self, prompt: &RecipePrompt) -> Option<&PathBuf> {
        let stands = prompt.name == "template" || self.model.config().text.is_none();
        let features = self.request.text_features.as_ref().filter(|_| prompt.tuner.is_empty() && stands);
        self.request.prompts.get(&prompt.name).or(features)
    }

    fn prompt_kind(&self, prompt: &RecipePrompt) -> Result<KindOfPrompt> {
        if prompt.tuner.is_empty() {
            return Ok(KindOfPrompt { name: "templates", vit: false });
        }
        let name = tuners::preset(&prompt.tuner).map_or(prompt.tuner.as_str(), |preset| preset.method);
        let spec = self.registry.tuner(name)?;
        let name = match spec.table {
            "coop" | "sapt" => "learned",
            "gda-clip" => "linear",
            table => table,
        };
        Ok(KindOfPrompt { name, vit: spec.vit })
    }
}

/// What a tuner's prompt will be.
struct KindOfPrompt {
    name: &'static str,
    vit: bool,
}

/// Whether a file holds class embeddings; what it really is shows when it is read.
fn is_features(path: &Path) -> bool {
    crate::prompt::read_text_features(path).is_ok()
}
