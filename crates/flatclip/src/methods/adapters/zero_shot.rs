//! Zero-shot CLIP: the un-augmented view, whatever made the text features: one template, an ensemble of templates, a
//! learned prompt, or a file.

use super::prelude::*;
use crate::prompt::{PromptContent, PromptKind, prompt_logits};

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["clip", "none"],
    needs: Needs { prompts: PromptKind::ALL, ..Needs::FEATURES.with_views(1) },
    summary: "the un-augmented image against the prompt's text features; no adaptation",
    docs: "\
What: logits = exp(logit_scale) * <f_0, t_k>, answer argmax. Views beyond the first are looked at only to
explain.
Text: one template, several (each encoded and normalised, averaged, normalised again), a learned prompt or a
feature file.
CoCoOp's shift by the image, Tip-Adapter's cache and GDA-CLIP's discriminant belong to the prompt and are
applied.
Cost: one image-tower pass.
Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021.
",
    verified: Verified::AuthorsCode,
    options: ZeroShot::OPTIONS,
    ..AdapterSpec::new("zero-shot", Build::Episodic(|table| Ok(Box::new(ZeroShot::read(table)?))))
};

crate::options! {
    /// It has no options.
    pub struct ZeroShot for "zero-shot" {}
}

/// The logits of all views. What a CoCoOp, Tip-Adapter or linear prompt adds for each image
/// belongs to the prompt, so it is added here.
fn view_logits(task: &Task, image: &ViewSet<'_>) -> Result<ViewLogits> {
    match (task.prompt.as_deref(), task.clip.as_deref()) {
        (Some(prompt), Some(clip))
            if matches!(
                prompt.content,
                PromptContent::CoCoOp { .. } | PromptContent::TipAdapter { .. } | PromptContent::Linear { .. }
            ) =>
        {
            let tokens = task.class_tokens.as_ref();
            let logits = prompt_logits(prompt, clip, tokens, task.text_features(), image.features)?;
            Ok(ViewLogits::from_logits(logits))
        }
        _ => Ok(ViewLogits::of(task, image)),
    }
}

impl Adapter for ZeroShot {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = view_logits(task, image)?;
        let ballot = Decision::from_logits(views.logits.row(0));
        let only_the_original = Selection { scores: views.entropies.clone(), ranking: vec![0], selected: vec![0] };
        Ok(ballot.answer(views.explain(only_the_original)))
    }
}
