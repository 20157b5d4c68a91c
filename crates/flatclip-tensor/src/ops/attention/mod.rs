//! Multi-head attention over ragged sequences, full or causal, each optionally behind a shared prefix whose keys and
//! values were computed once. Scores live in one small buffer per thread, never in a matrix.

mod plain;
mod tiled;
mod tiled_backward;

use crate::isa::{self, Isa, per_isa};
use crate::simd::{Available, Lanes};
use crate::threads::each;
use plain::Sequence;
use std::ops::Range;

/// Rows that one parallel task of the backward pass handles. Fixed, so that prefix gradients are always summed in the
/// same groups and the bytes do not depend on the number of threads.
const GROUP_ROWS: usize = 64;

/// Which rows of each sequence are queries; keys and values always come from all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// Every row.
    All,
    /// The first row only (the class token of a vision tower).
    First,
    /// The last row only (the end of a text).
    Last,
    /// None: only the keys and values of this layer are needed.
    None,
}

impl Queries {
    /// The query rows of a sequence of `rows` rows.
    pub fn range(self, rows: usize) -> Range<usize> {
        match self {
            Self::All => 0..rows,
            Self::First => 0..1.min(rows),
            Self::Last => rows.saturating_sub(1)..rows,
            Self::None => 0..0,
        }
    }
}

/// Keys and values that several sequences share.
#[derive(Clone, Copy, Debug)]
pub struct SharedPrefix<'a> {
    /// Rows `[q | k | v]` of all prefixes, one after the other.
    pub qkv: &'a [f32],
    /// Rows of each prefix.
    pub rows: usize,
    /// Index of the prefix of each sequence. Ascending.
    pub of: &'a [usize],
}

/// The layout of the sequences and the attention pattern.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Model width, all heads together.
    pub width: usize,
    /// Number of heads.
    pub heads: usize,
    /// First row of each sequence, and the number of rows at the end.
    pub starts: &'a [usize],
    /// Whether a row sees itself and earlier rows only.
    pub causal: bool,
    /// Which rows are queries.
    pub queries: Queries,
    /// The prefixes of the sequences.
    pub prefix: Option<SharedPrefix<'a>>,
}

impl<'a> Shape<'a> {
    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Number of rows of all sequences.
    pub fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Number of query rows.
    pub fn query_count(&self) -> usize {
        match self.queries {
            Queries::All => self.rows(),
            Queries::First | Queries::Last => self.sequences(),
            Queries::None => 0,
        }
    }

    /// The query rows, in order.
    pub fn query_rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.starts.windows(2).flat_map(|w| self.queries.range(w[1] - w[0]).map(move |row| w[0] + row))
    }

    fn sequence<'b>(&self, index: usize, qkv: &'b [f32]) -> Sequence<'b, f32>
    where
        'a: 'b,
    {
        let stride = 3 * self.width;
        let prefix = self.prefix.map_or(&[][..], |p| &p.qkv[p.of[index] * p.rows * stride..][..p.rows * stride]);
        let qkv = &qkv[self.starts[index] * stride..self.starts[index + 1] * stride];
        Sequence { qkv, prefix, width: self.width, heads: self.heads, causal: self.causal }
    }

    fn length(&self, index: usize) -> usize {
        self.starts[index + 1] - self.starts[index]
    }

    /// The query rows of sequence `index`.
    fn queries_of(&self, index: usize) -> Range<usize> {
        self.queries.range(self.length(index))
    }

    /// Runs of sequences behind the same prefix with about [`GROUP_ROWS`] rows.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let prefix = |index: usize| self.prefix.map_or(0, |p| p.of[index]);
        for index in 0..self.sequences() {
            match groups.last_mut() {
                Some(group)
                    if prefix(group.start) == prefix(index)
                        && self.starts[index] - self.starts[group.start] < GROUP_ROWS =>
                {
                    group.end = index + 1;
                }
                _ => groups.push(index..index + 1),
            }
        }
        groups
    }
}

/// `out[queries, width]`: the attention of every query row, heads side by side.
///
/// # Panics
/// If a slice does not have the size that `shape` says.
pub fn forward(shape: &Shape<'_>, qkv: &[f32], out: &mut [f32]) {
    let width = shape.width;
    assert!(qkv.len() == shape.rows() * 3 * width && out.len() == shape.query_count() * width);
    let tasks: Vec<_> = shape
        .groups()
        .into_iter()
        .scan(out, |rest, group| {
            let own: usize = group.clone().map(|s| shape.queries_of(s).len()).sum();
            Some((group, take(rest, own * width)))
        })
        .collect();
    each(tasks, |(group, mut out): (Range<usize>, &mut [f32])| {
        for index in group {
            let (sequence, queries) = (shape.sequence(index, qkv), shape.queries_of(index));
            let out = take(&mut out, queries.len() * width);
            let run = if in_tiles(&queries) { tiled::forward } else { rows_forward };
            run(&sequence, queries, out);
        }
    });
}

/// Minimum number of queries of a sequence for which packing its keys and values is faster.
const TILED_FROM: usize = 8;

