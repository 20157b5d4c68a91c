//! The text tower: token rows, blocks, the row where each text is read, projected.

use super::LoadOptions;
use super::block::{Block, BlockNorms, BlockSpec, Norm};
use super::clip::LARGE_BUDGET;
use super::context::{ClassTokens, Context, Position, Row, Source, end_of_text};
use super::context_pass::TextRun;
use super::load::{Reader, in_parallel};
use super::plan::Plan;
use super::prefix::Input;
use super::towers::{ContextPass, DeepPass, Passes, TextTower};
use crate::architecture::{TextConfig, TextPool, VitForm};
use crate::{Error, Result};
use flatclip_tensor::ops::attention::{Queries, Shape};
use flatclip_tensor::{Activation, Linear, Matrix};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Contexts that are encoded together; bounds the memory of their prefixes.
const CONTEXT_GROUP: usize = 32;

/// Bytes of activations that a pass with deep prompts may keep at most. Less than that of a plain context: who tunes deep
/// prompts has the image tower's weights in memory both ways round, and that tower takes most of the time. Enough for the
/// block inputs of 1000 classes: a chunk without them runs again as a whole, with all of its tapes at once.
const KEPT_DEEP: usize = 104 << 20;

#[derive(Debug)]
pub(super) struct TextKernels {
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
    pub(super) fn width(&self) -> usize {
        self.config.width
    }

    /// Bytes of activations that a pass keeps.
    fn activation_budget(&self) -> usize {
        self.activation_budget.load(Ordering::Relaxed)
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
        } else if sources.len() < self.config.context_length {
            sources.resize(self.config.context_length, Source::Token(form.padding));
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

    fn check_deep(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<()> {
        if !self.config.form.causal {
            return Err(Error::config("model", "deep prompts need a causal text tower, expected that of a CLIP"));
        }
        if tokens.position != Position::End || context.classes.is_some() {
            let reason = "deep prompts need a shared context and the class name at the end";
            return Err(Error::config("context", reason));
        }
        let wrong = |reason: String| Err(Error::config("deep prompts", reason));
        if deep.len() >= self.blocks.len() {
            return wrong(format!("{} deep prompts, but only {} blocks", deep.len(), self.blocks.len()));
        }
        let expected = (tokens.n_ctx, self.width());
        match deep.iter().map(|deep| (deep.rows(), deep.cols())).find(|&shape| shape != expected) {
            Some(shape) => wrong(format!("shape {shape:?}, expected {expected:?}")),
            None => Ok(()),
        }
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

/// Shared, since passes keep a handle on the tower for their gradient.
impl TextTower for Arc<TextKernels> {
    fn width(&self) -> usize {
        self.config.width
    }

    fn context_length(&self) -> usize {
        self.config.context_length
    }

    fn passes(&self) -> Passes {
        Passes { deep: self.config.form.causal, ..Passes::ALL }
    }

    fn embed(&self, ids: &[u32]) -> Result<Matrix> {
        let mut rows = Matrix::zeros(ids.len(), self.config.width);
        for (i, &id) in ids.iter().enumerate() {
            self.check_id(id)?;
            rows.row_mut(i).copy_from_slice(self.token_row(id));
        }
        Ok(rows)
    }

    /// A causal tower ignores what follows the end; another one sees it, and pads what is shorter than its positions.
    fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Matrix> {
        let mut sequences = Vec::with_capacity(texts.len());
        for (index, ids) in texts.iter().enumerate() {
            let end = end_of_text(ids)
                .ok_or_else(|| Error::Text { text: String::new(), reason: format!("text {index} has no tokens") })?;
            sequences.push(self.rows(ids.iter().map(|&id| Source::Token(id)).collect(), end));
        }
        let contexts = &[Context::shared(0, self.config.width, Vec::new())];
        let plan = &Plan::new(self, sequences, contexts)?;
        Ok(Input { tower: self, plan, contexts, deep: &[] }.forward(None).raw)
    }

    fn encode(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Vec<Matrix>> {
        let mut features = Vec::with_capacity(contexts.len());
        for contexts in contexts.chunks(CONTEXT_GROUP) {
            let plan = &self.plan(tokens, contexts)?;
            let run = Input { tower: self, plan, contexts, deep: &[] }.forward(None);
            features.extend(run.features(contexts.len()).0);
        }
        Ok(features)
    }

    /// A tower that is not causal has the context in the rows of every class, and is always differentiated through all
    /// blocks.
    fn pass_through(&self, blocks: usize, tokens: &ClassTokens, contexts: &[Context]) -> Result<Box<dyn ContextPass>> {
        let blocks = if self.config.form.causal { blocks.max(1) } else { self.blocks.len() };
        let plan = self.plan(tokens, contexts)?.differentiated_from(self.blocks.len().saturating_sub(blocks));
        Ok(Box::new(TextRun::new(self, plan, contexts, &[], self.activation_budget())))
    }

    fn deep_pass(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Box<dyn DeepPass>> {
        self.check_deep(tokens, context, deep)?;
        let plan = self.plan(tokens, from_ref(context))?;
        let kept = self.activation_budget().min(KEPT_DEEP);
        Ok(Box::new(TextRun::new(self, plan, from_ref(context), deep, kept)))
    }

    fn encode_deep(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Matrix> {
        self.check_deep(tokens, context, deep)?;
        let contexts = from_ref(context);
        let plan = &self.plan(tokens, contexts)?;
        Ok(Input { tower: self, plan, contexts, deep }.forward(None).features(1).0.swap_remove(0))
    }

    /// All positions of full sequences, nothing shared and nothing cut: `token_embedding`, `block0`.., `ln_final`, each
    /// `[texts * length, width]`.
    fn trace(&self, ids: &[u32], length: usize) -> Result<Vec<(String, Matrix)>> {
        let (width, most) = (self.config.width, self.config.context_length);
        if length == 0 || length > most || !ids.len().is_multiple_of(length) {
            let reason = format!("{} ids do not make texts of {length} (at most {most})", ids.len());
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

    fn keep_more_activations(&self) {
        self.activation_budget.fetch_max(LARGE_BUDGET, Ordering::Relaxed);
    }

    fn limit_activations(&self, bytes: usize) {
        self.activation_budget.fetch_min(bytes, Ordering::Relaxed);
    }
}
