//! MCP++: gradient steps on residuals of the text features and of the prototypes, as the authors' code does them.

use super::Mcp;
use crate::methods::adapters::prelude::*;
use crate::methods::optim::AdamWSettings;
use crate::methods::probability::{dot, mean_entropy, normalise_rows, normalise_rows_gradient};
use crate::methods::prototypes::{Prototypes, add_scaled, class_means, info_nce};
use crate::methods::query::Query;
use flatclip_tensor::ops::l2_norm;

/// Temperature of InfoNCE (authors' code).
const TEMPERATURE: f64 = 0.01;
/// Keeps the logarithm of a distance finite (authors' code).
const SMALL: f64 = 1e-7;

#[derive(Clone, Debug)]
pub struct Tuning {
    /// Logits with all terms of the prototypes, and all but the last of the negative cache.
    pub logits: Vec<f32>,
    pub text: Matrix,
    pub loss: f32,
    /// InfoNCE in it, without its weight.
    pub info_nce: f32,
    /// The distance to the negative cache in it, without its weight.
    pub repel: f32,
}

impl Mcp {
    /// The steps on one image. The logits are never reset, so that each step adds the terms of the caches once more, and the
    /// gradients of the earlier terms are those of their own step.
    pub(super) fn tuned(
        &self,
        task: &Task,
        query: &Query,
        against: &[f64],
        prototypes: &Matrix,
        classes: &[usize],
    ) -> Tuning {
        let o = &self.options;
        let adamw = |lr| AdamWSettings { lr, betas: (0.9, 0.999), eps: 1e-3, weight_decay: 0.1 };
        let mut text = Prototypes::new(task.text_features().clone(), adamw(o.lr_text));
        let mut image = Prototypes::new(prototypes.clone(), adamw(o.lr_image));
        let start = text.unit();
        let doubtful = self.doubtful(classes, query.feature.len());
        // Of every term of the prototypes so far: the prototypes of its step, their norms, its weights.
        let mut terms: Vec<(Matrix, Vec<f32>, Vec<f64>)> = Vec::new();
        let mut out =
            Tuning { logits: query.logits.clone(), text: Matrix::default(), loss: 0.0, info_nce: 0.0, repel: 0.0 };
        for _ in 0..o.steps {
            let ((w, w_norms), (v, v_norms)) = (text.unit(), image.unit());
            let (z, weights) = self.visual(&v, classes).add(&out.logits, &query.feature);
            out.logits = z.iter().zip(against).map(|(&z, a)| (f64::from(z) + a) as f32).collect();
            terms.push((v.clone(), v_norms.clone(), weights));
            let loss = mean_entropy(&Matrix::from_vec(1, out.logits.len(), out.logits.clone()));
            let slope = loss.gradient.row(0);

            let (mut dw, mut dv) = (Matrix::zeros(w.rows(), w.cols()), Matrix::zeros(v.rows(), v.cols()));
            let near = dimensions_apart(o.align, &v, &w, classes, &mut dv, &mut dw);
            let repel = repelled(o.repel, &v, &doubtful, &mut dv);
            normalise_rows_gradient(&w, &w_norms, &mut dw);
            normalise_rows_gradient(&v, &v_norms, &mut dv);
            // The logits of the text are those of the first step.
            let mut of_logits = Matrix::zeros(w.rows(), w.cols());
            for (k, &slope) in slope.iter().enumerate() {
                add_scaled(of_logits.row_mut(k), f64::from(slope * task.logit_scale), &query.feature);
            }
            normalise_rows_gradient(&start.0, &start.1, &mut of_logits);
            add(&mut dw, &of_logits);
            for (rows, norms, weights) in &terms {
                let mut of_term = self.visual(rows, classes).gradient(slope, &query.feature, weights);
                normalise_rows_gradient(rows, norms, &mut of_term);
                add(&mut dv, &of_term);
            }
            text.step_on(&dw);
            image.step_on(&dv);
            (out.info_nce, out.repel) = (near as f32, repel as f32);
            out.loss = (f64::from(loss.value) + o.align * near + o.repel * repel) as f32;
        }
        out.logits = self.visual(&image.unit().0, classes).add(&out.logits, &query.feature).0;
        out.text = text.unit().0;
        out
    }

