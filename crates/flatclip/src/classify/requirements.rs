//! What a method needs beyond features, and whether it is there. Checked before any work, so that a run does not fail image
//! by image.

use super::model::Model;
use crate::error::Hint;
use crate::methods::Needs;
use crate::model::{ClipConfig, ImageConfig, Passes};
use crate::prompt::{Prompt, PromptContent, PromptKind};
use crate::{Error, Result};
use flatclip_tensor::ops::l2_norm;

/// What a caller can give a method.
#[derive(Clone, Copy)]
pub struct Capabilities<'a> {
    /// The model; `None` for features that were made elsewhere.
    pub model: Option<&'a ClipConfig>,
    /// What its towers compute beyond features.
    pub passes: Passes,
    /// The kind of the prompt.
    pub prompt: PromptKind,
    /// Contexts that text-side methods can start from.
    pub contexts: usize,
    /// A ready text bank.
    pub bank: bool,
    /// Token statistics of training images.
    pub statistics: bool,
    /// Generated images.
    pub generated: bool,
}

impl<'a> Capabilities<'a> {
    /// A model and a prompt.
    pub fn new(model: &'a Model, prompt: &'a Prompt) -> Self {
        let contexts = match &prompt.content {
            PromptContent::Templates(templates) => templates.len(),
            PromptContent::Features(_) => 0,
            _ => 1,
        };
        let features = Self::features();
        Self { model: Some(model.config()), passes: model.clip().passes(), prompt: prompt.kind(), contexts, ..features }
    }

    /// Image and text features of another model.
    pub fn features() -> Self {
        let (model, passes) = (None, Passes::default());
        Self {
            model,
            passes,
            prompt: PromptKind::Features,
            contexts: 0,
            bank: false,
            statistics: false,
            generated: false,
        }
    }

    /// Refuses a method with a need that is not met.
    pub fn check(&self, method: &str, needs: &Needs) -> Result<()> {
        match self.lacks(needs) {
            None => Ok(()),
            Some((reason, None)) => Err(Error::method(method, reason)),
            Some((reason, Some(hint))) => Err(Error::method(method, reason).with_hint(hint)),
        }
    }

    /// The first need that is not met, with what would meet it.
    pub fn lacks(&self, needs: &Needs) -> Option<(String, Option<Hint>)> {
        let text_tower = needs.text_tower && !(self.bank && needs.bank);
        let Some(model) = self.model else {
            let reason = if needs.pixels || needs.vit {
                "runs the image tower, but only features were given"
            } else if text_tower && needs.bank {
                "needs text features around the prompt: a text bank, or a model with a text tower"
            } else if text_tower || needs.generated {
                "runs a tower of the model, but only features were given"
            } else {
                return None;
            };
            return Some((reason.to_owned(), Some(Hint::Model)));
        };
        if !needs.prompts.contains(&self.prompt) {
            let kinds = PromptKind::list(needs.prompts);
            return Some((format!("works with {kinds} prompts, this is a {} prompt", self.prompt), None));
        }
        let has_context = self.contexts == 1 || needs.ensembles && self.contexts > 1;
        let (reason, hint) = if needs.vit && !matches!(model.image, ImageConfig::Vit { .. }) {
            ("needs a vision transformer, this image tower is of another kind", None)
        } else if text_tower && model.text.is_none() {
            ("needs a text tower, this checkpoint has none", None)
        } else if text_tower && !has_context {
            ("needs a prompt with one context: a learned prompt, or a single template", None)
        } else if let Some(pass) = self.missing_pass(needs, text_tower) {
            return Some((format!("needs {pass}, which the towers of this model do not compute"), None));
        } else if needs.generated && !self.generated {
            ("needs generated images", Some(Hint::Generated))
        } else if needs.statistics && !self.statistics {
            ("needs token statistics of training images", Some(Hint::Statistics))
        } else {
            return None;
        };
        Some((reason.to_owned(), hint))
    }

    /// The first pass of the towers that a method needs and this model lacks.
    fn missing_pass(&self, needs: &Needs, text_tower: bool) -> Option<&'static str> {
        let missing = [
            (text_tower && !self.passes.contexts, "text features of contexts"),
            (text_tower && !needs.bank && !self.passes.context_gradient, "gradients of contexts"),
            (needs.vit && !(self.passes.vision && self.passes.deep), "deep and visual prompts"),
            (needs.pixels && !needs.vit && !self.passes.norms, "gradients of norm parameters"),
            (self.prompt == PromptKind::Maple && !(self.passes.vision && self.passes.deep), "deep and visual prompts"),
        ];
        missing.into_iter().find_map(|(missing, pass)| missing.then_some(pass))
    }
}

