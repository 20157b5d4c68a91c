//! AWT: views and texts of a class weighted by entropy, compared by optimal transport. Golden cases: `awt-*`.

use super::prelude::*;
use crate::methods::aggregate::soft_weights;
use rayon::prelude::*;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "weights views and the texts of each class by entropy, and compares them by optimal transport",
    docs: "\
What: each class has M texts, those of the prompt and of the text bank, not averaged; the published method
has a template and 50 descriptions. Views weigh softmax(-H / image_temperature), H the entropy of the mean
logits over texts. A text of class k weighs softmax(-H / text_temperature), H the entropy of view 0's mean
logits with entry k replaced by that text's. For each class a transport plan between both weights (Sinkhorn,
kernel exp(-(1 - cos) / epsilon)) weighs the logits of all pairs of view and text; their sum is the logit.
transport = false takes the product of the two weights as the plan: at epsilon 0.1 nearly the same.
Sinkhorn ends for each class by itself when views change by less than 1e-4 on average; compat = true ends all
classes together at 0.01, as the authors' code does. At most 100 rounds.
Without a text bank M is 1, and only the views are weighted.
Cost: one image-tower pass over the views; V M K D and a few rounds over V M K; memory M K D.
Reference: Zhu et al., AWT: Transferring Vision-Language Models via Augmentation, Weighting, and
Transportation, NeurIPS 2024.
",
    verified: Verified::AuthorsCode,
    options: Awt::OPTIONS,
    ..AdapterSpec::new("awt", Build::Episodic(|table| Ok(Box::new(Awt::read(table)?))))
};

crate::options! {
    pub struct Awt for "awt" {
        /// Temperature of the weights of views.
        image_temperature: f64 = 0.5, range above(0.0), from "authors' code";
        /// Temperature of the weights of texts.
        text_temperature: f64 = 0.5, range above(0.0), from "authors' code";
        /// Whether pairs of view and text are weighted by a transport plan, or by the product of both weights.
        transport: bool = true, from "paper";
        /// Temperature of the kernel of Sinkhorn's rounds.
        epsilon: f64 = 0.1, range above(0.0), from "authors' code";
        /// End Sinkhorn's rounds of all classes together, as the authors' code does.
        compat: bool = false, from "choice";
    }
}

/// Most rounds of Sinkhorn (authors' code).
const ROUNDS: usize = 100;
/// Mean change of a view's factor at which the authors' code ends all classes.
const JOINT_STOP: f64 = 0.01;
/// The same for one class by itself: chunks of classes give the same answer, and the plan is closer to its limit.
const CLASS_STOP: f64 = 1e-4;

#[derive(Clone, Debug)]
pub struct Weighted {
    pub views: Vec<f64>,
    /// Of the texts of each class, `[K][M]`.
    pub texts: Vec<Vec<f64>>,
    /// Plan of each class, `[K][V * M]`.
    pub plans: Vec<Vec<f64>>,
    /// Sinkhorn's rounds, the most of any class.
    pub rounds: usize,
    pub logits: Vec<f32>,
    mean: ViewLogits,
}

struct Sinkhorn<'w> {
    /// `[V * M]`.
    kernel: Vec<f64>,
    views: &'w [f64],
    texts: Vec<f64>,
    r: Vec<f64>,
    c: Vec<f64>,
}

impl<'w> Sinkhorn<'w> {
    fn new(kernel: Vec<f64>, views: &'w [f64], texts: &[f64]) -> Self {
        let (r, c) = (vec![1.0; views.len()], vec![1.0; texts.len()]);
        Self { kernel, views, texts: texts.to_vec(), r, c }
    }

    /// One round; the sum over views of how much their factors changed.
    fn round(&mut self) -> f64 {
        let (texts, mut change) = (self.texts.len(), 0.0);
        for (view, row) in self.kernel.chunks_exact(texts).enumerate() {
            let next = self.views[view] / row.iter().zip(&self.c).map(|(g, c)| g * c).sum::<f64>();
            change += (next - self.r[view]).abs();
            self.r[view] = next;
        }
        let mut sums = vec![0.0f64; texts];
        for (row, r) in self.kernel.chunks_exact(texts).zip(&self.r) {
            sums.iter_mut().zip(row).for_each(|(s, g)| *s += g * r);
        }
        self.c = self.texts.iter().zip(sums).map(|(w, sum)| w / sum).collect();
        change
    }

    fn plan(self) -> Vec<f64> {
        let (r, c) = (&self.r, &self.c);
        let rows = self.kernel.chunks_exact(c.len()).zip(r);
        rows.flat_map(|(row, r)| row.iter().zip(c).map(move |(g, c)| r * g * c)).collect()
    }
}

/// Weights of the texts of every class, from `at[m]`, the logits of view 0 at text m.
fn text_weights(mean: &[f32], at: &[&[f32]], temperature: f64) -> Vec<Vec<f64>> {
    let p = softmax(mean);
    let highest = mean.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let log_sum = f64::from(highest) + mean.iter().map(|&z| f64::from(z - highest).exp()).sum::<f64>().ln();
    let expected: f64 = p.iter().zip(mean).map(|(p, &z)| p * f64::from(z)).sum();
    // The entropy of the mean logits with entry k replaced by z: only that entry's part changes.
    let replaced = |k: usize, z: f32| {
        if 1.0 - p[k] < 1e-6 {
            // Nothing but entry k counts: the difference to 1 would have lost its digits.
            let mut row = mean.to_vec();
            row[k] = z;
            return f64::from(entropy(&row));
        }
        let (old, new, z) = (f64::from(mean[k]), (f64::from(z) - log_sum).exp(), f64::from(z));
        let total = 1.0 - p[k] + new;
        log_sum + total.ln() - (expected - p[k] * old + new * z) / total
    };
    let weights = |k: usize| {
        let scores = at.iter().map(|row| replaced(k, row[k]) as f32);
        soft_weights(scores, temperature as f32)
    };
    (0..mean.len()).into_par_iter().map(weights).collect()
}

