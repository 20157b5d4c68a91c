//! One sequence, row by row: the reference for the attention kernels, and the kernel for short sequences. Always inlined, so
//! that it is compiled for the caller's instruction set.

use crate::ops::real::{Real, axpy, dot};

/// One sequence with its (possibly empty) shared prefix, as rows `[q | k | v]` of `3 * width` values.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'a, T> {
    pub(super) qkv: &'a [T],
    pub(super) prefix: &'a [T],
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) causal: bool,
}

impl<T: Real> Sequence<'_, T> {
    #[inline(always)]
    pub(super) fn rows(&self) -> usize {
        self.qkv.len() / (3 * self.width)
    }

    #[inline(always)]
    pub(super) fn prefix_rows(&self) -> usize {
        self.prefix.len() / (3 * self.width)
    }

    /// How many own rows the query of row `row` sees.
    #[inline(always)]
    pub(super) fn seen(&self, row: usize) -> usize {
        if self.causal { row + 1 } else { self.rows() }
    }

    #[inline(always)]
    pub(super) fn scale(&self) -> T {
        T::ONE / T::of((self.width / self.heads) as f64).sqrt()
    }

    /// Keys (`part = 1`) or values (`part = 2`) of one head: prefix rows, then own rows up to `seen`.
    #[inline(always)]
    pub(super) fn parts(&self, part: usize, head: usize, seen: usize) -> impl Iterator<Item = &[T]> {
        let (size, stride) = (self.width / self.heads, 3 * self.width);
        let at = part * self.width + head * size;
        let own = self.qkv.chunks_exact(stride).take(seen);
        self.prefix.chunks_exact(stride).chain(own).map(move |row| &row[at..at + size])
    }

    /// `softmax(q Kᵀ / sqrt(size))` of one query and head.
    #[inline(always)]
    fn weights(&self, row: usize, head: usize, p: &mut Vec<T>) {
        let size = self.width / self.heads;
        let query = &self.qkv[row * 3 * self.width + head * size..][..size];
        p.clear();
        let scale = self.scale();
        p.extend(self.parts(1, head, self.seen(row)).map(|key| dot(query, key) * scale));
        let n = p.len();
        crate::ops::loss::softmax(p, n);
    }

    /// `out[width]` of the query in `row`.
    #[inline(always)]
    pub(super) fn forward(&self, row: usize, p: &mut Vec<T>, out: &mut [T]) {
        let size = self.width / self.heads;
        for head in 0..self.heads {
            self.weights(row, head, p);
            let out = &mut out[head * size..(head + 1) * size];
            out.fill(T::ZERO);
            for (&p, value) in p.iter().zip(self.parts(2, head, self.seen(row))) {
                axpy(p, value, out);
            }
        }
    }

    /// Adds the gradients of the query in `row` to `d_qkv` (own rows) and `d_prefix` (prefix rows).
    #[inline(always)]
    pub(super) fn backward(
        &self,
        row: usize,
        d_out: &[T],
        d_qkv: &mut [T],
        d_prefix: &mut [T],
        p: &mut Vec<T>,
        dp: &mut Vec<T>,
    ) {
        let (size, width, stride) = (self.width / self.heads, self.width, 3 * self.width);
        let (seen, prefix) = (self.seen(row), self.prefix_rows());
        for head in 0..self.heads {
            self.weights(row, head, p);
            let at = head * size;
            let d_out = &d_out[at..at + size];
            dp.clear();
            dp.extend(self.parts(2, head, seen).map(|value| dot(d_out, value)));
            let along = dot(p, dp);
            let query = &self.qkv[row * stride + at..][..size];
            for (j, key) in self.parts(1, head, seen).enumerate() {
                let ds = p[j] * (dp[j] - along) * self.scale();
                axpy(ds, key, &mut d_qkv[row * stride + at..][..size]);
                let target = if j < prefix {
                    &mut d_prefix[j * stride..][..stride]
                } else {
                    &mut d_qkv[(j - prefix) * stride..][..stride]
                };
                axpy(ds, query, &mut target[width + at..][..size]);
                axpy(p[j], d_out, &mut target[2 * width + at..][..size]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    const WIDTH: usize = 6;

    fn loss(qkv: &[f64], prefix: &[f64], causal: bool, d: &[f64]) -> f64 {
        let s = Sequence { qkv, prefix, width: WIDTH, heads: 2, causal };
        let mut out = vec![0.0; WIDTH];
        (0..s.rows())
            .map(|row| {
                s.forward(row, &mut Vec::new(), &mut out);
                dot(&out, &d[row * WIDTH..(row + 1) * WIDTH])
            })
            .sum()
    }

    #[test]
    fn gradients_are_derivatives_with_and_without_prefix_and_mask() {
        for (rows, prefix_rows, causal) in [(4, 0, false), (4, 0, true), (3, 2, true), (1, 5, true), (3, 2, false)] {
            let qkv = values(1, rows * 3 * WIDTH);
            let prefix = values(2, prefix_rows * 3 * WIDTH);
            let d = values(3, rows * WIDTH);
            let s = Sequence { qkv: &qkv, prefix: &prefix, width: WIDTH, heads: 2, causal };
            let (mut d_qkv, mut d_prefix) = (vec![0.0; qkv.len()], vec![0.0; prefix.len()]);
            for row in 0..rows {
                let d = &d[row * WIDTH..(row + 1) * WIDTH];
                s.backward(row, d, &mut d_qkv, &mut d_prefix, &mut Vec::new(), &mut Vec::new());
            }
            assert_gradient(&qkv, &d_qkv, 1e-6, |x| loss(x, &prefix, causal, &d));
            assert_gradient(&prefix, &d_prefix, 1e-6, |x| loss(&qkv, x, causal, &d));
        }
    }
}