/// Refuses a prompt that was learned with another model: its numbers would mean nothing there.
pub fn check_origin(prompt: &Prompt, model: &Model) -> Result<()> {
    let learned_with = &prompt.provenance.model_hash;
    if learned_with.is_empty() {
        return check_start_token(prompt, model);
    }
    if learned_with == model.hash() {
        return Ok(());
    }
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let (theirs, ours) = (short(learned_with), short(model.hash()));
    let reason = format!("was learned with the weights {theirs}, but {} has {ours}", model.name());
    Err(Error::OtherModel { path: prompt.path.clone(), reason }.with_hint(Hint::OtherModel))
}

/// How far two embeddings of one start token may be apart, of the length of ours: half precision rounds by less than a
/// hundredth, and the embeddings of different models are farther apart than they are long.
const SAME_TOKEN: f64 = 0.02;

/// An imported context does not say its model, but carries the embedding of the start token that it was learned behind.
fn check_start_token(prompt: &Prompt, model: &Model) -> Result<()> {
    let theirs = &prompt.provenance.start_token;
    let Some(text) = model.clip().text().ok().filter(|_| !theirs.is_empty()) else { return Ok(()) };
    let ours = text.embed(&[model.tokenizer().sot()])?;
    let reason = if theirs.len() == ours.cols() {
        let difference: Vec<f32> = theirs.iter().zip(ours.data()).map(|(a, b)| a - b).collect();
        let apart = l2_norm(difference.iter()) / l2_norm(ours.data().iter()).max(f64::MIN_POSITIVE);
        if apart <= SAME_TOKEN {
            return Ok(());
        }
        format!(
            "was learned with another model than {}: the start token's embedding that it was saved with (token_prefix) \
             differs from the model's by {:.0} % of its norm",
            model.name(),
            100.0 * apart
        )
    } else {
        let (wide, width) = (theirs.len(), ours.cols());
        format!("was learned with token embeddings of width {wide}, but {} has width {width}", model.name())
    };
    Err(Error::OtherModel { path: prompt.path.clone(), reason }.with_hint(Hint::OtherModel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Context, Position};
    use crate::prompt::Provenance;

    #[test]
    fn what_the_towers_of_a_siglip_do_not_compute_is_refused_before_any_work() {
        let folder = crate::files::fixture("golden/models/tiny-siglip");
        let model = Model::load(folder.to_string_lossy()).unwrap();
        let templates = Prompt::templates(&["a photo of a {}."]).unwrap();
        let can = Capabilities::new(&model, &templates);
        let needs = |name: &str, options: &str| {
            let spec = crate::methods::adapter(name).unwrap();
            spec.build(&options.parse().unwrap()).unwrap().needs().unwrap_or(spec.needs)
        };
        for method in ["zero-shot", "tpt", "stss", "sar", "mta"] {
            assert_eq!(can.lacks(&needs(method, "")), None, "{method}");
        }
        let norms = can.check("sar", &needs("sar", "adapt = \"norms\"")).unwrap_err().to_string();
        assert!(norms.contains("gradients of norm parameters"), "{norms}");
        let maple = Capabilities { prompt: PromptKind::Maple, contexts: 1, ..can };
        for method in ["promptalign", "zero-shot"] {
            let refused = maple.check(method, &needs(method, "")).unwrap_err().to_string();
            assert!(refused.contains("deep and visual prompts"), "{method}: {refused}");
        }
    }

    /// A context as an import leaves it, with this embedding of the start token.
    fn imported(start_token: Vec<f32>) -> Prompt {
        let context = Context { tokens: 1, width: start_token.len(), data: start_token.clone(), classes: None };
        let kind = PromptContent::Learned { context, words: String::new(), position: Position::End };
        Prompt::new(kind, Provenance { method: "import".into(), start_token, ..Provenance::default() })
    }

    #[test]
    fn an_imported_prompt_of_another_model_is_refused_by_its_start_token() {
        let model = Model::load("pocket").unwrap();
        let own = model.clip().text().unwrap().embed(&[model.tokenizer().sot()]).unwrap().into_vec();
        // Stored in half precision, as CoOp trains.
        let half = own.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect();
        assert!(check_origin(&imported(half), &model).is_ok());
        let other = model.clip().text().unwrap().embed(&[model.tokenizer().eot()]).unwrap().into_vec();
        let error = check_origin(&imported(other), &model).unwrap_err();
        assert_eq!((error.code(), error.hint()), ("prompt.other-model", Some(&Hint::OtherModel)));
        assert!(error.to_string().contains("token_prefix"), "{error}");
        let narrow = check_origin(&imported(own[1..].to_vec()), &model).unwrap_err();
        assert_eq!(narrow.code(), "prompt.other-model");
        assert!(check_origin(&imported(Vec::new()), &model).is_ok(), "a file without token_prefix says nothing");
    }
}