impl Awt {
    /// The weights of an image's views (`[V, D]`) and of the texts (one `[K, D]` for each m), and the logits.
    pub fn weighted(&self, features: &Matrix, texts: &[&Matrix], scale: f32) -> Weighted {
        let all: Vec<Matrix> = texts.iter().map(|text| logits(features, text, scale)).collect();
        let mut mean = Matrix::zeros(features.rows(), all[0].cols());
        for part in &all {
            mean.data_mut().iter_mut().zip(part.data()).for_each(|(m, z)| *m += z / texts.len() as f32);
        }
        let mean = ViewLogits::from_logits(mean);
        let views = soft_weights(mean.entropies.iter().copied(), self.image_temperature as f32);
        let at: Vec<&[f32]> = all.iter().map(|part| part.row(0)).collect();
        let texts = text_weights(mean.logits.row(0), &at, self.text_temperature);
        let of_class = |k: usize| -> Vec<f64> {
            (0..features.rows()).flat_map(|v| all.iter().map(move |part| f64::from(part.row(v)[k]))).collect()
        };
        let (plans, rounds) = self.plans(&views, &texts, f64::from(scale), of_class);
        let logit =
            |(k, plan): (usize, &Vec<f64>)| plan.iter().zip(of_class(k)).map(|(p, z)| p * z).sum::<f64>() as f32;
        let logits = plans.par_iter().enumerate().map(logit).collect();
        Weighted { views, texts, plans, rounds, logits, mean }
    }

    /// The plan of every class, and the most rounds that one took.
    fn plans(
        &self,
        views: &[f64],
        texts: &[Vec<f64>],
        scale: f64,
        of_class: impl Fn(usize) -> Vec<f64> + Sync,
    ) -> (Vec<Vec<f64>>, usize) {
        if !self.transport {
            let product = |w: &Vec<f64>| views.iter().flat_map(|u| w.iter().map(move |w| u * w)).collect();
            return (texts.iter().map(product).collect(), 0);
        }
        let kernel = |k| of_class(k).iter().map(|z| (-(1.0 - z / scale) / self.epsilon).exp()).collect();
        let start = |(k, w): (usize, &Vec<f64>)| Sinkhorn::new(kernel(k), views, w);
        let mut states: Vec<Sinkhorn<'_>> = texts.par_iter().enumerate().map(start).collect();
        if self.compat {
            let enough = JOINT_STOP * (views.len() * texts.len()) as f64;
            let mut joint = || states.par_iter_mut().map(Sinkhorn::round).collect::<Vec<f64>>().iter().sum::<f64>();
            let rounds = rounds_until(|| joint() < enough);
            return (states.into_iter().map(Sinkhorn::plan).collect(), rounds);
        }
        let enough = CLASS_STOP * views.len() as f64;
        let by_itself = |state: &mut Sinkhorn<'_>| rounds_until(|| state.round() < enough);
        let rounds = states.par_iter_mut().map(by_itself).max().unwrap_or(0);
        (states.into_iter().map(Sinkhorn::plan).collect(), rounds)
    }
}

/// Rounds until the change was small enough.
fn rounds_until(mut is_enough: impl FnMut() -> bool) -> usize {
    (1..=ROUNDS).find(|_| is_enough()).unwrap_or(ROUNDS)
}

impl Adapter for Awt {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let texts: Vec<&Matrix> = match &task.bank {
            Some(bank) => std::iter::once(bank.base()).chain(bank.perturbed()).collect(),
            None => vec![task.text_features()],
        };
        let found = self.weighted(image.features, &texts, task.logit_scale);
        let all = LowestScore::of_scores(1.0, found.mean.entropies.clone());
        Ok(Decision::from_logits(&found.logits).answer(found.mean.explain(all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_of_a_replaced_entropy_is_the_entropy_of_the_row() {
        for spread in [3.0f32, 60.0] {
            let mean: Vec<f32> = [0.1, 0.9, -0.4, 0.5].iter().map(|z| z * spread).collect();
            let at: Vec<f32> = [0.3, 0.8, 0.2, -0.5].iter().map(|z| z * spread).collect();
            let found = text_weights(&mean, &[&at, &mean], 0.5);
            for k in 0..4 {
                let mut row = mean.clone();
                row[k] = at[k];
                let expected = soft_weights([entropy(&row), entropy(&mean)].into_iter(), 0.5);
                assert!((found[k][0] - expected[0]).abs() < 1e-5, "{k}: {found:?} {expected:?}");
            }
        }
    }

    #[test]
    fn plans_have_the_weights_as_margins_and_one_text_leaves_the_views() {
        let (image, first, second) = (views(3, 6, 16), unit_rows(1, 5, 16), unit_rows(2, 5, 16));
        let found = Awt::default().weighted(&image, &[&first, &second], 30.0);
        for (plan, texts) in found.plans.iter().zip(&found.texts) {
            for m in 0..2 {
                let sum: f64 = plan.iter().skip(m).step_by(2).sum();
                assert!((sum - texts[m]).abs() < 1e-9);
            }
            for (v, pair) in plan.chunks_exact(2).enumerate() {
                assert!((pair.iter().sum::<f64>() - found.views[v]).abs() < 1e-3);
            }
        }
        let product = Awt { transport: false, ..Awt::default() };
        let (one, transported) = (product.weighted(&image, &[&first], 30.0), Awt::default());
        assert_close(&one.logits, &transported.weighted(&image, &[&first], 30.0).logits, 1e-3);
    }
}
