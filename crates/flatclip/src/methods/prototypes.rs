//! Prototypes that a residual moves for one image (DPE, DLAE, MCP++), and what they add to logits and losses.

use super::optim::{AdamW, AdamWSettings, Optimiser};
use super::probability::{dot, logits, mean_entropy, normalise_rows_gradient, softmax};
use super::query::{Query, affinity};
use super::update::shifted;
use flatclip_tensor::Matrix;

/// Prototypes that carry a residual: `normalise(base + residual)`.
pub(crate) struct Prototypes {
    base: Matrix,
    /// What the steps made of zero.
    pub(crate) residual: Matrix,
    optimiser: AdamW,
}

impl Prototypes {
    /// Without a residual; `settings` are those of its steps.
    pub(crate) fn new(base: Matrix, settings: AdamWSettings) -> Self {
        Self { residual: Matrix::zeros(base.rows(), base.cols()), base, optimiser: AdamW::new(settings) }
    }

    /// The prototypes, and their norms before they were scaled to one.
    pub(crate) fn unit(&self) -> (Matrix, Vec<f32>) {
        shifted(&self.base, &self.residual)
    }

    /// One step on the residual, given the gradient at the unit prototypes.
    pub(crate) fn step(&mut self, unit: &Matrix, norms: &[f32], mut gradient: Matrix) {
        normalise_rows_gradient(unit, norms, &mut gradient);
        self.step_on(&gradient);
    }

    /// One step on the residual, given its own gradient.
    pub(crate) fn step_on(&mut self, gradient: &Matrix) {
        self.optimiser.step(&mut [self.residual.data_mut()], &[gradient.data()]);
    }
}

/// Mean of the features of every class that has any (not normalised), and those classes, in the given order.
pub(crate) fn class_means<'f, I: Iterator<Item = &'f [f32]>>(
    classes: impl Iterator<Item = (usize, I)>,
    width: usize,
) -> (Matrix, Vec<usize>) {
    let (mut data, mut present) = (Vec::new(), Vec::new());
    for (class, features) in classes {
        let (mut sum, mut count) = (vec![0.0f64; width], 0);
        for feature in features {
            sum.iter_mut().zip(feature).for_each(|(s, &x)| *s += f64::from(x));
            count += 1;
        }
        if count > 0 {
            data.extend(sum.iter().map(|s| (s / f64::from(count)) as f32));
            present.push(class);
        }
    }
    (Matrix::from_vec(present.len(), width, data), present)
}

/// Visual prototypes of some classes, and how much they count.
#[derive(Clone, Copy)]
pub(crate) struct Visual<'p> {
    /// One row per class.
    pub(crate) rows: &'p Matrix,
    /// The classes of the rows.
    pub(crate) classes: &'p [usize],
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
}

impl Visual<'_> {
    /// `z + alpha sum_j exp(-beta (1 - x.V_j)) onehot(j)`, and the weight of each prototype.
    pub(crate) fn add(&self, z: &[f32], x: &[f32]) -> (Vec<f32>, Vec<f64>) {
        let mut sum = z.to_vec();
        let weights: Vec<f64> = self.rows.iter_rows().map(|key| affinity(self.alpha, self.beta, dot(x, key))).collect();
        self.classes.iter().zip(&weights).for_each(|(&k, w)| sum[k] = (f64::from(sum[k]) + w) as f32);
        (sum, weights)
    }

    /// The gradient with respect to the prototypes of a loss whose gradient on the sum is `slope`.
    pub(crate) fn gradient(&self, slope: &[f32], x: &[f32], weights: &[f64]) -> Matrix {
        let mut gradient = Matrix::zeros(self.rows.rows(), self.rows.cols());
        for (j, &class) in self.classes.iter().enumerate() {
            add_scaled(gradient.row_mut(j), f64::from(slope[class]) * weights[j] * self.beta, x);
        }
        gradient
    }
}

/// The text and visual prototypes of one image (DPE, DLAE), which steps on residuals move.
pub(crate) struct Evolving {
    pub(crate) text: Prototypes,
    pub(crate) image: Prototypes,
    /// The classes of the visual prototypes.
    pub(crate) classes: Vec<usize>,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// Weight of InfoNCE.
    pub(crate) align: f64,
    pub(crate) temperature: f64,
}

impl Evolving {
    fn visual<'p>(&'p self, rows: &'p Matrix) -> Visual<'p> {
        Visual { rows, classes: &self.classes, alpha: self.alpha, beta: self.beta }
    }

    /// The logits of an image with what the visual prototypes add.
    pub(crate) fn logits(&self, query: &Query) -> Vec<f32> {
        self.visual(&self.image.unit().0).add(&query.logits, &query.feature).0
    }

