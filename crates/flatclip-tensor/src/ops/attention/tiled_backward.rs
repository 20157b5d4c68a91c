//! The input gradient for many queries of one sequence, on the tiles of [`super::tiled`]. Scores are computed again, a tile of
//! queries at a time; per head, with `P` the weights and `O = P V`:
//!
//! ```text
//! dP = dO Vᵀ     dS = P (dP - sum(P dP))     dQ = dS K scale     dK = dSᵀ Q scale     dV = Pᵀ dO
//! ```

use super::plain::Sequence;
use super::tiled::{ROWS, exponentials, pack_across, pack_along, pack_rows, products, put_row, tile};
use crate::isa::per_isa;
use crate::simd::{Available, Lanes};
use std::cell::RefCell;
use std::ops::Range;

/// Packed operands, one tile of attention weights and score gradients, and the sums of one head; reused by a thread.
#[derive(Default)]
struct Work {
    keys: Vec<f32>,
    values: Vec<f32>,
    keys_along: Vec<f32>,
    query: Vec<f32>,
    d_out: Vec<f32>,
    weights: Vec<f32>,
    slopes: Vec<f32>,
    d_keys: Vec<f32>,
    d_values: Vec<f32>,
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::default();
}

per_isa! {
    /// Adds the gradients of consecutive queries to `d_qkv` (own rows) and `d_prefix` (prefix rows).
    pub(super) fn backward(
        sequence: &Sequence<'_, f32>, queries: Range<usize>, d_out: &[f32], d_qkv: &mut [f32], d_prefix: &mut [f32],
    ) = sequence_lanes;
}

#[inline(always)]
fn sequence_lanes<L: Lanes>(
    lanes: Available<L>,
    sequence: &Sequence<'_, f32>,
    queries: Range<usize>,
    d_out: &[f32],
    d_qkv: &mut [f32],
    d_prefix: &mut [f32],
) {
    // Taken and put back instead of borrowed in a closure, which would be compiled without this function's target features.
    let mut work = WORK.take();
    for head in 0..sequence.heads {
        head_lanes(lanes, sequence, head, queries.clone(), d_out, d_qkv, &mut work);
        add_sums::<L>(sequence, head, &work, d_qkv, d_prefix);
    }
    WORK.set(work);
}

/// Adds `dQ` to `d_qkv`, and `dK` and `dV` of all rows to the sums in `work`.
#[inline(always)]
fn head_lanes<L: Lanes>(
    lanes: Available<L>,
    sequence: &Sequence<'_, f32>,
    head: usize,
    queries: Range<usize>,
    d_out: &[f32],
    d_qkv: &mut [f32],
    work: &mut Work,
) {
    let (width, size, panel) = (sequence.width, sequence.width / sequence.heads, 2 * L::WIDTH);
    let depth = size.next_multiple_of(L::WIDTH);
    let keys = (sequence.prefix_rows() + sequence.rows()).next_multiple_of(panel);
    pack_across::<L>(sequence, 1, head, keys, &mut work.keys);
    pack_across::<L>(sequence, 2, head, keys, &mut work.values);
    pack_along::<L>(sequence, 1, head, keys, &mut work.keys_along);
    work.query.resize(ROWS * depth, 0.0);
    work.d_out.resize(ROWS * depth, 0.0);
    work.weights.resize(ROWS * keys, 0.0);
    work.slopes.resize(ROWS * keys, 0.0);
    for sums in [&mut work.d_keys, &mut work.d_values] {
        sums.clear();
        sums.resize(keys * depth, 0.0);
    }
    for row in queries.clone().step_by(ROWS) {
        let rows = ROWS.min(queries.end - row);
        let first_query = &sequence.qkv[row * 3 * width..];
        pack_rows::<L>(first_query, 3 * width, head * size, size, rows, sequence.scale(), &mut work.query);
        let d_rows = &d_out[(row - queries.start) * width..];
        pack_rows::<L>(d_rows, width, head * size, size, rows, 1.0, &mut work.d_out);
        silence_copies::<L>(&mut work.d_out, rows);
        let seen = |r: usize| sequence.prefix_rows() + sequence.seen(row + r.min(rows - 1));
        let keys_seen = seen(rows - 1).next_multiple_of(panel);
        products(lanes, &work.query, &work.keys, depth, keys_seen, &mut work.weights);
        products(lanes, &work.d_out, &work.values, depth, keys_seen, &mut work.slopes);
        for r in 0..ROWS {
            let weights = &mut work.weights[..ROWS * keys_seen];
            let inverse = exponentials(lanes, weights, r, seen(r));
            softmax_slopes(lanes, weights, &mut work.slopes[..ROWS * keys_seen], r, inverse);
        }
        add_outer(lanes, &work.slopes, &work.query, keys_seen, depth, &mut work.d_keys);
        add_outer(lanes, &work.weights, &work.d_out, keys_seen, depth, &mut work.d_values);
        for column in (0..size).step_by(panel) {
            // SAFETY: `[keys / W][ROWS][W]` slopes, and at least `keys_seen` rows of `2 W` in each panel of keys.
            let sums =
                unsafe { tile(lanes, work.slopes.as_ptr(), work.keys_along.as_ptr().add(column * keys), keys_seen) };
            for r in 0..rows {
                let at = (row + r) * 3 * width + head * size + column;
                put_row(sums[r], sequence.scale(), &mut d_qkv[at..], size - column);
            }
        }
    }
}

