//! From a prompt, a model and a class list to a task.

use super::Task;
use crate::model::{ClassName, ClassTokens, Clip, Context, Position};
use crate::prompt::{Prompt, PromptKind, check_length};
use crate::text::Tokenizer;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::sync::Arc;

impl Task {
    /// The task of a prompt: its text features, and, where it has one, the context that text-side adapters start from. A single
    /// template starts at the embeddings of its words, as TPT does.
    pub fn from_prompt(
        prompt: &Arc<Prompt>,
        clip: &Arc<Clip>,
        tokenizer: &Tokenizer,
        classes: impl Into<Arc<[String]>>,
        seed: u64,
    ) -> Result<Self> {
        let classes = classes.into();
        let features = prompt.text_features(clip, tokenizer, &classes)?;
        Self::from_features(prompt, features, clip, tokenizer, classes, seed)
    }

    /// The same, for text features of the prompt that are known already: computing them is most of the work.
    pub fn from_features(
        prompt: &Arc<Prompt>,
        features: Matrix,
        clip: &Arc<Clip>,
        tokenizer: &Tokenizer,
        classes: impl Into<Arc<[String]>>,
        seed: u64,
    ) -> Result<Self> {
        let classes = classes.into();
        let start = start(prompt, clip, tokenizer, &classes)?;
        let task = Self::new(classes, features, clip.logit_scale(), seed)?;
        let task = task.with_clip(Arc::clone(clip)).with_prompt(Arc::clone(prompt));
        Ok(match start {
            Some((tokens, context)) => task.with_context(tokens, context),
            None => task,
        })
    }
}

fn start(
    prompt: &Prompt,
    clip: &Clip,
    tokenizer: &Tokenizer,
    classes: &[String],
) -> Result<Option<(ClassTokens, Context)>> {
    match &prompt.kind {
        PromptKind::Learned { context, .. }
        | PromptKind::CoCoOp { context, .. }
        | PromptKind::Maple { context, .. } => Ok(Some((prompt.class_tokens(tokenizer, classes)?, context.clone()))),
        PromptKind::Templates(templates) => match templates.as_slice() {
            [template] => template_start(template, clip, tokenizer, classes),
            _ => Ok(None),
        },
        PromptKind::Features(_) | PromptKind::TipAdapter { .. } | PromptKind::Linear { .. } => Ok(None),
    }
}

/// The words before the class name are the context, what follows is fixed. `None` for a template that begins with the name.
fn template_start(
    template: &str,
    clip: &Clip,
    tokenizer: &Tokenizer,
    classes: &[String],
) -> Result<Option<(ClassTokens, Context)>> {
    let (before, after) = template
        .split_once("{}")
        .ok_or_else(|| Error::config("template", format!("expected `{{}}` for the class name, found {template:?}")))?;
    let words = tokenizer.encode(before);
    if words.is_empty() {
        return Ok(None);
    }
    let tower = clip.text()?;
    let embedded = tower.embed(&words)?;
    let context = Context::shared(words.len(), tower.width(), embedded.into_vec());
    let names = classes.iter().map(|class| {
        let name = class.replace('_', " ");
        // The end of the sequence is cut off the whole, so that pieces that join across the border join here, too.
        let all = tokenizer.encode(&format!("{name}{after}"));
        let length = tokenizer.encode(&name).len().min(all.len());
        let mut rest = all[length..].to_vec();
        rest.push(tokenizer.eot());
        ClassName { name: all[..length].to_vec(), rest }
    });
    let tokens =
        ClassTokens { n_ctx: words.len(), position: Position::End, sot: tokenizer.sot(), classes: names.collect() };
    check_length(&tokens, classes, tower.context_length())?;
    Ok(Some((tokens, context)))
}