    /// One step of both residuals on the entropy of the logits plus InfoNCE of the prototypes; the loss before it. The query's
    /// logits are those of the unit text prototypes `w`, times constant `factors`.
    pub(crate) fn step(&mut self, (w, w_norms): (Matrix, Vec<f32>), query: &Query, scale: f32, factors: &[f64]) -> f32 {
        let (v, v_norms) = self.image.unit();
        let (z, weights) = self.visual(&v).add(&query.logits, &query.feature);
        let loss = mean_entropy(&Matrix::from_vec(1, z.len(), z));
        let slope = loss.gradient.row(0);
        let mut dv = self.visual(&v).gradient(slope, &query.feature, &weights);
        let mut dw = Matrix::zeros(w.rows(), w.cols());
        // Mean logits are the logits of the mean feature, so dz_k/dW_k = scale * g.
        for (k, (&slope, factor)) in slope.iter().zip(factors).enumerate() {
            add_scaled(dw.row_mut(k), f64::from(slope * scale) * factor, &query.feature);
        }
        let pairs = (&v, &w.select_rows(&self.classes));
        let near = info_nce(self.align, self.temperature, pairs, &self.classes, (&mut dv, &mut dw));
        self.text.step(&w, &w_norms, dw);
        self.image.step(&v, &v_norms, dv);
        (f64::from(loss.value) + near) as f32
    }
}

/// `weight * mean_a -ln softmax_b(v_a . w_b / temperature)[a]` over the rows of two matrices of unit rows; adds its gradient to
/// `dv` and to the rows `targets` of `dw`.
pub(crate) fn info_nce(
    weight: f64,
    temperature: f64,
    (v, w): (&Matrix, &Matrix),
    targets: &[usize],
    (dv, dw): (&mut Matrix, &mut Matrix),
) -> f64 {
    let scale = weight / (v.rows() as f64 * temperature);
    let rows = logits(v, w, (1.0 / temperature) as f32);
    let mut loss = 0.0;
    for a in 0..v.rows() {
        let p = softmax(rows.row(a));
        loss -= p[a].max(f64::MIN_POSITIVE).ln();
        for (b, p) in p.into_iter().enumerate() {
            let slope = scale * (p - f64::from(u8::from(a == b)));
            add_scaled(dv.row_mut(a), slope, w.row(b));
            add_scaled(dw.row_mut(targets[b]), slope, v.row(a));
        }
    }
    weight * loss / v.rows().max(1) as f64
}

/// Folds `next` into the mean of `count` earlier ones and the start: `mean <- mean n/(n+1) + next/(n+1)`, n = count + 1.
pub(crate) fn fold(mean: &mut Matrix, count: &mut usize, next: &Matrix) {
    *count += 1;
    let n = *count as f64;
    let (old, new) = ((n / (n + 1.0)) as f32, (1.0 / (n + 1.0)) as f32);
    mean.data_mut().iter_mut().zip(next.data()).for_each(|(m, &x)| *m = *m * old + x * new);
}

/// `out + scale * row`.
pub(crate) fn add_scaled(out: &mut [f32], scale: f64, row: &[f32]) {
    out.iter_mut().zip(row).for_each(|(o, &x)| *o = (f64::from(*o) + scale * f64::from(x)) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::{assert_gradient, unit_rows};

    #[test]
    fn the_gradient_of_info_nce_matches_differences() {
        let (v, w) = (unit_rows(1, 3, 5), unit_rows(2, 3, 5));
        let value = |v: &Matrix, w: &Matrix| {
            let (mut dv, mut dw) = (Matrix::zeros(3, 5), Matrix::zeros(3, 5));
            let loss = info_nce(0.7, 0.5, (v, w), &[0, 1, 2], (&mut dv, &mut dw));
            (loss, dv, dw)
        };
        let (_, dv, dw) = value(&v, &w);
        assert_gradient(&v, dv.data(), 1e-2, 1e-3, |v| value(v, &w).0);
        assert_gradient(&w, dw.data(), 1e-2, 1e-3, |w| value(&v, w).0);
    }

    #[test]
    fn classes_without_features_have_no_mean() {
        let rows = [[1.0f32, 3.0], [3.0, 5.0]];
        let of = [(4, vec![&rows[0][..], &rows[1][..]]), (5, vec![]), (7, vec![&rows[1][..]])];
        let (means, classes) = class_means(of.into_iter().map(|(class, rows)| (class, rows.into_iter())), 2);
        assert_eq!((classes, means.data()), (vec![4, 7], &[2.0, 4.0, 3.0, 5.0][..]));
    }
}
