//! The fast form of the text tower.
//!
//! Attention is causal, so positions that are equal for all classes (start token, shared context, common words) have equal
//! hidden states: they run once per context, and their keys and values are shared by all classes. Each class runs only its
//! own positions, ragged, up to its end; the last block runs at the ends alone. This is exact, forward and backward.
//!
//! Classes go in chunks of a fixed number of rows. A pass keeps the activations of as many chunks as the budget allows and
//! recomputes the others in the backward pass, so memory does not grow with the number of classes. Gradients of the prefix
//! are summed over chunks in order.

use super::block::{Scratch, Side, Tape};
use super::context::Context;
use super::input::Source;
use super::text::TextTower;
use crate::{Error, Result};
use flatclip_tensor::ops::attention::{Queries, Shape, SharedPrefix};
use flatclip_tensor::ops::normalise;
use flatclip_tensor::{Matrix, threads};
use std::ops::Range;

/// Rows of a chunk: enough for the matrix products, small enough that a recomputed chunk stays below 100 MB.
const CHUNK_ROWS: usize = 256;

/// Which positions are shared, and which each class has to itself.
#[derive(Debug)]
pub(crate) struct Plan {
    prefix: Vec<Source>,
    tails: Vec<Vec<Source>>,
    contexts: usize,
    chunks: Vec<Chunk>,
}

/// A run of sequences, context-major: sequence `s` is class `s % K` behind context `s / K`.
#[derive(Debug)]
struct Chunk {
    sequences: Range<usize>,
    starts: Vec<usize>,
    of: Vec<usize>,
}

impl Plan {
    /// Cuts whole prompts (one per class) into what they share and the rest.
    pub(crate) fn new(tower: &TextTower, prompts: Vec<Vec<Source>>, contexts: &[Context]) -> Result<Self> {
        if prompts.is_empty() || contexts.is_empty() {
            return Err(Error::config("text tower", "nothing to encode: no texts or no contexts"));
        }
        for (class, prompt) in prompts.iter().enumerate() {
            if prompt.len() < 2 || prompt.len() > tower.context_length() {
                let reason = format!(
                    "text {class} has {} positions, expected 2 to {}; shorten the name or the context",
                    prompt.len(),
                    tower.context_length()
                );
                return Err(Error::config("class tokens", reason));
            }
            for source in prompt {
                if let Source::Token(id) = source {
                    tower.check_id(*id)?;
                }
            }
        }
        let class_specific = contexts.iter().any(|context| context.classes.is_some());
        let shared = shared_positions(&prompts, class_specific);
        let prefix = prompts.first().map(|prompt| prompt[..shared].to_vec()).unwrap_or_default();
        let tails: Vec<Vec<Source>> = prompts.into_iter().map(|prompt| prompt[shared..].to_vec()).collect();
        let chunks = cut(&tails, contexts.len());
        Ok(Self { prefix, tails, contexts: contexts.len(), chunks })
    }

    pub(crate) fn classes(&self) -> usize {
        self.tails.len()
    }

    fn prefix_starts(&self) -> Vec<usize> {
        (0..=self.contexts).map(|i| i * self.prefix.len()).collect()
    }

    /// The embedded rows of all prefixes.
    fn prefix_input(&self, tower: &TextTower, contexts: &[Context]) -> Vec<f32> {
        let mut x = Vec::with_capacity(self.contexts * self.prefix.len() * tower.width());
        for context in contexts {
            push_rows(tower, &self.prefix, 0, context, 0, &mut x);
        }
        x
    }

    /// The embedded rows of a chunk.
    fn chunk_input(&self, tower: &TextTower, contexts: &[Context], chunk: &Chunk) -> Vec<f32> {
        let mut x = Vec::with_capacity(chunk.starts[chunk.of.len()] * tower.width());
        for sequence in chunk.sequences.clone() {
            let (context, class) = (sequence / self.classes(), sequence % self.classes());
            push_rows(tower, &self.tails[class], self.prefix.len(), &contexts[context], class, &mut x);
        }
        x
    }
}

/// Positions equal in all prompts. Every prompt keeps at least its end, and a class-specific context is never shared.
fn shared_positions(prompts: &[Vec<Source>], class_specific: bool) -> usize {
    let Some(first) = prompts.first() else { return 0 };
    let common = |prompt: &Vec<Source>| {
        let same = prompt
            .iter()
            .zip(first)
            .take_while(|(a, b)| a == b && !(class_specific && matches!(a, Source::Context(_))));
        same.count().min(prompt.len() - 1)
    };
    prompts.iter().map(common).min().unwrap_or(0)
}

