//! The text tower: token rows, blocks, the row where each text is read, projected.

use super::LoadOptions;
use super::block::{Block, BlockNorms, BlockSpec, Norm};
use super::clip::LARGE_BUDGET;
use super::context::{ClassTokens, Context};
use super::context_pass::ContextRun;
use super::deep::{DeepRun, deep_features};
use super::input::{Row, Source, end_of_text};
use super::load::{Reader, in_parallel};
use super::plan::Plan;
use super::prefix::Run;
use crate::architecture::{TextConfig, TextPool, VitForm};
use crate::{Error, Result};
use flatclip_tensor::ops::attention::{Queries, Shape};
use flatclip_tensor::{Activation, Linear, Matrix};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Contexts that are encoded together; bounds the memory of their prefixes.
const CONTEXT_GROUP: usize = 32;

/// The frozen text tower.
#[derive(Debug)]
pub struct TextKernels {
    pub(super) config: TextConfig,
    token_embedding: Vec<f32>,
    positions: Vec<f32>,
    pub(super) blocks: Vec<Block>,
    pub(super) norms: Vec<BlockNorms>,
    pub(super) final_norm: Norm,
    pub(super) projection: Linear,
    /// Bytes of activations that a pass may keep for its backward pass; beyond that, class chunks are recomputed.
    activation_budget: AtomicUsize,
}

impl TextKernels {
    pub(super) fn load(
        reader: &Reader<'_>,
        config: &TextConfig,
        embed_dim: usize,
        activation: Activation,
        options: &LoadOptions,
    ) -> Result<Self> {
        let width = config.width;
        let form = VitForm { epsilon: config.form.epsilon, ..VitForm::CLIP };
        let spec = BlockSpec { width, mlp: config.mlp, activation, form: &form, rotation: None };
        let block = |i| Block::load(reader, &format!("transformer.resblocks.{i}"), &spec);
        let embedding = || reader.tensor("token_embedding.weight", &[config.vocab, width]);
        // The embedding is the largest tensor: read beside the blocks.
        let (token_embedding, blocks) = rayon::join(embedding, || in_parallel(config.layers, block));
        let (blocks, norms) = blocks?.into_iter().unzip();
        Ok(Self {
            token_embedding: token_embedding?,
            positions: reader.tensor("positional_embedding", &[config.context_length, width])?,
            blocks,
            norms,
            final_norm: reader.norm("ln_final", width, form.epsilon)?,
            projection: reader.projection("text_projection", width, embed_dim, config.form.projection_bias)?,
            activation_budget: AtomicUsize::new(options.activation_budget),
            config: config.clone(),
        })
    }

    /// Channels of a token, and so of a context.
    pub fn width(&self) -> usize {
        self.config.width
    }

    /// Positions, start and end included.
    pub fn context_length(&self) -> usize {
        self.config.context_length
    }

    /// Bytes of activations that a pass keeps.
    pub(super) fn activation_budget(&self) -> usize {
        self.activation_budget.load(Ordering::Relaxed)
    }

    /// Lets passes keep as much as a text tower that works alone may, for as long as prompts are learned and the image tower
    /// has nothing to do. What is kept changes the time, never the result.
    pub fn keep_more_activations(&self) {
        self.activation_budget.fetch_max(LARGE_BUDGET, Ordering::Relaxed);
    }

