//! The fast version for many queries of one sequence: tiles of queries times panels of keys, softmax on the scores while
//! they are in the L1 cache, and the result times panels of values.
//!
//! Scores are stored in the layout of the left operand of the second product, so they need not be packed again.

use super::plain::Sequence;
use crate::isa::per_isa;
use crate::math;
use crate::simd::{Available, Lanes};
use std::cell::RefCell;
use std::ops::Range;

/// Queries per tile: with two vectors of keys each, the sums fill the AVX2 registers.
pub(super) const ROWS: usize = 6;

/// Packed operands and scores of one head; reused by a thread.
#[derive(Default)]
struct Work {
    keys: Vec<f32>,
    values: Vec<f32>,
    query: Vec<f32>,
    scores: Vec<f32>,
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::default();
}

per_isa! {
    /// `out[queries, width]`: the attention of consecutive rows of one sequence.
    pub(super) fn forward(sequence: &Sequence<'_, f32>, queries: Range<usize>, out: &mut [f32]) = sequence_lanes;
}

#[inline(always)]
fn sequence_lanes<L: Lanes>(lanes: Available<L>, sequence: &Sequence<'_, f32>, queries: Range<usize>, out: &mut [f32]) {
    // Taken and put back instead of borrowed in a closure, which would be compiled without this function's target features.
    let mut work = WORK.take();
    for head in 0..sequence.heads {
        head_lanes(lanes, sequence, head, queries.clone(), &mut work, out);
    }
    WORK.set(work);
}

#[inline(always)]
fn head_lanes<L: Lanes>(
    lanes: Available<L>,
    sequence: &Sequence<'_, f32>,
    head: usize,
    queries: Range<usize>,
    work: &mut Work,
    out: &mut [f32],
) {
    let (width, size, panel) = (sequence.width, sequence.width / sequence.heads, 2 * L::WIDTH);
    let (depth, columns) = (size.next_multiple_of(L::WIDTH), size.next_multiple_of(panel));
    let keys = (sequence.prefix_rows() + sequence.rows()).next_multiple_of(panel);
    pack_across::<L>(sequence, 1, head, keys, &mut work.keys);
    pack_along::<L>(sequence, 2, head, keys, &mut work.values);
    work.query.resize(ROWS * depth, 0.0);
    work.scores.resize(ROWS * keys, 0.0);
    for row in queries.clone().step_by(ROWS) {
        let rows = ROWS.min(queries.end - row);
        let first_query = &sequence.qkv[row * 3 * width..];
        pack_rows::<L>(first_query, 3 * width, head * size, size, rows, sequence.scale(), &mut work.query);
        let seen = |r: usize| sequence.prefix_rows() + sequence.seen(row + r.min(rows - 1));
        // Keys after the last one that the tile sees are skipped.
        let keys_seen = seen(rows - 1).next_multiple_of(panel);
        products(lanes, &work.query, &work.keys, depth, keys_seen, &mut work.scores);
        let mut inverse = [0.0; ROWS];
        for r in 0..ROWS {
            inverse[r] = exponentials(lanes, &mut work.scores[..ROWS * keys_seen], r, seen(r));
        }
        for column in (0..columns).step_by(panel) {
            // SAFETY: `[keys / W][ROWS][W]` weights, and at least `keys_seen` rows of `2 W` in each panel of values.
            let sums = unsafe { tile(lanes, work.scores.as_ptr(), work.values.as_ptr().add(column * keys), keys_seen) };
            for r in 0..rows {
                let at = (row - queries.start + r) * width + head * size + column;
                put_row(sums[r], inverse[r], &mut out[at..], size - column);
            }
        }
    }
}

/// Keys (`part = 1`) or values (`part = 2`) as `[panel of 2 W rows][depth][2 W]`, zeros beyond the edges.
#[inline(always)]
pub(super) fn pack_across<L: Lanes>(
    sequence: &Sequence<'_, f32>,
    part: usize,
    head: usize,
    keys: usize,
    packed: &mut Vec<f32>,
) {
    let panel = 2 * L::WIDTH;
    let depth = (sequence.width / sequence.heads).next_multiple_of(L::WIDTH);
    packed.clear();
    packed.resize(keys * depth, 0.0);
    for (j, row) in sequence.parts(part, head, sequence.rows()).enumerate() {
        let to = &mut packed[j / panel * panel * depth + j % panel..];
        for (i, &x) in row.iter().enumerate() {
            to[i * panel] = x;
        }
    }
}

/// The same as `[panel of 2 W columns][keys][2 W]`.
#[inline(always)]
pub(super) fn pack_along<L: Lanes>(
    sequence: &Sequence<'_, f32>,
    part: usize,
    head: usize,
    keys: usize,
    packed: &mut Vec<f32>,
) {
    let panel = 2 * L::WIDTH;
    let columns = (sequence.width / sequence.heads).next_multiple_of(panel);
    packed.clear();
    packed.resize(keys * columns, 0.0);
    for (j, row) in sequence.parts(part, head, sequence.rows()).enumerate() {
        for (c, part) in row.chunks(panel).enumerate() {
            packed[(c * keys + j) * panel..][..part.len()].copy_from_slice(part);
        }
    }
}

/// Packs `size` values at `at` of `rows` rows, `stride` apart, times `scale`, as `[depth / W][ROWS][W]`. A short tile is padded
/// with copies of its last row, whose results are dropped.
#[inline(always)]
pub(super) fn pack_rows<L: Lanes>(
    from: &[f32],
    stride: usize,
    at: usize,
    size: usize,
    rows: usize,
    scale: f32,
    packed: &mut [f32],
) {
    for r in 0..ROWS {
        let row = &from[r.min(rows - 1) * stride + at..][..size];
        for (group, part) in row.chunks(L::WIDTH).enumerate() {
            let to = &mut packed[(group * ROWS + r) * L::WIDTH..][..L::WIDTH];
            to[part.len()..].fill(0.0);
            to.iter_mut().zip(part).for_each(|(to, x)| *to = x * scale);
        }
    }
}

/// The product of a tile of rows with panels of keys, `[keys / W][ROWS][W]`: the layout of the left operand of [`tile`].
#[inline(always)]
pub(super) fn products<L: Lanes>(
    lanes: Available<L>,
    rows: &[f32],
    panels: &[f32],
    depth: usize,
    keys: usize,
    out: &mut [f32],
) {
    let panel = 2 * L::WIDTH;
    assert!(rows.len() >= ROWS * depth && panels.len() >= keys * depth && out.len() >= ROWS * keys);
    for (panels, out) in panels.chunks_exact(depth * panel).zip(out.chunks_exact_mut(ROWS * panel)).take(keys / panel) {
        // SAFETY: `[depth / W][ROWS][W]` rows, `[depth][2 W]` keys, room for two groups of `[ROWS][W]` sums.
        unsafe {
            let sums = tile(lanes, rows.as_ptr(), panels.as_ptr(), depth);
            for r in 0..ROWS {
                sums[r][0].store(out.as_mut_ptr().add(r * L::WIDTH));
                sums[r][1].store(out.as_mut_ptr().add((ROWS + r) * L::WIDTH));
            }
        }
    }
}

/// Row `r` of the scores becomes `exp(score - largest)`, zero from `seen` on; returns one over the sum.
#[inline(always)]
pub(super) fn exponentials<L: Lanes>(lanes: Available<L>, scores: &mut [f32], r: usize, seen: usize) -> f32 {
    assert!(r < ROWS);
    let groups = scores.len() / (ROWS * L::WIDTH);
    let place = |group: usize| (group * ROWS + r) * L::WIDTH;
    for j in seen..groups * L::WIDTH {
        scores[place(j / L::WIDTH) + j % L::WIDTH] = f32::NEG_INFINITY;
    }
    let mut largest = lanes.splat(f32::NEG_INFINITY);
    for group in 0..groups {
        // SAFETY: a whole vector at each place.
        largest = largest.max(unsafe { lanes.load(scores.as_ptr().add(place(group))) });
    }
    let largest = lanes.splat(largest.largest());
    let mut sum = lanes.splat(0.0);
    for group in 0..groups {
        // SAFETY: as above.
        unsafe {
            let p = math::exp(lanes.load(scores.as_ptr().add(place(group))).sub(largest));
            p.store(scores.as_mut_ptr().add(place(group)));
            sum = sum.add(p);
        }
    }
    1.0 / sum.total()
}

/// `ROWS x 2 W` sums over `depth`.
///
/// # Safety
/// `a` holds `[depth / W][ROWS][W]` values, `b` `[depth][2 W]`.
#[inline(always)]
pub(super) unsafe fn tile<L: Lanes>(lanes: Available<L>, a: *const f32, b: *const f32, depth: usize) -> [[L; 2]; ROWS] {
    let mut sums = [[lanes.splat(0.0); 2]; ROWS];
    for group in 0..depth / L::WIDTH {
        for i in 0..L::WIDTH {
            // SAFETY: inside the lengths that the caller promises.
            unsafe {
                let b = b.add((group * L::WIDTH + i) * 2 * L::WIDTH);
                let (b0, b1) = (lanes.load(b), lanes.load(b.add(L::WIDTH)));
                for r in 0..ROWS {
                    let x = lanes.splat(*a.add((group * ROWS + r) * L::WIDTH + i));
                    sums[r][0] = x.mul_add(b0, sums[r][0]);
                    sums[r][1] = x.mul_add(b1, sums[r][1]);
                }
            }
        }
    }
    sums
}

/// A row of a tile times `factor`, at most `count` values of it.
#[inline(always)]
pub(super) fn put_row<L: Lanes>(sums: [L; 2], factor: f32, to: &mut [f32], count: usize) {
    put(sums[0].mul(sums[0].like(factor)), to, count);
    if count > L::WIDTH {
        put(sums[1].mul(sums[1].like(factor)), &mut to[L::WIDTH..], count - L::WIDTH);
    }
}

/// Writes the first `count` lanes (at most a vector) to `to`.
#[inline(always)]
fn put<L: Lanes>(x: L, to: &mut [f32], count: usize) {
    if count >= L::WIDTH {
        let to = &mut to[..L::WIDTH];
        // SAFETY: a whole vector.
        unsafe { x.store(to.as_mut_ptr()) };
    } else {
        to[..count].copy_from_slice(&x.to_array()[..count]);
    }
}