/// Chunks of about [`CHUNK_ROWS`] rows. The rule knows nothing of threads, so sums over chunks are always the same.
fn cut(tails: &[Vec<Source>], contexts: usize) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for sequence in 0..contexts * tails.len() {
        if chunks.last().is_none_or(|chunk| chunk.starts[chunk.of.len()] >= CHUNK_ROWS) {
            chunks.push(Chunk { sequences: sequence..sequence, starts: vec![0], of: Vec::new() });
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.starts.push(chunk.starts[chunk.of.len()] + tails[sequence % tails.len()].len());
            chunk.of.push(sequence / tails.len());
            chunk.sequences.end = sequence + 1;
        }
    }
    chunks
}

fn push_rows(tower: &TextTower, sources: &[Source], first: usize, context: &Context, class: usize, x: &mut Vec<f32>) {
    for (i, source) in sources.iter().enumerate() {
        let row = match *source {
            Source::Token(id) => tower.token_row(id),
            Source::Context(token) => context.row(class, token),
        };
        x.extend(row.iter().zip(tower.position_row(first + i)).map(|(x, p)| x + p));
    }
}

/// Block inputs and tapes of one run through the tower.
#[derive(Debug)]
struct Tapes(Vec<(Vec<f32>, Tape)>);

/// A finished forward pass.
#[derive(Debug)]
pub(crate) struct Run {
    prefix: Tapes,
    /// Kept chunks; `None` is recomputed when its gradient is wanted.
    chunks: Vec<Option<Tapes>>,
    /// The residual stream at the end of each text, before the last norm, `[contexts * K, width]`.
    ends: Vec<f32>,
    /// Raw features `[contexts * K, D]`.
    pub(crate) raw: Matrix,
}

impl Run {
    /// Runs all prefixes, then all chunks. `keep` is how many bytes of chunk activations may stay for a backward pass;
    /// `None` is a pass without a way back. What is kept does not change the result.
    pub(crate) fn forward(
        tower: &TextTower,
        plan: &Plan,
        contexts: &[Context],
        deep: &[Matrix],
        keep: Option<usize>,
    ) -> Self {
        let prefix = prefix_forward(tower, plan, contexts, deep, keep.is_none().then_some(&mut Scratch::default()));
        let row_bytes: usize = tower.blocks.iter().map(|block| 4 * block.tape_width()).sum();
        let mut left = keep.unwrap_or(0);
        let items: Vec<(&Chunk, bool)> = plan
            .chunks
            .iter()
            .map(|chunk| {
                let bytes = chunk.starts[chunk.of.len()] * row_bytes;
                let kept = keep.is_some() && bytes <= left;
                left -= if kept { bytes } else { 0 };
                (chunk, kept)
            })
            .collect();
        let done = threads::map(items, |(chunk, kept)| {
            let x = plan.chunk_input(tower, contexts, chunk);
            if kept {
                let (end, tapes) = chunk_taped(tower, plan, chunk, &prefix, x);
                (end, Some(tapes))
            } else {
                (chunk_plain(tower, plan, chunk, &prefix, x), None)
            }
        });
        let mut ends = Vec::with_capacity(plan.contexts * plan.classes() * tower.width());
        let mut chunks = Vec::with_capacity(plan.chunks.len());
        for (end, tapes) in done {
            ends.extend(end);
            chunks.push(tapes);
        }
        let raw = head(tower, &ends, plan.contexts * plan.classes());
        Self { prefix, chunks, ends, raw }
    }

    /// Unit-norm features per context, and the norms of all rows.
    pub(crate) fn features(&self, contexts: usize) -> (Vec<Matrix>, Vec<f32>) {
        let mut unit = self.raw.clone();
        let width = unit.cols();
        let norms = normalise(unit.data_mut(), width);
        let classes = unit.rows() / contexts.max(1);
        let data = unit.into_vec();
        let matrix =
            |c: usize| Matrix::from_vec(classes, width, data[c * classes * width..(c + 1) * classes * width].to_vec());
        ((0..contexts).map(matrix).collect(), norms)
    }

