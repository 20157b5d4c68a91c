//! Gaussian discriminant analysis with one covariance for all classes, as several methods use it.
//!
//! `precision = D pinv((n - 1) S + tr(S) I)` with `S` the sample covariance of the residuals about their own mean,
//! `W_k = precision mu_k`, `b_k = -ln K - mu_k W_k / 2`, scores `f W' + b`.

use super::linalg;
use super::probability::{dot, to_f32};
use flatclip_tensor::Matrix;
use flatclip_tensor::gemm::product_nn;

/// Sums over residuals that give their covariance; residuals come and go.
#[derive(Clone, Debug, Default)]
pub struct Scatter {
    width: usize,
    /// Number of residuals.
    pub count: usize,
    sum: Vec<f64>,
    /// `sum r r'`, `[D, D]`.
    products: Vec<f64>,
}

impl Scatter {
    pub fn new(width: usize) -> Self {
        Self { width, count: 0, sum: vec![0.0; width], products: vec![0.0; width * width] }
    }

    /// Adds the residuals of `rows` about `mean`.
    pub fn add<'r>(&mut self, rows: impl IntoIterator<Item = &'r [f32]>, mean: &[f32]) {
        rows.into_iter().for_each(|row| self.change(row, mean, 1.0));
    }

    /// Takes residuals away that were added with the same mean.
    pub fn remove<'r>(&mut self, rows: impl IntoIterator<Item = &'r [f32]>, mean: &[f32]) {
        rows.into_iter().for_each(|row| self.change(row, mean, -1.0));
    }

    fn change(&mut self, row: &[f32], mean: &[f32], sign: f64) {
        let residual: Vec<f64> = row.iter().zip(mean).map(|(x, m)| f64::from(x - m)).collect();
        self.count = if sign > 0.0 { self.count + 1 } else { self.count - 1 };
        self.sum.iter_mut().zip(&residual).for_each(|(s, r)| *s += sign * r);
        for (into, r) in self.products.chunks_exact_mut(self.width).zip(&residual) {
            let weight = sign * r;
            into.iter_mut().zip(&residual).for_each(|(p, r)| *p += weight * r);
        }
    }

    /// The sample covariance about the residuals' own mean (divisor `n - 1`); the identity for fewer than two.
    pub fn covariance(&self) -> Vec<f64> {
        if self.count < 2 {
            return identity(self.width, 1.0);
        }
        let n = self.count as f64;
        let mut out = self.products.clone();
        for (row, a) in out.chunks_exact_mut(self.width).zip(&self.sum) {
            row.iter_mut().zip(&self.sum).for_each(|(x, b)| *x = (*x - a * b / n) / (n - 1.0));
        }
        out
    }

    /// `D pinv((n - 1) S + tr(S) I)`.
    pub fn ridge_precision(&self) -> Vec<f64> {
        let mut matrix = self.covariance();
        let trace: f64 = (0..self.width).map(|i| matrix[i * self.width + i]).sum();
        let factor = self.count.saturating_sub(1) as f64;
        matrix.iter_mut().for_each(|x| *x *= factor);
        (0..self.width).for_each(|i| matrix[i * self.width + i] += trace);
        let mut precision = linalg::pseudo_inverse(&matrix, self.width);
        precision.iter_mut().for_each(|x| *x *= self.width as f64);
        precision
    }

    /// `pinv(S)`.
    pub fn plain_precision(&self) -> Vec<f64> {
        linalg::pseudo_inverse(&self.covariance(), self.width)
    }
}

/// `scale` times the identity, `[n, n]`.
pub fn identity(n: usize, scale: f64) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    (0..n).for_each(|i| out[i * n + i] = scale);
    out
}

/// `rows` times a symmetric `[D, D]` matrix.
pub fn times(rows: &Matrix, matrix: &[f64]) -> Matrix {
    let (count, width) = (rows.rows(), rows.cols());
    let mut out = Matrix::zeros(count, width);
    product_nn(rows.data(), count, &to_f32(matrix), width, width, out.data_mut());
    out
}

#[derive(Clone, Debug)]
pub struct Discriminant {
    /// `[K, D]`.
    pub weights: Matrix,
    pub biases: Vec<f32>,
}

impl Discriminant {
    /// Of class means `[K, D]` and a shared precision `[D, D]`.
    pub fn new(means: &Matrix, precision: &[f64]) -> Self {
        let weights = times(means, precision);
        let prior = -(means.rows() as f64).ln();
        let bias = |(mean, weight): (&[f32], &[f32])| (prior - 0.5 * dot(mean, weight)) as f32;
        let biases = means.iter_rows().zip(weights.iter_rows()).map(bias).collect();
        Self { weights, biases }
    }

    pub fn scores(&self, feature: &[f32]) -> Vec<f32> {
        let score = |(weight, &bias): (&[f32], &f32)| (dot(feature, weight) + f64::from(bias)) as f32;
        self.weights.iter_rows().zip(&self.biases).map(score).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::assert_close;

    #[test]
    fn residuals_that_went_leave_no_trace_and_the_covariance_is_about_their_mean() {
        let rows = Matrix::from_vec(3, 2, vec![1.0, 2.0, 3.0, 1.0, 5.0, 6.0]);
        let mean = [0.5, 0.5];
        let mut scatter = Scatter::new(2);
        scatter.add(rows.iter_rows(), &mean);
        scatter.add([[9.0f32, 9.0].as_slice()], &mean);
        scatter.remove([[9.0f32, 9.0].as_slice()], &mean);
        assert_eq!(scatter.count, 3);
        // Columns 1, 3, 5 and 2, 1, 6: variances 4 and 7, covariance 4.
        assert_close(&scatter.covariance(), &[4.0, 4.0, 4.0, 7.0], 1e-9);
        // 2 ([2 S + 11 I]^-1).
        let precision = scatter.ridge_precision();
        let determinant = 19.0 * 25.0 - 64.0;
        assert!((precision[0] - 2.0 * 25.0 / determinant).abs() < 1e-12);
        assert!((precision[1] + 2.0 * 8.0 / determinant).abs() < 1e-12);
    }

    #[test]
    fn the_nearer_mean_scores_higher() {
        let means = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]);
        let found = Discriminant::new(&means, &identity(2, 3.0)).scores(&[0.9, 0.2]);
        assert!((f64::from(found[0]) - (2.7 - 1.5 - 2f64.ln())).abs() < 1e-6);
        assert!(found[0] > found[1]);
    }
}
