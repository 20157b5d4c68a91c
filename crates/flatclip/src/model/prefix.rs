//! The fast form of the text tower.
//!
//! Attention is causal, so positions that are equal for all classes (start token, shared context, common words) have equal
//! hidden states: they run once per context, and their keys and values are shared by all classes. Each class runs only its
//! own positions, ragged, up to its end; the last block runs at the ends alone. This is exact, forward and backward. A tower
//! without causal mask has no such prefix: every class runs all positions.
//!
//! Classes go in chunks of about equal numbers of rows. A pass keeps of each chunk what its budget allows: the input of
//! every block, which is little and halves the backward pass, and then whole tapes. What is missing is computed again in the
//! backward pass, so memory does not grow with the number of classes. Gradients of the prefix are summed over chunks in
//! order.

use super::block::{Scratch, Side, Tape};
use super::context::Context;
use super::plan::{Chunk, Plan, add_chunk_gradient, add_rows};
use super::text::TextKernels;
use flatclip_tensor::ops::attention::{Queries, Shape, SharedPrefix};
use flatclip_tensor::ops::normalise;
use flatclip_tensor::{Activation, Matrix, threads};
use std::cell::OnceCell;

/// Prefix gradients per thread that wait to be added: one per chunk and context.
const WAITING: usize = 8;

/// The input of every block and its tape; a missing tape is computed again from the input.
type Tapes = Vec<(Vec<f32>, Option<Tape>)>;

/// The same of all prefixes, whole: they are short.
type PrefixTapes = Vec<(Vec<f32>, Tape)>;

/// What stays of a chunk for its backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keep {
    /// Everything is computed again.
    Nothing,
    /// The input of every block.
    Inputs,
    /// Inputs and tapes.
    Tapes,
}

/// What runs through the tower.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) tower: &'a TextKernels,
    pub(super) plan: &'a Plan,
    pub(super) contexts: &'a [Context],
    /// Before block `i` (from 1) the context's rows are overwritten by `deep[i - 1]`. They lie in the shared prefix.
    pub(super) deep: &'a [Matrix],
}

/// A finished forward pass.
#[derive(Debug)]
pub(super) struct Run {
    prefix: PrefixTapes,
    /// What was kept of each chunk, empty when nothing was.
    chunks: Vec<Tapes>,
    /// The residual stream at the end of each text, before the last norm, `[contexts * K, width]`.
    ends: Vec<f32>,
    /// Raw features `[contexts * K, D]`.
    pub(super) raw: Matrix,
}

impl Run {
    /// Unit-norm features per context, and the norms of all rows.
    pub(super) fn features(&self, contexts: usize) -> (Vec<Matrix>, Vec<f32>) {
        let mut unit = self.raw.clone();
        let width = unit.cols();
        let norms = normalise(unit.data_mut(), width);
        let classes = unit.rows() / contexts.max(1);
        let matrix = |c: usize| {
            Matrix::from_vec(classes, width, unit.data()[c * classes * width..(c + 1) * classes * width].to_vec())
        };
        ((0..contexts).map(matrix).collect(), norms)
    }
}

