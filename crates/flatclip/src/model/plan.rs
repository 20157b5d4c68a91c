//! How prompts are cut: into what all classes share and what each has to itself, and the latter into chunks.

use super::context::{Context, Row, Source};
use super::text::TextKernels;
use crate::{Error, Result};
use std::ops::Range;

/// Most rows of a chunk, but for the end of its last text: one block of rows of the matrix products.
const CHUNK_ROWS: usize = 224;

/// Which positions are shared, and which each class has to itself.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) prefix: Vec<Row>,
    tails: Vec<Vec<Row>>,
    pub(super) contexts: usize,
    pub(super) chunks: Vec<Chunk>,
    /// The first block that rows of chunks are differentiated through.
    pub(super) first_block: usize,
}

/// A run of sequences, context-major: sequence `s` is class `s % K` behind context `s / K`.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) sequences: Range<usize>,
    /// First row of each sequence, and the number of rows at the end.
    pub(super) starts: Vec<usize>,
    /// The context of each sequence.
    pub(super) of: Vec<usize>,
}

impl Chunk {
    pub(super) fn rows(&self) -> usize {
        self.starts[self.of.len()]
    }
}

impl Plan {
    /// Cuts whole prompts (one per class) into what they share and the rest. Only a causal tower shares anything: elsewhere a
    /// position sees those of the class.
    pub(crate) fn new(tower: &TextKernels, prompts: Vec<Vec<Row>>, contexts: &[Context]) -> Result<Self> {
        if prompts.is_empty() || contexts.is_empty() {
            return Err(Error::config("text tower", "nothing to encode: no texts or no contexts"));
        }
        for (class, prompt) in prompts.iter().enumerate() {
            if prompt.len() < 2 || prompt.len() > tower.config.context_length {
                let reason = format!(
                    "text {class} has {} positions, expected 2 to {}; shorten the name or the context",
                    prompt.len(),
                    tower.config.context_length
                );
                return Err(Error::config("class tokens", reason));
            }
            for row in prompt {
                if let Source::Token(id) = row.source {
                    tower.check_id(id)?;
                }
            }
        }
        let class_specific = contexts.iter().any(|context| context.classes.is_some());
        let shared = if tower.config.form.causal { shared_positions(&prompts, class_specific) } else { 0 };
        let prefix = prompts.first().map(|prompt| prompt[..shared].to_vec()).unwrap_or_default();
        let tails: Vec<Vec<Row>> = prompts.into_iter().map(|prompt| prompt[shared..].to_vec()).collect();
        let chunks = cut(&tails, contexts.len());
        Ok(Self { prefix, tails, contexts: contexts.len(), chunks, first_block: 0 })
    }

    /// With gradients of chunks that stop at this block.
    pub(super) fn differentiated_from(self, first_block: usize) -> Self {
        Self { first_block, ..self }
    }

    pub(crate) fn classes(&self) -> usize {
        self.tails.len()
    }

    /// Whether the gradients of a chunk's rows below `block` are not needed: it is where they stop, or the first one, and no
    /// row comes from a context.
    pub(super) fn ends_at(&self, block: usize) -> bool {
        block == self.first_block && (block > 0 || self.own_rows_are_fixed())
    }

    fn own_rows_are_fixed(&self) -> bool {
        !self.tails.iter().flatten().any(|row| matches!(row.source, Source::Context(_)))
    }

    pub(super) fn prefix_starts(&self) -> Vec<usize> {
        (0..=self.contexts).map(|i| i * self.prefix.len()).collect()
    }

    /// The embedded rows of all prefixes.
    pub(super) fn prefix_input(&self, tower: &TextKernels, contexts: &[Context]) -> Vec<f32> {
        let mut x = Vec::with_capacity(self.contexts * self.prefix.len() * tower.width());
        for context in contexts {
            push_rows(tower, &self.prefix, context, 0, &mut x);
        }
        x
    }

    /// The embedded rows of a chunk.
    pub(super) fn chunk_input(&self, tower: &TextKernels, contexts: &[Context], chunk: &Chunk) -> Vec<f32> {
        let mut x = Vec::with_capacity(chunk.rows() * tower.width());
        for sequence in chunk.sequences.clone() {
            let (context, class) = (sequence / self.classes(), sequence % self.classes());
            push_rows(tower, &self.tails[class], &contexts[context], class, &mut x);
        }
        x
    }
}

