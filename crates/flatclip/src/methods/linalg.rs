//! Dense symmetric matrices in f64, row by row in a slice: inverse, eigenvalues, pseudo-inverse. Small helpers for
//! methods with a shared covariance; the towers do not use them.

use rayon::prelude::*;

/// Rows from which the threads share the work of one elimination step.
const PARALLEL: usize = 192;

/// The inverse of a symmetric positive definite `[n, n]` matrix, by Gauss-Jordan elimination, which needs no pivoting
/// there. `None` if it is not positive definite.
pub(crate) fn inverse(matrix: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut a = matrix.to_vec();
    let mut pivot_row = vec![0.0; n];
    for k in 0..n {
        let pivot = a[k * n + k];
        if !(pivot.is_finite() && pivot > f64::MIN_POSITIVE) {
            return None;
        }
        let row = &mut a[k * n..(k + 1) * n];
        row[k] = 1.0;
        row.iter_mut().for_each(|x| *x /= pivot);
        pivot_row.copy_from_slice(row);
        let eliminate = |(i, row): (usize, &mut [f64])| {
            if i != k {
                let factor = std::mem::take(&mut row[k]);
                row.iter_mut().zip(&pivot_row).for_each(|(x, p)| *x -= factor * p);
            }
        };
        if n < PARALLEL {
            a.chunks_exact_mut(n).enumerate().for_each(eliminate);
        } else {
            a.par_chunks_exact_mut(n).enumerate().with_min_len(n / 4).for_each(eliminate);
        }
    }
    symmetrise(&mut a, n);
    Some(a)
}

/// The Moore-Penrose inverse of a symmetric positive semidefinite `[n, n]` matrix. Eigenvalues below `n` times the f32
/// rounding unit of the largest count as zero, as in torch's f32 `pinv`.
pub(crate) fn pseudo_inverse(matrix: &[f64], n: usize) -> Vec<f64> {
    let cutoff = n as f64 * f64::from(f32::EPSILON);
    // The product of the norms of all entries is at least the condition number: below 1 / cutoff nothing counts as zero.
    if let Some(inverse) = inverse(matrix, n)
        && norm(matrix) * norm(&inverse) * cutoff < 1.0
    {
        return inverse;
    }
    let (values, vectors) = eigen(matrix, n);
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let mut out = vec![0.0; n * n];
    for (value, vector) in values.iter().zip(vectors.chunks_exact(n)).filter(|(v, _)| v.abs() > cutoff * largest) {
        for (row, x) in out.chunks_exact_mut(n).zip(vector) {
            let factor = x / value;
            row.iter_mut().zip(vector).for_each(|(o, y)| *o += factor * y);
        }
    }
    out
}

/// Eigenvalues (in no order) and, row by row, unit eigenvectors of a symmetric `[n, n]` matrix: Householder reduction to
/// a tridiagonal matrix, then the implicit QL method.
pub(crate) fn eigen(matrix: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut diagonal, mut beside, mut vectors) = tridiagonal(matrix, n);
    for low in 0..n {
        // 30 rounds are the customary limit, which a finite matrix does not reach.
        for _ in 0..30 {
            let high = (low..n.saturating_sub(1))
                .find(|&m| beside[m].abs() <= f64::EPSILON * (diagonal[m].abs() + diagonal[m + 1].abs()))
                .unwrap_or(n - 1);
            if high == low {
                break;
            }
            ql_round(&mut diagonal, &mut beside, &mut vectors, low, high);
        }
    }
    (diagonal, vectors)
}