    /// Mean feature of the negative cache for each of the classes, zero for none.
    fn doubtful(&self, classes: &[usize], width: usize) -> Matrix {
        let mut rows = Matrix::zeros(classes.len(), width);
        for (row, &class) in classes.iter().enumerate() {
            let features = self.negative.items(class).iter().map(|item| item.feature.as_slice());
            let (mean, present) = class_means([(class, features)].into_iter(), width);
            if !present.is_empty() {
                rows.row_mut(row).copy_from_slice(mean.row(0));
            }
        }
        rows
    }
}

fn add(sum: &mut Matrix, other: &Matrix) {
    sum.data_mut().iter_mut().zip(other.data()).for_each(|(s, x)| *s += x);
}

/// InfoNCE of the original, which is given `[D, C]` matrices: the rows that it contrasts are feature dimensions. Adds the
/// gradient of `weight` times it.
fn dimensions_apart(weight: f64, v: &Matrix, w: &Matrix, classes: &[usize], dv: &mut Matrix, dw: &mut Matrix) -> f64 {
    let (mut a, mut b) = (v.transpose(), w.select_rows(classes).transpose());
    let (a_norms, b_norms) = (normalise_rows(&mut a), normalise_rows(&mut b));
    let (mut da, mut db) = (Matrix::zeros(a.rows(), a.cols()), Matrix::zeros(b.rows(), b.cols()));
    let all: Vec<usize> = (0..a.rows()).collect();
    let loss = info_nce(1.0, TEMPERATURE, (&a, &b), &all, (&mut da, &mut db));
    normalise_rows_gradient(&a, &a_norms, &mut da);
    normalise_rows_gradient(&b, &b_norms, &mut db);
    let (da, db) = (da.transpose(), db.transpose());
    for (row, &class) in classes.iter().enumerate() {
        add_scaled(dv.row_mut(row), weight, da.row(row));
        add_scaled(dw.row_mut(class), weight, db.row(row));
    }
    loss
}

/// `mean_k -ln(1 - cos(v_k, n_k) + small)`; adds the gradient of `weight` times it at unit `v`.
fn repelled(weight: f64, v: &Matrix, doubtful: &Matrix, dv: &mut Matrix) -> f64 {
    let count = v.rows().max(1) as f64;
    let mut loss = 0.0;
    for (row, other) in doubtful.iter_rows().enumerate() {
        let length = l2_norm(other);
        if length == 0.0 {
            loss -= (1.0 + SMALL).ln() / count;
            continue;
        }
        let gap = 1.0 - dot(v.row(row), other) / length + SMALL;
        loss -= gap.ln() / count;
        add_scaled(dv.row_mut(row), weight / (gap * length * count), other);
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::assert_gradient_within;

    #[test]
    fn both_gradients_match_differences() {
        let (v, w, other) = (unit_rows(1, 3, 4), unit_rows(2, 5, 4), unit_rows(3, 3, 4));
        let classes = [0, 2, 3];
        let value = |v: &Matrix, w: &Matrix| {
            let (mut dv, mut dw) = (Matrix::zeros(3, 4), Matrix::zeros(5, 4));
            let near = dimensions_apart(0.01, v, w, &classes, &mut dv, &mut dw);
            let far = repelled(0.2, v, &other, &mut dv);
            (0.01 * near + 0.2 * far, dv, dw)
        };
        let (_, dv, dw) = value(&v, &w);
        assert_gradient_within(&v, dv.data(), 1e-3, |slope| 2e-2 * slope.abs().max(0.5), |v| value(v, &w).0);
        assert_gradient_within(&w, dw.data(), 1e-3, |slope| 2e-2 * slope.abs().max(0.5), |w| value(&v, w).0);
    }
}
