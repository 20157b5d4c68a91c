//! From a prompt, a model and a class list to a task.

use super::Task;
use crate::Result;
use crate::model::{ClassTokens, Clip, Context};
use crate::prompt::{Prompt, PromptContent, template_context};
use crate::text::Tokenizer;
use flatclip_tensor::Matrix;
use std::sync::Arc;

impl Task {
    /// The task of a prompt: its text features, and, where it has one, the context that text-side adapters
    /// start from. A single template starts at the embeddings of its words, as TPT does.
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
        let mut task = Self::new(classes, features, clip.logit_scale(), seed)?.with_clip(Arc::clone(clip));
        (task.prompt, task.tokenizer) = (Some(Arc::clone(prompt)), Some(tokenizer.clone()));
        Ok(match start {
            Some((tokens, context)) => task.with_context(tokens, context),
            None => task,
        })
    }

    /// A task for each template of a prompt of several, for adapters that tune every one of them by itself; none for every
    /// other prompt.
    pub(crate) fn by_template(&self) -> Result<Vec<Task>> {
        let (Some(prompt), Some(clip), Some(tokenizer)) = (&self.prompt, &self.clip, &self.tokenizer) else {
            return Ok(Vec::new());
        };
        let PromptContent::Templates(templates) = &prompt.content else { return Ok(Vec::new()) };
        if templates.len() < 2 {
            return Ok(Vec::new());
        }
        let one = |template: &String| {
            let prompt = Arc::new(Prompt::templates(&[template])?);
            Task::from_prompt(&prompt, clip, tokenizer, Arc::clone(&self.classes), self.seed)
        };
        templates.iter().map(one).collect()
    }
}

fn start(
    prompt: &Prompt,
    clip: &Clip,
    tokenizer: &Tokenizer,
    classes: &[String],
) -> Result<Option<(ClassTokens, Context)>> {
    match &prompt.content {
        PromptContent::Learned { context, .. }
        | PromptContent::CoCoOp { context, .. }
        | PromptContent::Maple { context, .. } => Ok(Some((prompt.class_tokens(tokenizer, classes)?, context.clone()))),
        PromptContent::Templates(templates) => match templates.as_slice() {
            [template] if clip.passes().contexts => template_context(template, clip.text()?, tokenizer, classes),
            _ => Ok(None),
        },
        PromptContent::Features(_) | PromptContent::TipAdapter { .. } | PromptContent::Linear { .. } => Ok(None),
    }
}