/// The padding rows of a short tile have zero gradients, so they add nothing to the sums.
#[inline(always)]
fn silence_copies<L: Lanes>(d_out: &mut [f32], rows: usize) {
    for group in d_out.chunks_exact_mut(ROWS * L::WIDTH) {
        group[rows * L::WIDTH..].fill(0.0);
    }
}

/// Row `r`: exponentials become weights `p`, and `dp` becomes `p (dp - sum(p dp))`.
#[inline(always)]
fn softmax_slopes<L: Lanes>(lanes: Available<L>, weights: &mut [f32], slopes: &mut [f32], r: usize, inverse: f32) {
    assert!(r < ROWS && slopes.len() >= weights.len());
    let groups = weights.len() / (ROWS * L::WIDTH);
    let place = |group: usize| (group * ROWS + r) * L::WIDTH;
    let mut along = lanes.splat(0.0);
    for group in 0..groups {
        // SAFETY: a whole vector at each place of both, by the lengths just checked.
        unsafe {
            let p = lanes.load(weights.as_ptr().add(place(group))).mul(lanes.splat(inverse));
            p.store(weights.as_mut_ptr().add(place(group)));
            along = p.mul_add(lanes.load(slopes.as_ptr().add(place(group))), along);
        }
    }
    let along = lanes.splat(along.total());
    for group in 0..groups {
        // SAFETY: as above.
        unsafe {
            let (p, dp) =
                (lanes.load(weights.as_ptr().add(place(group))), lanes.load(slopes.as_ptr().add(place(group))));
            p.mul(dp.sub(along)).store(slopes.as_mut_ptr().add(place(group)));
        }
    }
}

/// `sums[keys, depth] += leftᵀ · rows`, where `left` is `[keys / W][ROWS][W]` and `rows` `[depth / W][ROWS][W]`.
#[inline(always)]
fn add_outer<L: Lanes>(lanes: Available<L>, left: &[f32], rows: &[f32], keys: usize, depth: usize, sums: &mut [f32]) {
    assert!(
        keys.is_multiple_of(L::WIDTH)
            && left.len() >= ROWS * keys
            && rows.len() >= ROWS * depth
            && sums.len() >= keys * depth
    );
    for group in 0..depth / L::WIDTH {
        // SAFETY: every place lies inside the lengths just checked.
        unsafe {
            let right: [L; ROWS] =
                std::array::from_fn(|r| lanes.load(rows.as_ptr().add((group * ROWS + r) * L::WIDTH)));
            for j in 0..keys {
                let to = sums.as_mut_ptr().add(j * depth + group * L::WIDTH);
                let left = left.as_ptr().add(j / L::WIDTH * ROWS * L::WIDTH + j % L::WIDTH);
                let mut sum = lanes.load(to);
                for r in 0..ROWS {
                    sum = lanes.splat(*left.add(r * L::WIDTH)).mul_add(right[r], sum);
                }
                sum.store(to);
            }
        }
    }
}

/// Adds the head's sums to their rows, prefix rows first.
#[inline(always)]
fn add_sums<L: Lanes>(sequence: &Sequence<'_, f32>, head: usize, work: &Work, d_qkv: &mut [f32], d_prefix: &mut [f32]) {
    let (width, size) = (sequence.width, sequence.width / sequence.heads);
    let depth = size.next_multiple_of(L::WIDTH);
    let rows =
        d_prefix.chunks_exact_mut(3 * width).take(sequence.prefix_rows()).chain(d_qkv.chunks_exact_mut(3 * width));
    let sums = work.d_keys.chunks_exact(depth).zip(work.d_values.chunks_exact(depth));
    for (row, (d_key, d_value)) in rows.zip(sums) {
        let at = head * size;
        row[width + at..][..size].iter_mut().zip(d_key).for_each(|(to, x)| *to += x);
        row[2 * width + at..][..size].iter_mut().zip(d_value).for_each(|(to, x)| *to += x);
    }
}
