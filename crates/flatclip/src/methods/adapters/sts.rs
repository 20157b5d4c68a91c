//! STS: one shift for all class prototypes, limited to the main directions of the text features, tuned for each image.
//! Written after the paper's formulas; no golden case.

use super::prelude::*;
use crate::methods::linalg;
use crate::methods::update::{on_text, shifted};
use flatclip_tensor::ops::l2_norm;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "shifts all class prototypes together within the main directions of the text features (unverified)",
    docs: "\
What: T = U S B' is the singular value decomposition of the text features; kept are the directions whose
singular value is above omega(b) times the median one, b the aspect ratio of T, omega(b) = 0.56 b^3 - 0.95 b^2
+ 1.82 b + 1.43 (Gavish and Donoho), at least one. For each image gamma = 0; the int(fraction * V) views of
lowest entropy give the loss H(mean distribution) + lambda |gamma|; AdamW moves gamma, the same for all
classes; view 0 is answered with W = normalise(T + B gamma).
Unverified: the authors' code was not at hand. Whether T is centred first and the value of lambda are not
known (with one step lambda has no effect: its gradient at gamma = 0 is 0).
Cost: one image-tower pass over the views and two K x D products; one decomposition per class list.
Reference: Dafnis and Metaxas, Test-Time Spectrum-Aware Latent Steering for Zero-Shot Generalization in
Vision-Language Models, NeurIPS 2025.
",
    options: Config::OPTIONS,
    ..AdapterSpec::new("sts", Build::Episodic(|table| Ok(Box::new(Sts::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "sts" {
        include view_selection { fraction = 0.1, from "summary of the paper"; };
        include adamw_steps { lr = 5e-3, from "summary of the paper"; };
        /// Weight of the length of the shift.
        lambda: f64 = 1.0, range at_least(0.0), from "choice: not known; without effect for one step";
    }
}

#[derive(Clone, Debug)]
pub struct Sts {
    options: Config,
    /// Orthonormal rows `[r, D]`.
    basis: Matrix,
}

impl Sts {
    /// With these options; [`Adapter::prepare`] finds the directions.
    pub fn new(options: Config) -> Self {
        Self { options, basis: Matrix::default() }
    }

    /// `B gamma` for every class.
    fn spread(&self, gamma: &[f32], classes: usize) -> Matrix {
        let mut shift = vec![0.0f32; self.basis.cols()];
        for (row, &weight) in self.basis.iter_rows().zip(gamma) {
            shift.iter_mut().zip(row).for_each(|(s, b)| *s += weight * b);
        }
        Matrix::from_vec(classes, shift.len(), shift.repeat(classes))
    }

    /// The shifted prototypes of an image with these selected views.
    pub fn shifted(&self, task: &Task, kept: &Matrix) -> Matrix {
        let (o, base) = (&self.options, task.text_features());
        let mut optimiser = AdamW::with_decay(o.lr, o.weight_decay);
        let mut gamma = vec![0.0f32; self.basis.rows()];
        for _ in 0..o.steps {
            let (text, norms) = shifted(base, &self.spread(&gamma, base.rows()));
            let mut loss = on_text(kept, &text, task.logit_scale, marginal_entropy);
            normalise_rows_gradient(&text, &norms, &mut loss.gradient);
            let mut sum = vec![0.0f32; base.cols()];
            loss.gradient.iter_rows().for_each(|row| sum.iter_mut().zip(row).for_each(|(s, g)| *s += g));
            let length = l2_norm(&gamma).max(f64::MIN_POSITIVE);
            let slope = |(row, &g): (&[f32], &f32)| (dot(row, &sum) + o.lambda * f64::from(g) / length) as f32;
            let gradient: Vec<f32> = self.basis.iter_rows().zip(&gamma).map(slope).collect();
            optimiser.step(&mut [&mut gamma], &[&gradient]);
        }
        shifted(base, &self.spread(&gamma, base.rows())).0
    }
}

/// The right singular vectors of `text` above the threshold, `[r, D]`, at least one.
fn main_directions(text: &Matrix) -> Matrix {
    let (rows, width) = (text.rows(), text.cols());
    let wide = rows < width;
    // Of the two Gram matrices the smaller one: both have the squares of the singular values.
    let columns = text.transpose();
    let side = if wide { text } else { &columns };
    let n = side.rows();
    let gram: Vec<f64> = (0..n * n).map(|at| dot(side.row(at / n), side.row(at % n))).collect();
    let (values, vectors) = linalg::eigen(&gram, n);
    let singular: Vec<f64> = values.iter().map(|value| value.max(0.0).sqrt()).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| singular[b].total_cmp(&singular[a]));
    let median = 0.5 * (singular[order[(n - 1) / 2]] + singular[order[n / 2]]);
    let aspect = n as f64 / rows.max(width) as f64;
    let omega = 0.56 * aspect.powi(3) - 0.95 * aspect.powi(2) + 1.82 * aspect + 1.43;
    let count = order.iter().take_while(|&&i| singular[i] > omega * median).count().max(1);
    let mut basis = Vec::with_capacity(count * width);
    for &i in &order[..count] {
        let vector = &vectors[i * n..(i + 1) * n];
        if wide {
            // A left singular vector u gives the right one: T'u / s.
            let along = columns
                .iter_rows()
                .map(|column| column.iter().zip(vector).map(|(&x, u)| f64::from(x) * u).sum::<f64>());
            basis.extend(along.map(|x| (x / singular[i].max(f64::MIN_POSITIVE)) as f32));
        } else {
            basis.extend(vector.iter().map(|&x| x as f32));
        }
    }
    Matrix::from_vec(count, width, basis)
}

impl Adapter for Sts {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.basis = main_directions(task.text_features());
        Ok(())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let selection = LowestScore { fraction: self.options.fraction, score: self.options.score }.select(&views);
        let text = self.shifted(task, &image.features.select_rows(&selection.selected));
        let first = logits(&image.features.select_rows(&[0]), &text, task.logit_scale);
        Ok(Decision::from_logits(first.row(0)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directions_are_orthonormal_singular_vectors_for_tall_and_wide_features() {
        for (rows, width) in [(6, 16), (40, 16)] {
            // One strong common direction beside noise, as text features have it.
            let mut text = unit_rows(3, rows, width);
            let common = unit_rows(4, 1, width);
            (0..rows).for_each(|k| text.row_mut(k).iter_mut().zip(common.row(0)).for_each(|(x, c)| *x = 0.3 * *x + c));
            let basis = main_directions(&text);
            assert!(basis.rows() < rows.min(width) / 2, "{} of {}", basis.rows(), rows.min(width));
            for (i, row) in basis.iter_rows().enumerate() {
                (0..=i).for_each(|j| assert!((dot(row, basis.row(j)) - f64::from(u8::from(i == j))).abs() < 1e-5));
            }
            assert!(dot(basis.row(0), common.row(0)).abs() > 0.95);
        }
    }

    #[test]
    fn the_step_lowers_the_loss_and_moves_all_prototypes_alike() {
        let task = task(6, 16, 20.0);
        let mut sts = Sts::new(Config::default());
        sts.prepare(&task).unwrap();
        let kept = views(3, 4, 16);
        let value = |text: &Matrix| marginal_entropy(&logits(&kept, text, 20.0)).value;
        assert!(value(&sts.shifted(&task, &kept)) < value(task.text_features()));
        let still = Sts { options: Config { steps: 0, ..Config::default() }, ..sts.clone() };
        assert_close(still.shifted(&task, &kept).data(), task.text_features().data(), 1e-6);
        let shift = sts.spread(&[0.5], 6);
        assert_eq!(shift.row(0), shift.row(5));
    }
}