/// One implicit QL round on rows `low..=high`.
fn ql_round(d: &mut [f64], e: &mut [f64], vectors: &mut [f64], low: usize, high: usize) {
    let n = d.len();
    let g = (d[low + 1] - d[low]) / (2.0 * e[low]);
    let mut g = d[high] - d[low] + e[low] / (g + g.hypot(1.0).copysign(g));
    let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
    for i in (low..high).rev() {
        let (f, b) = (sine * e[i], cosine * e[i]);
        let length = f.hypot(g);
        e[i + 1] = length;
        if length == 0.0 {
            d[i + 1] -= shift;
            e[high] = 0.0;
            return;
        }
        (sine, cosine) = (f / length, g / length);
        g = d[i + 1] - shift;
        let turn = (d[i] - g) * sine + 2.0 * cosine * b;
        shift = sine * turn;
        d[i + 1] = g + shift;
        g = cosine * turn - b;
        let (before, after) = vectors.split_at_mut((i + 1) * n);
        for (x, y) in before[i * n..].iter_mut().zip(&mut after[..n]) {
            (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
        }
    }
    d[low] -= shift;
    e[low] = g;
    e[high] = 0.0;
}

/// Diagonal, entries beside it (one more than there are, the last 0), and the orthogonal matrix of the reduction.
fn tridiagonal(matrix: &[f64], n: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut a = matrix.to_vec();
    let mut q = vec![0.0; n * n];
    (0..n).for_each(|i| q[i * n + i] = 1.0);
    for k in 0..n.saturating_sub(2) {
        // The reflection I - 2 v v' that turns the column below the diagonal into a multiple of its first unit vector.
        let mut v = vec![0.0; n];
        (k + 1..n).for_each(|i| v[i] = a[i * n + k]);
        v[k + 1] += norm(&v).copysign(v[k + 1]);
        let length = norm(&v);
        if length == 0.0 {
            continue;
        }
        v.iter_mut().for_each(|x| *x /= length);
        let mut p: Vec<f64> = a.chunks_exact(n).map(|row| dot(row, &v)).collect();
        let along = dot(&p, &v);
        p.iter_mut().zip(&v).for_each(|(p, v)| *p -= along * v);
        for (i, row) in a.chunks_exact_mut(n).enumerate() {
            let (by_p, by_v) = (2.0 * v[i], 2.0 * p[i]);
            row.iter_mut().zip(p.iter().zip(&v)).for_each(|(x, (p, v))| *x -= by_p * p + by_v * v);
        }
        let mut mixed = vec![0.0; n];
        for (row, &weight) in q.chunks_exact(n).zip(&v).skip(k + 1) {
            mixed.iter_mut().zip(row).for_each(|(m, x)| *m += weight * x);
        }
        for (row, &weight) in q.chunks_exact_mut(n).zip(&v).skip(k + 1) {
            row.iter_mut().zip(&mixed).for_each(|(x, m)| *x -= 2.0 * weight * m);
        }
    }
    let diagonal = (0..n).map(|i| a[i * n + i]).collect();
    let beside = (0..n).map(|i| if i + 1 < n { a[(i + 1) * n + i] } else { 0.0 }).collect();
    (diagonal, beside, q)
}

fn symmetrise(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..i {
            let mean = 0.5 * (a[i * n + j] + a[j * n + i]);
            (a[i * n + j], a[j * n + i]) = (mean, mean);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::assert_close;
    use crate::rng::Stream;

    /// `B'B` of a drawn `[rows, n]` matrix: of rank `rows` at most.
    fn gram(seed: u64, rows: usize, n: usize) -> Vec<f64> {
        let mut stream = Stream::new(seed, &["gram"]);
        let b: Vec<f64> = (0..rows * n).map(|_| stream.normal()).collect();
        let mut out = vec![0.0; n * n];
        for row in b.chunks_exact(n) {
            for i in 0..n {
                (0..n).for_each(|j| out[i * n + j] += row[i] * row[j]);
            }
        }
        out
    }

    fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
        let entry = |i: usize, j: usize| (0..n).map(|k| a[i * n + k] * b[k * n + j]).sum();
        (0..n * n).map(|at| entry(at / n, at % n)).collect()
    }

    #[test]
    fn the_inverse_is_one_and_needs_a_definite_matrix() {
        for n in [1, 2, 7, 200] {
            let a = gram(n as u64, 2 * n, n);
            let identity: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
            assert_close(&product(&a, &inverse(&a, n).unwrap(), n), &identity, 1e-8);
        }
        assert!(inverse(&[1.0, 2.0, 2.0, 1.0], 2).is_none());
        assert!(inverse(&[0.0], 1).is_none() && inverse(&[f64::NAN], 1).is_none());
    }

    #[test]
    fn eigenvectors_turn_the_matrix_into_its_eigenvalues() {
        for n in [1, 2, 3, 12, 40] {
            let a = gram(n as u64 + 9, n / 2 + 1, n);
            let (values, vectors) = eigen(&a, n);
            for (value, vector) in values.iter().zip(vectors.chunks_exact(n)) {
                let moved: Vec<f64> = a.chunks_exact(n).map(|row| dot(row, vector)).collect();
                let expected: Vec<f64> = vector.iter().map(|x| value * x).collect();
                assert_close(&moved, &expected, 1e-9);
                assert!((norm(vector) - 1.0).abs() < 1e-10);
            }
        }
    }

    #[test]
    fn the_pseudo_inverse_of_a_singular_matrix_keeps_penroses_conditions() {
        let n = 9;
        let a = gram(4, 5, n);
        let p = pseudo_inverse(&a, n);
        assert_close(&product(&product(&a, &p, n), &a, n), &a, 1e-9);
        assert_close(&product(&product(&p, &a, n), &p, n), &p, 1e-9);
        let definite = gram(5, 20, n);
        assert_close(&pseudo_inverse(&definite, n), &inverse(&definite, n).unwrap(), 1e-12);
        assert_eq!(pseudo_inverse(&[0.0; 4], 2), [0.0; 4]);
    }
}
