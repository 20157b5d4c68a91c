//! CoCoOp: a context that a small network shifts for every image.

use super::Verified;
use super::cross_entropy::cross_entropy;
use super::{Batch, Input, Loss, Recipe, TuneTask, Tuner, TunerSpec, context_init};
use crate::data::train_images::TrainViews;
use flatclip::Result;
use flatclip::model::{ClassTokens, Clip, Context, Position};
use flatclip::prompt::{
    Affine, Arrays, PromptContent, PromptKind, Tensor, check_length, class_tokens, logits, shifted, shifts, unusable,
};
use flatclip::rng::Stream;
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: TunerSpec = TunerSpec {
    name: "cocoop",
    aliases: &[],
    input: Input::Features,
    prompt: PromptKind::CoCoOp,
    vit: false,
    table: CocoopConfig::NAME,
    summary: "context tokens that a small network shifts for every image",
    docs: "\
What: a network with one hidden layer shifts the context by what it sees of the image; trained are the
context p and the network W1, b1, W2, b2. Golden cases: cocoop-*.
  pi_i = W2 relu(W1 z_i + b1) + b2          z_i unit-norm image features
  p_i  = p + pi_i                           the same shift for all L tokens
  loss = mean CE(tau z_i t(p_i)', y_i)
Trained as published: batch 1, 10 epochs.
Cost: B contexts times K classes through the text tower per step; the B contexts are one batch, not a loop.
Reference: Zhou et al., Conditional Prompt Learning for Vision-Language Models, CVPR 2022.
",
    verified: Verified::AuthorsCode,
    options: CocoopConfig::OPTIONS,
    check: |options| CocoopConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(Cocoop::build(&CocoopConfig::read(options)?, task)?)),
    recipe: || Recipe { epochs: 10, batch: 1, ..Recipe::default() },
    views: TrainViews::default,
};

flatclip::options! {
    /// Options of `cocoop`.
    pub struct CocoopConfig for "cocoop" {
        /// Words whose embeddings the context starts from; empty for noise.
        words: String = "a photo of a".into(), from "paper";
        /// Number of context tokens; 0 means as many as the words have, or 4 without words.
        n_ctx: usize = 0, range up_to(64), from "paper";
        /// Width of the hidden layer; 0 means a sixteenth of the feature width.
        hidden: usize = 0, range up_to(4096), from "paper";
    }
}

/// The learner of a context and its meta-net.
#[derive(Clone, Debug)]
pub struct Cocoop {
    class_tokens: ClassTokens,
    /// context, then weight and bias of both layers.
    parameters: Vec<Tensor>,
    words: String,
}

impl Cocoop {
    /// Starts from a given context and meta-net.
    pub fn new(context: Context, meta: &[Affine; 2], class_tokens: ClassTokens, words: &str) -> Self {
        let mut parameters = vec![Tensor::new("context", context.shape(), context.data)];
        for (index, layer) in meta.iter().enumerate() {
            let name = format!("meta_net.linear{}", index + 1);
            parameters.extend(layer.tensors(&name));
        }
        Self { class_tokens, parameters, words: words.into() }
    }

    /// Starts from words or noise.
    pub fn build(config: &CocoopConfig, task: &TuneTask<'_>) -> Result<Self> {
        let random = config.words.trim().is_empty();
        let n_ctx = if random && config.n_ctx == 0 { 4 } else { config.n_ctx };
        let context = context_init::context(task, &config.words, n_ctx, false)?;
        let (inputs, outputs) = (task.clip.embed_dim(), context.width);
        let hidden = if config.hidden == 0 { (inputs / 16).max(1) } else { config.hidden };
        let mut stream = Stream::new(task.seed, &["meta-net"]);
        let meta = [(hidden, inputs), (outputs, hidden)]
            .map(|(outputs, inputs)| context_init::layer(&mut stream, outputs, inputs));
        let tokens = class_tokens(task.tokenizer, task.classes, context.tokens, Position::End, "");
        check_length(&tokens, task.classes, task.clip.text()?.context_length())?;
        Ok(Self::new(context, &meta, tokens, &config.words))
    }

    /// The context and the meta-net of some parameters.
    fn parts(at: &[Tensor]) -> Result<(Context, [Affine; 2])> {
        let arrays = Arrays(at);
        let context = arrays.shared_context("context").map_err(unusable)?;
        let layer = |name: &str| arrays.affine(name).map_err(unusable);
        Ok((context, [layer("meta_net.linear1")?, layer("meta_net.linear2")?]))
    }
}

impl Tuner for Cocoop {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        &mut self.parameters
    }

    fn loss(&self, clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss> {
        let (scale, z) = (clip.logit_scale(), batch.features);
        let (context, meta) = Self::parts(at)?;
        let (hidden, shift) = shifts(&meta, z);
        let pass = clip.text()?.pass(&self.class_tokens, &shifted(&context, &shift))?;

        let mut all = Matrix::zeros(z.rows(), self.class_tokens.classes.len());
        for (row, text) in pass.features().iter().enumerate() {
            all.row_mut(row).copy_from_slice(logits(&z.select_rows(&[row]), text, scale).data());
        }
        let entropy = cross_entropy(&all, batch.labels);

        // Image i sees text features i only: d t_i = tau (d logits_i)ᵀ z_i.
        let outer = |row: usize| {
            let mut d_text = Matrix::zeros(all.cols(), z.cols());
            for (class, d) in entropy.d_logits.row(row).iter().enumerate() {
                d_text.row_mut(class).iter_mut().zip(z.row(row)).for_each(|(t, x)| *t = scale * d * x);
            }
            d_text
        };
        let d_contexts = pass.gradient(&(0..z.rows()).map(outer).collect::<Vec<Matrix>>())?;

        let mut d_context = vec![0.0; context.data.len()];
        let mut d_shift = Matrix::zeros(shift.rows(), shift.cols());
        for (row, own) in d_contexts.iter().enumerate() {
            d_context.iter_mut().zip(&own.data).for_each(|(sum, d)| *sum += d);
            for token in own.data.chunks(context.width) {
                d_shift.row_mut(row).iter_mut().zip(token).for_each(|(sum, d)| *sum += d);
            }
        }
        let (mut d_hidden, d_weight2, d_bias2) = meta[1].gradient(&hidden, &d_shift);
        d_hidden.data_mut().iter_mut().zip(hidden.data()).filter(|(_, h)| **h <= 0.0).for_each(|(d, _)| *d = 0.0);
        let (_, d_weight1, d_bias1) = meta[0].gradient(z, &d_hidden);
        let gradient = vec![d_context, d_weight1.into_vec(), d_bias1, d_weight2.into_vec(), d_bias2];
        Ok(Loss { value: entropy.loss, correct: entropy.correct, logits: all, gradient })
    }

    fn prompt(&self) -> Result<PromptContent> {
        let (context, meta) = Self::parts(&self.parameters)?;
        Ok(PromptContent::CoCoOp { context, words: self.words.clone(), meta })
    }
}
