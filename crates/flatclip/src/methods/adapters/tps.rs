//! TPS: one additive shift per class prototype, tuned for each image on the marginal entropy of its confident views.
//! Golden cases: `tps-*`.

use super::prelude::*;
use crate::methods::update::{on_text, shifted};

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "shifts the class prototypes in feature space by one step on the confident views' marginal entropy",
    docs: "\
What: prototypes W = normalise(T + S) with one shift per class (or one for all), S = 0 for every image. At
each step, the int(fraction * V) views of lowest entropy under the current W give the loss
  loss = H(mean_selected softmax(s f_v W'));
AdamW moves S; view 0 is answered with the moved prototypes. The selection in the explanation is that of the
first step.
Cost: one image-tower pass over the views and two K x D products: no gradient goes through an encoder.
Reference: Sui et al., Just Shift It: Test-Time Prototype Shifting for Zero-Shot Generalization with
Vision-Language Models, WACV 2025.
",
    verified: Verified::AuthorsCode,
    options: Tps::OPTIONS,
    ..AdapterSpec::new("tps", Build::Episodic(|table| Ok(Box::new(Tps::read(table)?))))
};

crate::options! {
    pub struct Tps for "tps" {
        include view_selection;
        include adamw_steps { lr = 5e-3, from "authors' value for ImageNet's shifts; a later comparison has 0.001 elsewhere"; };
        /// One shift for all classes instead of one for each.
        shared: bool = false, from "authors' example";
    }
}

#[derive(Clone, Debug)]
pub struct Step {
    /// Entropy of every view before the step.
    pub entropies: Vec<f32>,
    /// The views that the loss was made of, surest first.
    pub selected: Vec<usize>,
    pub loss: f32,
    /// Its gradient, of the shape of the shift.
    pub gradient: Vec<f32>,
    /// The shift after the step: `[K, D]`, or `[D]` if classes share it.
    pub shift: Vec<f32>,
}

impl Tps {
    /// The shifted prototypes of an image with these views, and how they got there.
    pub fn shifted(&self, task: &Task, features: &Matrix) -> (Matrix, Vec<Step>) {
        let base = task.text_features();
        let mut optimiser = AdamW::with_decay(self.lr, self.weight_decay);
        let mut shift = vec![0.0f32; if self.shared { base.cols() } else { base.data().len() }];
        let mut steps = Vec::with_capacity(self.steps);
        for _ in 0..self.steps {
            let (text, norms) = shifted(base, &self.spread(&shift, base));
            // The views are chosen anew at every step.
            let views = ViewLogits::new(features, &text, task.logit_scale);
            let selected = LowestScore { fraction: self.fraction, score: self.score }.select(&views).selected;
            let mut loss = on_text(&features.select_rows(&selected), &text, task.logit_scale, marginal_entropy);
            normalise_rows_gradient(&text, &norms, &mut loss.gradient);
            let gradient = if self.shared { column_sums(&loss.gradient) } else { loss.gradient.into_vec() };
            optimiser.step(&mut [&mut shift], &[&gradient]);
            let entropies = views.entropies;
            steps.push(Step { entropies, selected, loss: loss.value, gradient, shift: shift.clone() });
        }
        (shifted(base, &self.spread(&shift, base)).0, steps)
    }

    fn spread(&self, shift: &[f32], base: &Matrix) -> Matrix {
        let copies = if self.shared { base.rows() } else { 1 };
        Matrix::from_vec(base.rows(), base.cols(), shift.repeat(copies))
    }
}

fn column_sums(rows: &Matrix) -> Vec<f32> {
    let mut sums = vec![0.0f64; rows.cols()];
    rows.iter_rows().for_each(|row| sums.iter_mut().zip(row).for_each(|(s, &x)| *s += f64::from(x)));
    sums.into_iter().map(|s| s as f32).collect()
}

impl Adapter for Tps {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let selection = LowestScore { fraction: self.fraction, score: self.score }.select(&views);
        let (text, _) = self.shifted(task, image.features);
        let first = logits(&image.features.select_rows(&[0]), &text, task.logit_scale);
        Ok(Decision::from_logits(first.row(0)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tps(steps: usize, shared: bool) -> Tps {
        Tps { steps, shared, fraction: 1.0, ..Tps::default() }
    }

    #[test]
    fn the_step_lowers_the_marginal_entropy_and_no_step_is_zero_shot() {
        let task = task(6, 16, 20.0);
        let kept = views(3, 4, 16);
        let value = |text: &Matrix| marginal_entropy(&logits(&kept, text, 20.0)).value;
        for shared in [false, true] {
            assert!(value(&tps(1, shared).shifted(&task, &kept).0) < value(task.text_features()));
            assert_close(tps(0, shared).shifted(&task, &kept).0.data(), task.text_features().data(), 1e-6);
        }
    }

    #[test]
    fn views_are_chosen_anew_at_every_step() {
        let task = task(6, 16, 20.0);
        let large = Tps { steps: 3, lr: 0.3, fraction: 0.25, ..Tps::default() };
        let changes = |seed| {
            let steps = large.shifted(&task, &views(seed, 16, 16)).1;
            steps.iter().any(|step| step.selected != steps[0].selected)
        };
        assert!((0..10).any(changes));
    }
}
