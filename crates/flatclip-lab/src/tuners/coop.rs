//! CoOp: learn the context tokens in front of (around, behind) the class names, everything else frozen.

use super::Verified;
use super::class_sample::ClassSample;
use super::context_init;
use super::cross_entropy::{CrossEntropy, cross_entropy};
use super::own_loss::{CheckedLoss, OwnLoss};
use super::{Batch, Input, Loss, Recipe, RemoteText, TuneTask, Tuner, TunerSpec};
use crate::data::train_images::TrainViews;
use flatclip::model::{ClassTokens, Clip, Context, Position};
use flatclip::prompt::{Arrays, PromptContent, PromptKind, Tensor, check_length, class_tokens, logits, unusable};
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// The registry entry.
pub static SPEC: TunerSpec = TunerSpec {
    name: "coop",
    aliases: &[],
    input: Input::Features,
    prompt: PromptKind::Learned,
    vit: false,
    table: CoopConfig::NAME,
    summary: "context tokens that lower the cross-entropy of the shots",
    docs: "\
What: the context p in front of (around, behind) the class names is trained, [L, d] or [K, L, d]; all else is
frozen. Golden cases: coop-*.
  t_k  = norm(E_t([SOT] p_1 .. p_L [name_k] \".\" [EOT]))        z = norm(E_v(x))
  loss = mean over the batch of -log softmax(tau z t')[y]
Cost: one forward and one backward of the text tower over K classes per step; images are encoded once.
Reference: Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022.
",
    verified: Verified::AuthorsCode,
    options: CoopConfig::OPTIONS,
    check: |options| CoopConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(Coop::build(&CoopConfig::read(options)?, task)?)),
    recipe: Recipe::default,
    views: TrainViews::default,
};

flatclip::option_group! {
    ($) pub(super) learned_context {
        /// Words whose embeddings the context starts from; empty for noise.
        words: String = "a photo of a".into(), from "paper";
        /// Number of context tokens; 0 means as many as the words have, or 16 without words.
        n_ctx: usize = 0, range up_to(64), from "paper";
        /// One context per class.
        class_specific: bool = false, from "paper";
        /// Where the class name stands.
        position: Position = Position::End, from "paper";
        /// Classes of a step besides those of its images, drawn anew for every batch; 0 means all classes.
        class_sample: usize = 0, from "choice";
        /// Blocks, from the last, through which classes are differentiated; 0 means all: fewer are faster and biased.
        gradient_blocks: usize = 0, from "choice";
    }
}

flatclip::options! {
    /// Options of `coop`.
    pub struct CoopConfig for "coop" {
        include learned_context;
    }
}

/// The learner of a context.
#[derive(Clone, Debug)]
pub struct Coop {
    class_tokens: ClassTokens,
    /// The context alone.
    parameters: Vec<Tensor>,
    words: String,
    class_sample: usize,
    gradient_blocks: usize,
    seed: u64,
    /// Runs the text tower where it is not this process's.
    remote: Option<Arc<dyn RemoteText>>,
    /// In the place of the cross-entropy.
    own_loss: Option<CheckedLoss>,
}

impl Coop {
    /// Starts from a given context.
    pub fn new(context: Context, class_tokens: ClassTokens, words: &str) -> Self {
        let parameters = vec![Tensor::new("context", context.shape(), context.data)];
        Self {
            class_tokens,
            parameters,
            words: words.into(),
            class_sample: 0,
            gradient_blocks: 0,
            seed: 0,
            remote: None,
            own_loss: None,
        }
    }

    /// Starts from words or noise.
    pub fn build(config: &CoopConfig, task: &TuneTask<'_>) -> Result<Self> {
        if config.class_specific && config.class_sample > 0 {
            let reason = "a context of one's own is learned from every class; expected 0 with class_specific";
            return Err(Error::config("class_sample", reason));
        }
        let random = config.words.trim().is_empty();
        let n_ctx = if random && config.n_ctx == 0 { 16 } else { config.n_ctx };
        let context = context_init::context(task, &config.words, n_ctx, config.class_specific)?;
        let tokens = class_tokens(task.tokenizer, task.classes, context.tokens, config.position, "");
        check_length(&tokens, task.classes, task.clip.text()?.context_length())?;
        let CoopConfig { class_sample, gradient_blocks, .. } = *config;
        Ok(Self { class_sample, gradient_blocks, seed: task.seed, ..Self::new(context, tokens, &config.words) })
    }

    /// The loss of logits of all classes.
    fn loss_of(&self, logits: &Matrix, labels: &[usize]) -> Result<CrossEntropy> {
        match &self.own_loss {
            Some(own) => own.of(logits, labels),
            None => Ok(cross_entropy(logits, labels)),
        }
    }
}

/// The trained context as the text tower takes it.
fn context_of(parameters: &[Tensor]) -> Result<Context> {
    Arrays(parameters).context("context").map_err(unusable)
}

impl Tuner for Coop {
    fn set_remote_text(&mut self, text: Arc<dyn RemoteText>) -> Result<()> {
        if self.class_sample > 0 || self.gradient_blocks > 0 {
            let reason =
                "a text tower elsewhere runs all classes and all blocks; leave class_sample and gradient_blocks at 0";
            return Err(Error::config("text", reason));
        }
        self.remote = Some(text);
        Ok(())
    }

    fn set_loss(&mut self, loss: Arc<dyn OwnLoss>) -> Result<()> {
        if self.class_sample > 0 {
            let reason = "a loss of one's own needs the logits of all classes; leave class_sample at 0";
            return Err(Error::config("loss", reason));
        }
        self.own_loss = Some(CheckedLoss::new(loss));
        Ok(())
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        &mut self.parameters
    }

    fn loss(&self, clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss> {
        let scale = clip.logit_scale();
        let context = context_of(at)?;
        if let Some(remote) = &self.remote {
            let logits = logits(batch.features, &remote.features(&context)?, scale);
            let entropy = self.loss_of(&logits, batch.labels)?;
            let gradient = remote.gradient(&context, &entropy.d_text(batch.features, scale))?.data;
            return Ok(Loss { value: entropy.loss, correct: entropy.correct, logits, gradient: vec![gradient] });
        }
        let tower = clip.text()?;
        let sample = ClassSample::draw(self.class_sample, self.class_tokens.classes.len(), batch, self.seed);
        let some = sample.as_ref().map(|sample| sample.tokens(&self.class_tokens));
        let blocks = if self.gradient_blocks == 0 { usize::MAX } else { self.gradient_blocks };
        let pass = tower.pass_through(blocks, some.as_ref().unwrap_or(&self.class_tokens), &[context])?;
        let logits = logits(batch.features, &pass.features()[0], scale);
        let entropy = match &sample {
            Some(sample) => sample.cross_entropy(&logits),
            None => self.loss_of(&logits, batch.labels)?,
        };
        let gradient = pass.gradient(&[entropy.d_text(batch.features, scale)])?;
        let gradient = gradient.into_iter().map(|context| context.data).collect();
        Ok(Loss { value: entropy.loss, correct: entropy.correct, logits, gradient })
    }

    fn text_features(&self, clip: &Clip) -> Result<Option<Matrix>> {
        Ok(clip.text()?.encode(&self.class_tokens, &[context_of(&self.parameters)?])?.pop())
    }

    fn prompt(&self) -> Result<PromptContent> {
        let context = context_of(&self.parameters)?;
        Ok(PromptContent::Learned { context, words: self.words.clone(), position: self.class_tokens.position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_of_another_shape_is_an_error_not_an_empty_context() {
        let of = |shape: &[usize], count: usize| {
            let context = Tensor::new("context", shape.to_vec(), vec![0.5; count]);
            let tokens = ClassTokens { n_ctx: 2, position: Position::End, sot: Some(1), classes: Vec::new() };
            let coop = Coop::new(Context::shared(0, 3, Vec::new()), tokens, "");
            Coop { parameters: vec![context], ..coop }.prompt()
        };
        assert!(of(&[2, 3], 6).is_ok() && of(&[4, 2, 3], 24).is_ok());
        for (shape, count) in [(&[6][..], 6), (&[1, 1, 2, 3], 6), (&[0, 3], 0), (&[], 1)] {
            let error = of(shape, count).unwrap_err();
            assert_eq!(error.code(), "prompt.unusable");
            assert!(error.to_string().contains(&format!("shape {shape:?}, expected [n_ctx, width]")), "{error}");
        }
    }
}