    /// Lets passes keep less.
    pub(crate) fn limit_activations(&self, bytes: usize) {
        self.activation_budget.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Width of the joint space.
    pub fn embed_dim(&self) -> usize {
        self.projection.outputs()
    }

    /// Token embeddings without positions, `[ids, width]`.
    pub fn embed(&self, ids: &[u32]) -> Result<Matrix> {
        let mut rows = Matrix::zeros(ids.len(), self.width());
        for (i, &id) in ids.iter().enumerate() {
            self.check_id(id)?;
            rows.row_mut(i).copy_from_slice(self.token_row(id));
        }
        Ok(rows)
    }

    /// Raw features `[texts, D]` of token ids, start to end. A causal tower ignores what follows the end; another one sees it,
    /// and pads what is shorter than its positions.
    pub fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Matrix> {
        let mut sequences = Vec::with_capacity(texts.len());
        for (index, ids) in texts.iter().enumerate() {
            let end = end_of_text(ids)
                .ok_or_else(|| Error::Text { text: String::new(), reason: format!("text {index} has no tokens") })?;
            sequences.push(self.rows(ids.iter().map(|&id| Source::Token(id)).collect(), end));
        }
        let nothing = [Context { classes: None, tokens: 0, width: self.width(), data: Vec::new() }];
        let plan = Plan::new(self, sequences, &nothing)?;
        Ok(Run::forward(self, &plan, &nothing, &[], None).raw)
    }

    /// Unit-norm text features `[K, D]` for every context.
    pub fn encode(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Vec<Matrix>> {
        let mut features = Vec::with_capacity(contexts.len());
        for contexts in contexts.chunks(CONTEXT_GROUP) {
            let plan = self.plan(tokens, contexts)?;
            features.extend(Run::forward(self, &plan, contexts, &[], None).features(contexts.len()).0);
        }
        Ok(features)
    }

    /// The same, ready for [`ContextRun::gradient`].
    pub fn pass(self: &Arc<Self>, tokens: &ClassTokens, contexts: &[Context]) -> Result<ContextRun> {
        self.pass_through(self.blocks.len(), tokens, contexts)
    }

    /// The same with a cheaper gradient: rows of classes are differentiated through the last `blocks` blocks only. What
    /// reaches the context by keys and values of earlier blocks is ignored, so the gradient is biased. A tower that is not
    /// causal has the context in the rows of every class, and is always differentiated through all blocks.
    pub fn pass_through(
        self: &Arc<Self>,
        blocks: usize,
        tokens: &ClassTokens,
        contexts: &[Context],
    ) -> Result<ContextRun> {
        let blocks = if self.config.form.causal { blocks.max(1) } else { self.blocks.len() };
        let plan = self.plan(tokens, contexts)?.differentiated_from(self.blocks.len().saturating_sub(blocks));
        Ok(ContextRun::new(Arc::clone(self), plan, contexts))
    }

    /// MaPLe: before block `i` (from 1) the context's positions are overwritten by `deep[i - 1]`, `[n_ctx, width]`.
    pub fn deep_pass(self: &Arc<Self>, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<DeepRun> {
        DeepRun::new(Arc::clone(self), tokens, context, deep)
    }

    /// The unit-norm text features `[K, D]` of [`TextKernels::deep_pass`] alone.
    pub(crate) fn encode_deep(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Matrix> {
        deep_features(self, tokens, context, deep)
    }

    /// Every step of the computation for debugging, all positions of full sequences, nothing shared and nothing cut:
    /// `token_embedding`, `block0`.., `ln_final`, each `[texts * length, width]`.
    pub fn trace(&self, ids: &[u32], length: usize) -> Result<Vec<(String, Matrix)>> {
        let width = self.width();
        if length == 0 || length > self.context_length() || !ids.len().is_multiple_of(length) {
            let reason = format!("{} ids do not make texts of {length} (at most {})", ids.len(), self.context_length());
            return Err(Error::config("text length", reason));
        }
        let embedded = self.embed(ids)?;
        let mut x = embedded.data().to_vec();
        for (row, x) in x.chunks_exact_mut(width).enumerate() {
            x.iter_mut().zip(self.position_row(row % length)).for_each(|(x, p)| *x += p);
        }
        let starts: Vec<usize> = (0..=ids.len() / length).map(|i| i * length).collect();
        let shape = self.shape(&starts, Queries::All);
        let mut trace = vec![("token_embedding".to_owned(), embedded)];
        for (i, (block, norms)) in self.blocks.iter().zip(&self.norms).enumerate() {
            x = block.forward_taped(&x, &shape, norms).0;
            trace.push((format!("block{i}"), Matrix::from_vec(ids.len(), width, x.clone())));
        }
        let mut normal = vec![0.0; x.len()];
        self.final_norm.apply(&x, &mut normal);
        trace.push(("ln_final".to_owned(), Matrix::from_vec(ids.len(), width, normal)));
        Ok(trace)
    }

    pub(super) fn plan(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Plan> {
        for context in contexts {
            self.check_context(tokens, context)?;
            if context.classes != contexts[0].classes {
                let reason = "contexts of one call are either all shared or all class-specific";
                return Err(Error::config("context", reason));
            }
        }
        let rows = |class| {
            let sources = tokens.sources(class);
            let end = sources.len().saturating_sub(1);
            self.rows(sources, end)
        };
        Plan::new(self, (0..tokens.classes.len()).map(rows).collect(), contexts)
    }

    /// The positions that a text runs, the one that its feature is read from last. A causal tower stops at the end of the text.
    /// Another one runs all positions; their order means nothing to it, since each carries its own embedding.
    fn rows(&self, mut sources: Vec<Source>, end: usize) -> Vec<Row> {
        let form = &self.config.form;
        if form.causal {
            sources.truncate(end + 1);
        } else if sources.len() < self.context_length() {
            sources.resize(self.context_length(), Source::Token(form.padding));
        }
        let mut rows: Vec<Row> =
            sources.into_iter().enumerate().map(|(position, source)| Row { source, position }).collect();
        if form.pool == TextPool::End
            && let Some(last) = rows.len().checked_sub(1)
        {
            rows.swap(end.min(last), last);
        }
        rows
    }

    fn check_context(&self, tokens: &ClassTokens, context: &Context) -> Result<()> {
        let wrong = |reason: String| Err(Error::config("context", reason));
        if context.width != self.width() {
            return wrong(format!("width {}, but the text tower has width {}", context.width, self.width()));
        }
        if context.tokens != tokens.n_ctx {
            return wrong(format!("{} tokens, but the prompts leave room for {}", context.tokens, tokens.n_ctx));
        }
        if context.classes.is_some_and(|classes| classes != tokens.classes.len()) {
            return wrong(format!(
                "made for {} classes, but there are {}",
                context.classes.unwrap_or(0),
                tokens.classes.len()
            ));
        }
        if context.data.len() != context.classes.unwrap_or(1) * context.tokens * context.width {
            return wrong(format!("{} values do not fill its shape", context.data.len()));
        }
        Ok(())
    }

    pub(super) fn check_id(&self, id: u32) -> Result<()> {
        if (id as usize) < self.config.vocab {
            return Ok(());
        }
        let reason =
            format!("id {id}, but the vocabulary has {} entries; is it this model's tokenizer?", self.config.vocab);
        Err(Error::config("token", reason))
    }

    /// Sequences of the tower, nothing before them.
    pub(super) fn shape<'a>(&self, starts: &'a [usize], queries: Queries) -> Shape<'a> {
        Shape {
            width: self.width(),
            heads: self.config.heads,
            starts,
            causal: self.config.form.causal,
            queries,
            prefix: None,
        }
    }

    pub(super) fn token_row(&self, id: u32) -> &[f32] {
        &self.token_embedding[id as usize * self.width()..][..self.width()]
    }

    pub(super) fn position_row(&self, position: usize) -> &[f32] {
        &self.positions[position * self.width()..][..self.width()]
    }
}