    /// Gradients with respect to each context and each deep prompt, from those of the raw features.
    pub(crate) fn backward(
        &self,
        tower: &TextTower,
        plan: &Plan,
        contexts: &[Context],
        deep: &[Matrix],
        d_raw: &[f32],
    ) -> (Vec<Context>, Vec<Matrix>) {
        let (width, sequences) = (tower.width(), plan.contexts * plan.classes());
        let mut d_normal = vec![0.0; sequences * width];
        tower.projection.backward(d_raw, sequences, &mut d_normal);
        let mut d_ends = vec![0.0; sequences * width];
        tower.final_norm.backward(&self.ends, &d_normal, &mut d_ends);

        let mut d_contexts: Vec<Context> = contexts.iter().map(Context::zeros_like).collect();
        let prefix_size = plan.contexts * plan.prefix.len() * 3 * width;
        let mut d_prefix = vec![vec![0.0; prefix_size]; tower.blocks.len()];
        // Groups bound what waits to be added; sums are over chunks in order, whatever the group.
        let items: Vec<(&Chunk, &Option<Tapes>)> = plan.chunks.iter().zip(&self.chunks).collect();
        for group in items.chunks(rayon::current_num_threads()) {
            let done = threads::map(group.to_vec(), |(chunk, kept)| {
                let d = d_ends[chunk.sequences.start * width..chunk.sequences.end * width].to_vec();
                self.chunk_backward(tower, plan, contexts, chunk, kept.as_ref(), d)
            });
            for ((chunk, _), (d, d_prefix_part)) in group.iter().zip(done) {
                add_chunk_gradient(plan, chunk, &d, &mut d_contexts);
                for (sum, part) in d_prefix.iter_mut().zip(&d_prefix_part) {
                    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                }
            }
        }
        let d_deep = self.prefix_backward(tower, plan, deep, &d_prefix, &mut d_contexts);
        (d_contexts, d_deep)
    }

    /// The gradients of a chunk's input rows, and of the prefixes' keys and values in each layer.
    fn chunk_backward(
        &self,
        tower: &TextTower,
        plan: &Plan,
        contexts: &[Context],
        chunk: &Chunk,
        kept: Option<&Tapes>,
        mut d: Vec<f32>,
    ) -> (Vec<f32>, Vec<Vec<f32>>) {
        let again;
        let tapes = match kept {
            Some(tapes) => tapes,
            None => {
                let x = plan.chunk_input(tower, contexts, chunk);
                again = chunk_taped(tower, plan, chunk, &self.prefix, x).1;
                &again
            }
        };
        let prefix_size = plan.contexts * plan.prefix.len() * 3 * tower.width();
        let mut d_prefix = vec![vec![0.0; prefix_size]; tower.blocks.len()];
        for (layer, block) in tower.blocks.iter().enumerate().rev() {
            let shape = chunk_shape(tower, plan, chunk, &self.prefix, layer);
            let (x, tape) = &tapes.0[layer];
            let side = Side { prefix: Some(&mut d_prefix[layer]), ..Side::default() };
            d = block.backward(x, tape, &shape, &tower.norms[layer], d, side);
        }
        (d, d_prefix)
    }

    fn prefix_backward(
        &self,
        tower: &TextTower,
        plan: &Plan,
        deep: &[Matrix],
        d_prefix: &[Vec<f32>],
        d_contexts: &mut [Context],
    ) -> Vec<Matrix> {
        let width = tower.width();
        let starts = plan.prefix_starts();
        let mut d_deep: Vec<Matrix> = deep.iter().map(|deep| Matrix::zeros(deep.rows(), width)).collect();
        let mut d = Vec::new();
        for (layer, block) in tower.blocks.iter().enumerate().rev() {
            let shape = tower.shape(&starts, prefix_queries(tower, layer));
            let (x, tape) = &self.prefix.0[layer];
            let side = Side { shared: Some(&d_prefix[layer]), ..Side::default() };
            d = block.backward(x, tape, &shape, &tower.norms[layer], d, side);
            if let Some(d_deep) = layer.checked_sub(1).and_then(|i| d_deep.get_mut(i)) {
                // The overwritten rows came from the deep prompt, not from the block below.
                for &start in &starts[..plan.contexts] {
                    let rows = &mut d[(start + 1) * width..][..d_deep.data().len()];
                    d_deep.data_mut().iter_mut().zip(rows.iter()).for_each(|(to, from)| *to += from);
                    rows.fill(0.0);
                }
            }
        }
        for (context, d_context) in d_contexts.iter_mut().enumerate() {
            let d = &d[context * plan.prefix.len() * width..];
            add_rows(&plan.prefix, 0, d, d_context);
        }
        d_deep
    }
}