impl Input<'_> {
    /// Runs all prefixes, then all chunks. `keep` is how many bytes of chunk activations may stay for a backward pass;
    /// `None` is a pass without a backward pass. What is kept does not change the result.
    pub(super) fn forward(self, keep: Option<usize>) -> Run {
        let Self { tower, plan, .. } = self;
        let prefix = self.prefix_forward(keep.is_some());
        let items: Vec<(&Chunk, Keep)> = plan.chunks.iter().zip(self.shares(keep.unwrap_or(0))).collect();
        let done = threads::map(items, |(chunk, keep)| self.chunk_forward(chunk, &prefix, keep));
        let (ends, chunks): (Vec<Vec<f32>>, _) = done.into_iter().unzip();
        let ends = ends.concat();
        let mut normal = vec![0.0; ends.len()];
        tower.final_norm.apply(&ends, &mut normal);
        let mut raw = Matrix::zeros(plan.contexts * plan.classes(), tower.projection.outputs());
        tower.projection.forward(&normal, raw.rows(), Activation::Identity, raw.data_mut());
        Run { prefix, chunks, ends, raw }
    }

    /// Gradients with respect to each context and each deep prompt, from those of the raw features.
    pub(super) fn backward(self, run: &Run, d_raw: &[f32]) -> (Vec<Context>, Vec<Matrix>) {
        let Self { tower, plan, .. } = self;
        let (width, sequences) = (tower.width(), plan.contexts * plan.classes());
        let mut d_normal = vec![0.0; sequences * width];
        tower.projection.backward(d_raw, sequences, &mut d_normal);
        let mut d_ends = vec![0.0; sequences * width];
        tower.final_norm.backward(&run.ends, &d_normal, &mut d_ends);

        let mut d_contexts: Vec<Context> = self.contexts.iter().map(Context::zeros_like).collect();
        let mut d_prefix = self.no_prefix_gradient();
        // Groups bound what waits to be added; sums are over chunks in order, whatever the group.
        let items: Vec<(&Chunk, &Tapes)> = plan.chunks.iter().zip(&run.chunks).collect();
        let waiting = (WAITING / plan.contexts).max(1) * rayon::current_num_threads();
        for group in items.chunks(waiting) {
            let done = threads::map(group.to_vec(), |(chunk, kept)| {
                let d = d_ends[chunk.sequences.start * width..chunk.sequences.end * width].to_vec();
                self.chunk_backward(chunk, &run.prefix, kept, d)
            });
            for ((chunk, _), (d, d_prefix_part)) in group.iter().zip(done) {
                add_chunk_gradient(plan, chunk, &d, &mut d_contexts);
                for (sum, part) in d_prefix.iter_mut().zip(&d_prefix_part) {
                    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                }
            }
        }
        let d_deep = self.prefix_backward(&run.prefix, &d_prefix, &mut d_contexts);
        (d_contexts, d_deep)
    }

    /// Zeros for the gradients of the prefixes' keys and values in each layer.
    fn no_prefix_gradient(self) -> Vec<Vec<f32>> {
        let size = self.plan.contexts * self.plan.prefix.len() * 3 * self.tower.width();
        vec![vec![0.0; size]; self.tower.blocks.len()]
    }

    /// The gradients of a chunk's input rows (none where no row came from a context), and of the prefixes' keys and values
    /// in each layer.
    fn chunk_backward(
        self,
        chunk: &Chunk,
        prefix: &PrefixTapes,
        kept: &Tapes,
        mut d: Vec<f32>,
    ) -> (Vec<f32>, Vec<Vec<f32>>) {
        let Self { tower, plan, .. } = self;
        let again = kept.is_empty().then(|| self.chunk_forward(chunk, prefix, Keep::Tapes).1);
        let tapes = again.as_ref().unwrap_or(kept);
        let mut d_prefix = self.no_prefix_gradient();
        for (layer, block) in tower.blocks.iter().enumerate().skip(plan.first_block).rev() {
            let shape = self.chunk_shape(chunk, prefix, layer);
            let ((x, tape), norms) = (&tapes[layer], &tower.norms[layer]);
            let again = OnceCell::new();
            let tape = tape.as_ref().unwrap_or_else(|| again.get_or_init(|| block.tape(x, &shape, norms)));
            let side = Side { prefix: Some(&mut d_prefix[layer]), fixed_input: plan.ends_at(layer), ..Side::default() };
            d = block.backward(x, tape, &shape, norms, d, side);
        }
        (d, d_prefix)
    }

    fn prefix_backward(self, prefix: &PrefixTapes, d_prefix: &[Vec<f32>], d_contexts: &mut [Context]) -> Vec<Matrix> {
        let Self { tower, plan, .. } = self;
        let width = tower.width();
        let starts = plan.prefix_starts();
        let mut d_deep: Vec<Matrix> = self.deep.iter().map(|deep| Matrix::zeros(deep.rows(), width)).collect();
        if plan.prefix.is_empty() {
            return d_deep;
        }
        let mut d = Vec::new();
        for (layer, block) in tower.blocks.iter().enumerate().rev() {
            let shape = tower.shape(&starts, prefix_queries(tower, layer));
            let (x, tape) = &prefix[layer];
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

    /// Without a backward pass, only keys and values stay.
    fn prefix_forward(self, differentiable: bool) -> PrefixTapes {
        let Self { tower, plan, contexts, deep } = self;
        if plan.prefix.is_empty() {
            return Vec::new();
        }
        let (starts, mut scratch) = (plan.prefix_starts(), Scratch::default());
        let mut x = plan.prefix_input(tower, contexts);
        let mut tapes = Vec::with_capacity(tower.blocks.len());
        for (layer, block) in tower.blocks.iter().enumerate() {
            if let Some(deep) = layer.checked_sub(1).and_then(|i| deep.get(i)) {
                for &start in &starts[..plan.contexts] {
                    x[(start + 1) * tower.width()..][..deep.data().len()].copy_from_slice(deep.data());
                }
            }
            let shape = tower.shape(&starts, prefix_queries(tower, layer));
            if differentiable {
                let (y, tape) = block.forward_taped(&x, &shape, &tower.norms[layer]);
                tapes.push((std::mem::replace(&mut x, y), tape));
            } else {
                block.forward(&mut x, &shape, &tower.norms[layer], &mut scratch);
                tapes.push((Vec::new(), Tape::of_keys(std::mem::take(&mut scratch.qkv))));
            }
        }
        tapes
    }

    fn chunk_shape<'a>(self, chunk: &'a Chunk, prefix: &'a PrefixTapes, layer: usize) -> Shape<'a> {
        let Self { tower, plan, .. } = self;
        let queries = if layer + 1 == tower.blocks.len() { Queries::Last } else { Queries::All };
        let shared =
            |(_, tape): &'a (Vec<f32>, Tape)| SharedPrefix { qkv: &tape.qkv, rows: plan.prefix.len(), of: &chunk.of };
        Shape { prefix: prefix.get(layer).map(shared), ..tower.shape(&chunk.starts, queries) }
    }

    /// The residual stream at the ends of a chunk's texts, and what is to be kept.
    fn chunk_forward(self, chunk: &Chunk, prefix: &PrefixTapes, keep: Keep) -> (Vec<f32>, Tapes) {
        let Self { tower, plan, contexts, .. } = self;
        let mut x = plan.chunk_input(tower, contexts, chunk);
        let (mut scratch, mut tapes) = (Scratch::default(), Vec::new());
        for (layer, (block, norms)) in tower.blocks.iter().zip(&tower.norms).enumerate() {
            let shape = self.chunk_shape(chunk, prefix, layer);
            let is_wanted = layer >= plan.first_block;
            if keep == Keep::Tapes && is_wanted {
                let (y, tape) = block.forward_taped(&x, &shape, norms);
                tapes.push((std::mem::replace(&mut x, y), Some(tape)));
                continue;
            }
            if keep != Keep::Nothing {
                tapes.push((if is_wanted { x.clone() } else { Vec::new() }, None));
            }
            block.forward(&mut x, &shape, norms, &mut scratch);
        }
        (x, tapes)
    }

    /// What each chunk may keep of `budget` bytes: inputs first, since a byte of them saves the most, then tapes.
    fn shares(self, budget: usize) -> Vec<Keep> {
        let Self { tower, plan, .. } = self;
        let blocks = &tower.blocks[plan.first_block..];
        let input_bytes = blocks.len() * tower.width() * size_of::<f32>();
        let tape_bytes = blocks.iter().map(|block| block.tape_width() * size_of::<f32>()).sum();
        let mut left = budget;
        let mut keep = vec![Keep::Nothing; plan.chunks.len()];
        for (row_bytes, from, to) in
            [(input_bytes, Keep::Nothing, Keep::Inputs), (tape_bytes, Keep::Inputs, Keep::Tapes)]
        {
            for (keep, chunk) in keep.iter_mut().zip(&plan.chunks).filter(|(keep, _)| **keep == from) {
                let bytes = chunk.rows() * row_bytes;
                if bytes <= left {
                    *keep = to;
                    left -= bytes;
                }
            }
        }
        keep
    }
}

/// Nobody reads the prefix after the last block; only its keys and values there are wanted.
fn prefix_queries(tower: &TextKernels, layer: usize) -> Queries {
    if layer + 1 == tower.blocks.len() { Queries::None } else { Queries::All }
}
