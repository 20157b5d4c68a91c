//! What a method needs beyond features, and whether it is there. Asked before any work, so that a run does not fail picture
//! by picture.

use super::model::Model;
use crate::error::Hint;
use crate::methods::Needs;
use crate::model::ImageConfig;
use crate::prompt::{Prompt, PromptKind};
use crate::{Error, Result};

/// What a caller can give a method.
#[derive(Clone, Copy, Default)]
pub(crate) struct Supply<'a> {
    /// The model; `None` for features that were made elsewhere.
    pub(crate) model: Option<&'a Model>,
    /// The prompt; `None` for plain text features.
    pub(crate) prompt: Option<&'a Prompt>,
    /// A ready text bank.
    pub(crate) bank: bool,
    /// Token statistics of training images.
    pub(crate) statistics: bool,
    /// Generated pictures.
    pub(crate) generated: bool,
}

impl Supply<'_> {
    /// The first need that is not met, with what would meet it.
    pub(crate) fn unmet(&self, method: &str, needs: &Needs) -> Option<Error> {
        let lacks = |reason: String| Some(Error::method(method, reason));
        let hinted = |reason: &str, hint: Hint| Some(Error::method(method, reason).with_hint(hint));
        let text_tower = needs.text_tower && !(self.bank && needs.bank);
        let Some(model) = self.model else {
            return if needs.pixels || needs.vit {
                hinted("runs the image tower, but only features were given", Hint::Model)
            } else if text_tower && needs.bank {
                hinted("needs text features around the prompt: a text bank, or a model with a text tower", Hint::Model)
            } else if text_tower || needs.generated {
                hinted("runs a tower of the model, but only features were given", Hint::Model)
            } else {
                None
            };
        };
        let kind = self.prompt.map_or("features", Prompt::kind_name);
        if !needs.prompts.contains(&kind) {
            return lacks(format!("works with {} prompts, this is a {kind} prompt", one_of(needs.prompts)));
        }
        if needs.vit && !matches!(model.config().image, ImageConfig::Vit { .. }) {
            lacks("needs a vision transformer, this image tower is a ResNet".to_owned())
        } else if text_tower && model.config().text.is_none() {
            lacks("needs a text tower, this checkpoint has none".to_owned())
        } else if text_tower && !self.prompt.is_some_and(|prompt| has_context(prompt, needs.ensembles)) {
            lacks("needs a prompt with one context: a learned prompt, or a single template".to_owned())
        } else if needs.generated && !self.generated {
            hinted("needs generated pictures", Hint::Generated)
        } else if needs.statistics && !self.statistics {
            hinted("needs token statistics of training images", Hint::Statistics)
        } else {
            None
        }
    }
}

/// Refuses a prompt that was learned with another model: its numbers would mean nothing there.
pub(crate) fn check_origin(prompt: &Prompt, model: &Model) -> Result<()> {
    let learned_with = &prompt.provenance.model_hash;
    if learned_with.is_empty() || learned_with == model.hash() {
        return Ok(());
    }
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let (theirs, ours) = (short(learned_with), short(model.hash()));
    let reason = format!("was learned with the weights {theirs}, but {} has {ours}", model.name());
    Err(Error::OtherModel { path: prompt.path.clone(), reason }.with_hint(Hint::OtherModel))
}

/// Whether text-side methods have a context to start from, or, with `ensembles`, several.
fn has_context(prompt: &Prompt, ensembles: bool) -> bool {
    match &prompt.kind {
        PromptKind::Templates(templates) => ensembles || templates.len() == 1,
        PromptKind::Features(_) => false,
        _ => true,
    }
}

/// "a", "a or b", "a, b or c".
fn one_of(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}