fn head(tower: &TextTower, ends: &[f32], rows: usize) -> Matrix {
    let mut normal = vec![0.0; ends.len()];
    tower.final_norm.apply(ends, &mut normal);
    let mut raw = Matrix::zeros(rows, tower.embed_dim());
    tower.projection.forward(&normal, rows, flatclip_tensor::Activation::Identity, raw.data_mut());
    raw
}

/// Nobody reads the prefix after the last block; only its keys and values there are wanted.
fn prefix_queries(tower: &TextTower, layer: usize) -> Queries {
    if layer + 1 == tower.blocks.len() { Queries::None } else { Queries::All }
}

/// With `scratch`, only keys and values stay.
fn prefix_forward(
    tower: &TextTower,
    plan: &Plan,
    contexts: &[Context],
    deep: &[Matrix],
    mut scratch: Option<&mut Scratch>,
) -> Tapes {
    let starts = plan.prefix_starts();
    let mut x = plan.prefix_input(tower, contexts);
    let mut tapes = Vec::with_capacity(tower.blocks.len());
    for (layer, block) in tower.blocks.iter().enumerate() {
        if let Some(deep) = layer.checked_sub(1).and_then(|i| deep.get(i)) {
            for &start in &starts[..plan.contexts] {
                x[(start + 1) * tower.width()..][..deep.data().len()].copy_from_slice(deep.data());
            }
        }
        let shape = tower.shape(&starts, prefix_queries(tower, layer));
        if let Some(scratch) = scratch.as_deref_mut() {
            block.forward(&mut x, &shape, &tower.norms[layer], scratch);
            tapes.push((Vec::new(), Tape::of_keys(std::mem::take(&mut scratch.qkv))));
        } else {
            let (y, tape) = block.forward_taped(&x, &shape, &tower.norms[layer]);
            tapes.push((std::mem::replace(&mut x, y), tape));
        }
    }
    Tapes(tapes)
}

fn chunk_shape<'a>(tower: &TextTower, plan: &Plan, chunk: &'a Chunk, prefix: &'a Tapes, layer: usize) -> Shape<'a> {
    let queries = if layer + 1 == tower.blocks.len() { Queries::Last } else { Queries::All };
    let shared = SharedPrefix { qkv: prefix.0[layer].1.qkv(), rows: plan.prefix.len(), of: &chunk.of };
    Shape { prefix: Some(shared), ..tower.shape(&chunk.starts, queries) }
}

/// The residual stream at the ends of a chunk's texts, without a tape.
fn chunk_plain(tower: &TextTower, plan: &Plan, chunk: &Chunk, prefix: &Tapes, mut x: Vec<f32>) -> Vec<f32> {
    let mut scratch = Scratch::default();
    for (layer, block) in tower.blocks.iter().enumerate() {
        let shape = chunk_shape(tower, plan, chunk, prefix, layer);
        block.forward(&mut x, &shape, &tower.norms[layer], &mut scratch);
    }
    x
}

fn chunk_taped(tower: &TextTower, plan: &Plan, chunk: &Chunk, prefix: &Tapes, mut x: Vec<f32>) -> (Vec<f32>, Tapes) {
    let mut tapes = Vec::with_capacity(tower.blocks.len());
    for (layer, block) in tower.blocks.iter().enumerate() {
        let (y, tape) = block.forward_taped(&x, &chunk_shape(tower, plan, chunk, prefix, layer), &tower.norms[layer]);
        tapes.push((std::mem::replace(&mut x, y), tape));
    }
    (x, Tapes(tapes))
}

fn add_chunk_gradient(plan: &Plan, chunk: &Chunk, d: &[f32], d_contexts: &mut [Context]) {
    for (sequence, &start) in chunk.sequences.clone().zip(&chunk.starts) {
        let (context, class) = (sequence / plan.classes(), sequence % plan.classes());
        let d_context = &mut d_contexts[context];
        let d = &d[start * d_context.width..];
        add_rows(&plan.tails[class], class, d, d_context);
    }
}

/// Adds the gradients of the rows that came from the context.
fn add_rows(sources: &[Source], class: usize, d: &[f32], d_context: &mut Context) {
    for (source, d) in sources.iter().zip(d.chunks_exact(d_context.width.max(1))) {
        if let Source::Context(token) = *source {
            let at = d_context.offset(class, token);
            d_context.data[at..].iter_mut().zip(d).for_each(|(to, from)| *to += from);
        }
    }
}