/// Positions equal in all prompts. Every prompt keeps at least its end, and a class-specific context is never shared.
fn shared_positions(prompts: &[Vec<Row>], class_specific: bool) -> usize {
    let Some(first) = prompts.first() else { return 0 };
    let common = |prompt: &Vec<Row>| {
        let same = prompt
            .iter()
            .zip(first)
            .take_while(|(a, b)| a == b && !(class_specific && matches!(a.source, Source::Context(_))));
        same.count().min(prompt.len() - 1)
    };
    prompts.iter().map(common).min().unwrap_or(0)
}

/// Chunks of about equal size, at most about [`CHUNK_ROWS`] rows; several are an even number, since cores mostly are. The
/// rule does not depend on threads, so sums over chunks are always the same.
fn cut(tails: &[Vec<Row>], contexts: usize) -> Vec<Chunk> {
    let rows = contexts * tails.iter().map(Vec::len).sum::<usize>();
    let count = match rows.div_ceil(CHUNK_ROWS) {
        0 | 1 => 1,
        several => several.next_multiple_of(2),
    };
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut row = 0;
    for sequence in 0..contexts * tails.len() {
        // The chunk that the sequence's first row falls into.
        if row * count / rows.max(1) >= chunks.len() {
            chunks.push(Chunk { sequences: sequence..sequence, starts: vec![0], of: Vec::new() });
        }
        let length = tails[sequence % tails.len()].len();
        row += length;
        if let Some(chunk) = chunks.last_mut() {
            chunk.starts.push(chunk.rows() + length);
            chunk.of.push(sequence / tails.len());
            chunk.sequences.end = sequence + 1;
        }
    }
    chunks
}

fn push_rows(tower: &TextKernels, rows: &[Row], context: &Context, class: usize, x: &mut Vec<f32>) {
    for row in rows {
        let embedding = match row.source {
            Source::Token(id) => tower.token_row(id),
            Source::Context(token) => context.row(class, token),
        };
        x.extend(embedding.iter().zip(tower.position_row(row.position)).map(|(x, p)| x + p));
    }
}

/// Adds the gradients of a chunk's rows to the contexts that they came from.
pub(super) fn add_chunk_gradient(plan: &Plan, chunk: &Chunk, d: &[f32], d_contexts: &mut [Context]) {
    if d.is_empty() {
        return; // no row came from a context
    }
    for (sequence, &start) in chunk.sequences.clone().zip(&chunk.starts) {
        let (context, class) = (sequence / plan.classes(), sequence % plan.classes());
        let d_context = &mut d_contexts[context];
        let d = &d[start * d_context.width..];
        add_rows(&plan.tails[class], class, d, d_context);
    }
}

/// Adds the gradients of the rows that came from the context.
pub(super) fn add_rows(rows: &[Row], class: usize, d: &[f32], d_context: &mut Context) {
    for (row, d) in rows.iter().zip(d.chunks_exact(d_context.width.max(1))) {
        if let Source::Context(token) = row.source {
            let at = d_context.offset(class, token);
            d_context.data[at..].iter_mut().zip(d).for_each(|(to, from)| *to += from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_of_equal_size_and_cover_each_sequence_once() {
        for (classes, contexts) in [(1, 1), (100, 1), (103, 3), (1000, 1), (7, 60)] {
            let row = Row { source: Source::Token(0), position: 0 };
            let tails: Vec<Vec<Row>> = (0..classes).map(|i| vec![row; 3 + i % 4]).collect();
            let rows = contexts * tails.iter().map(Vec::len).sum::<usize>();
            let chunks = cut(&tails, contexts);
            assert!(chunks.len() == 1 || chunks.len().is_multiple_of(2), "{} chunks", chunks.len());
            let mut next = 0;
            for chunk in &chunks {
                assert_eq!(chunk.sequences.start, next);
                assert_eq!(chunk.of, chunk.sequences.clone().map(|s| s / classes).collect::<Vec<_>>());
                assert!(chunk.rows().abs_diff(rows / chunks.len()) <= 7, "{} of {rows} rows", chunk.rows());
                next = chunk.sequences.end;
            }
            assert_eq!(next, classes * contexts);
        }
    }
}