fn in_tiles(queries: &Range<usize>) -> bool {
    queries.len() >= TILED_FROM && isa::current() != Isa::Plain
}

per_isa! {
    /// Row by row, which is best for the few rows of a class name.
    fn rows_forward(sequence: &Sequence<'_, f32>, queries: Range<usize>, out: &mut [f32]) = rows_forward_for;
}
per_isa! {
    fn rows_backward(
        sequence: &Sequence<'_, f32>, queries: Range<usize>, d_out: &[f32], d_qkv: &mut [f32], d_prefix: &mut [f32],
    ) = rows_backward_for;
}

/// The plain loops; `L` only selects the instruction set that the compiler may use.
#[inline(always)]
fn rows_forward_for<L: Lanes>(_: Available<L>, sequence: &Sequence<'_, f32>, queries: Range<usize>, out: &mut [f32]) {
    let mut p = Vec::new();
    for (row, out) in queries.zip(out.chunks_exact_mut(sequence.width)) {
        sequence.forward(row, &mut p, out);
    }
}

#[inline(always)]
fn rows_backward_for<L: Lanes>(
    _: Available<L>,
    sequence: &Sequence<'_, f32>,
    queries: Range<usize>,
    d_out: &[f32],
    d_qkv: &mut [f32],
    d_prefix: &mut [f32],
) {
    let (mut p, mut dp) = (Vec::new(), Vec::new());
    for (row, d_out) in queries.zip(d_out.chunks_exact(sequence.width)) {
        sequence.backward(row, d_out, d_qkv, d_prefix, &mut p, &mut dp);
    }
}

/// The input gradient. `d_qkv[rows, 3 width]` is overwritten; the keys' and values' gradients of the prefixes are added
/// to `d_prefix` (laid out as the prefix itself), sequences in order.
///
/// # Panics
/// If a slice does not have the size that `shape` says.
pub fn backward(shape: &Shape<'_>, qkv: &[f32], d_out: &[f32], d_qkv: &mut [f32], d_prefix: Option<&mut [f32]>) {
    let (width, stride) = (shape.width, 3 * shape.width);
    assert!(
        qkv.len() == shape.rows() * stride && d_qkv.len() == qkv.len() && d_out.len() == shape.query_count() * width
    );
    let prefix_size = shape.prefix.map_or(0, |p| p.rows * stride);
    let mut before = 0;
    let tasks: Vec<_> = shape
        .groups()
        .into_iter()
        .scan(d_qkv, |rest, group| {
            let rows: usize = group.clone().map(|s| shape.length(s)).sum();
            let own: usize = group.clone().map(|s| shape.queries_of(s).len()).sum();
            let d_out = &d_out[before * width..(before + own) * width];
            before += own;
            Some((group, d_out, take(rest, rows * stride)))
        })
        .collect();
    let partial = each(tasks, |(group, d_out, d_qkv): (Range<usize>, &[f32], &mut [f32])| {
        d_qkv.fill(0.0);
        let mut d_prefix = vec![0.0; prefix_size];
        let (first, mut before) = (group.start, 0);
        for index in group {
            let sequence = shape.sequence(index, qkv);
            let at = (shape.starts[index] - shape.starts[first]) * stride;
            let d_qkv = &mut d_qkv[at..at + shape.length(index) * stride];
            let queries = shape.queries_of(index);
            let d_out = &d_out[before * width..(before + queries.len()) * width];
            before += queries.len();
            let run = if in_tiles(&queries) { tiled_backward::backward } else { rows_backward };
            run(&sequence, queries, d_out, d_qkv, &mut d_prefix);
        }
        (shape.prefix.map_or(0, |p| p.of[first]), d_prefix)
    });
    if let Some(d_prefix) = d_prefix {
        for (prefix, part) in partial {
            let target = &mut d_prefix[prefix * prefix_size..(prefix + 1) * prefix_size];
            target.iter_mut().zip(&part).for_each(|(t, p)| *t += p);
        }
    }
}

/// Cuts the first `count` values off `rest`.
fn take<'a>(rest: &mut &'a mut [f32], count: usize) -> &'a mut [f32] {
    let (head, tail) = std::mem::take(rest).split_at_mut(count);
    *rest = tail;
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::values;

    fn floats(seed: u64, count: usize) -> Vec<f32> {
        values(seed, count).iter().map(|&x| x as f32).collect()
    }

    /// Every sequence with a copy of its prefix in front: the reference for shared prefixes.
    fn unshared(shape: &Shape<'_>, qkv: &[f32]) -> (Vec<f32>, Vec<usize>) {
        let stride = 3 * shape.width;
        let (mut rows, mut starts) = (Vec::new(), vec![0]);
        for index in 0..shape.sequences() {
            let sequence = shape.sequence(index, qkv);
            rows.extend_from_slice(sequence.prefix);
            rows.extend_from_slice(sequence.qkv);
            starts.push(rows.len() / stride);
        }
        (rows, starts)
    }

    #[test]
    fn a_shared_prefix_equals_a_copied_one_in_value_and_gradient() {
        let (width, heads, prefix_rows) = (16, 2, 3);
        let starts: Vec<usize> =
            (0..=60).scan(0, |at, i| (i > 0).then(|| *at += 1 + i % 5).or(Some(())).map(|()| *at)).collect();
        let of: Vec<usize> = (0..60).map(|i| i / 30).collect();
        let (prefix, qkv) = (floats(1, 2 * prefix_rows * 3 * width), floats(2, starts[60] * 3 * width));
        for queries in [Queries::All, Queries::Last] {
            let shape = Shape {
                width,
                heads,
                starts: &starts,
                causal: true,
                queries,
                prefix: Some(SharedPrefix { qkv: &prefix, rows: prefix_rows, of: &of }),
            };
            let d_out = floats(3, shape.query_count() * width);
            let mut out = vec![0.0; d_out.len()];
            forward(&shape, &qkv, &mut out);
            let (mut d_qkv, mut d_prefix) = (vec![f32::NAN; qkv.len()], vec![0.0; prefix.len()]);
            backward(&shape, &qkv, &d_out, &mut d_qkv, Some(&mut d_prefix));

            let (rows, copied_starts) = unshared(&shape, &qkv);
            let full = Shape { starts: &copied_starts, queries: Queries::All, prefix: None, ..shape };
            let mut full_out = vec![0.0; full.rows() * width];
            forward(&full, &rows, &mut full_out);
            let mut full_d = vec![0.0; full_out.len()];
            let mut before = 0;
            for index in 0..60 {
                for row in shape.queries_of(index) {
                    let at = (copied_starts[index] + prefix_rows + row) * width;
                    full_d[at..at + width].copy_from_slice(&d_out[before * width..][..width]);
                    let same = full_out[at..at + width].iter().zip(&out[before * width..]);
                    same.for_each(|(a, b)| assert!((a - b).abs() < 1e-5));
                    before += 1;
                }
            }
            let mut full_d_rows = vec![0.0; rows.len()];
            backward(&full, &rows, &full_d, &mut full_d_rows, None);
            let mut expected = vec![0.0; prefix.len()];
            for index in 0..60 {
                let at = copied_starts[index] * 3 * width;
                let own = at + prefix_rows * 3 * width;
                let to = of[index] * prefix_rows * 3 * width;
                (0..prefix_rows * 3 * width).for_each(|i| expected[to + i] += full_d_rows[at + i]);
                let d = &d_qkv[starts[index] * 3 * width..starts[index + 1] * 3 * width];
                full_d_rows[own..].iter().zip(d).for_each(|(a, b)| assert!((a - b).abs() < 1e-5));
            }
            expected.iter().zip(&d_prefix).for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{a} {b}"));
        }
    }

    #[test]
    fn tiles_agree_with_rows_on_ragged_shapes() {
        for (rows, prefix_rows, heads, size, causal) in [
            (197, 0, 2, 64, false),
            (50, 0, 3, 20, false),
            (8, 5, 2, 16, true),
            (33, 17, 1, 7, true),
            (77, 0, 2, 64, true),
        ] {
            let width = heads * size;
            let (qkv, prefix) = (floats(1, rows * 3 * width), floats(2, prefix_rows * 3 * width));
            let sequence = Sequence { qkv: &qkv, prefix: &prefix, width, heads, causal };
            let mut tiles = vec![f32::NAN; rows * width];
            tiled::forward(&sequence, 0..rows, &mut tiles);
            let mut row_out = vec![0.0; width];
            for row in 0..rows {
                sequence.forward(row, &mut Vec::new(), &mut row_out);
                let tile = &tiles[row * width..(row + 1) * width];
                tile.iter().zip(&row_out).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "row {row}: {a} {b}"));
            }
            let d_out = floats(3, rows * width);
            let gradient = |tiles: bool| {
                let (mut d_qkv, mut d_prefix) = (vec![0.0; qkv.len()], vec![0.0; prefix.len()]);
                let run = if tiles { tiled_backward::backward } else { rows_backward };
                run(&sequence, 0..rows, &d_out, &mut d_qkv, &mut d_prefix);
                [d_qkv, d_prefix].concat()
            };
            let (tiled, by_rows) = (gradient(true), gradient(false));
            for (i, (a, b)) in tiled.iter().zip(&by_rows).enumerate() {
                assert!((a - b).abs() < 1e-5, "{rows} rows, gradient {i}: {a} {b}");
            }
            // A row does not depend on the tile it is in.
            let mut part = vec![0.0; (rows - 1) * width];
            tiled::forward(&sequence, 1..rows, &mut part);
            assert_eq!(part, tiles[width..]);
        }
    }

    #[test]
    fn the_first_row_alone_equals_the_first_of_all() {
        let starts = [0, 5, 9];
        let qkv = floats(1, 9 * 24);
        let shape = Shape { width: 8, heads: 2, starts: &starts, causal: false, queries: Queries::All, prefix: None };
        let (mut all, mut first) = (vec![0.0; 72], vec![0.0; 16]);
        forward(&shape, &qkv, &mut all);
        forward(&Shape { queries: Queries::First, ..shape }, &qkv, &mut first);
        assert_eq!((&all[..8], &all[40..48]), (&first[..8], &first[8..]));
    }
}
