//! TPS: one additive shift per class prototype, tuned for each image on the marginal entropy of its confident views.
//!
//! `W = normalise(T + S)`, `S = 0` at the start of every image; `loss = H(mean_kept softmax(s f W'))`; AdamW on `S`; answer view 0.

use super::groups::{adamw_steps, views_kept};
use crate::Result;
use crate::methods::aggregate::Ballot;
use crate::methods::optim::{AdamW, AdamWSettings, Optimiser};
use crate::methods::probability::{logits, marginal_entropy, normalise_rows_gradient};
use crate::methods::select::{LowestEntropy, Selector, ViewLogits};
use crate::methods::update::{on_text, shifted};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, ViewSet};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "tps",
    aliases: &[],
    needs: Needs::FEATURES,
    summary: "shifts the class prototypes in feature space by one step on the confident views' marginal entropy",
    docs: "\
What: prototypes W = normalise(T + S) with one shift per class, S = 0 for every image. The int(fraction * V)
views of lowest entropy give the loss, the entropy of their mean distribution; AdamW moves S; view 0 is
answered with the moved prototypes.
Cost: one image-tower pass over the views and two K x D products: no gradient goes through an encoder.
Reference: Sui et al., Just Shift It: Test-Time Prototype Shifting for Zero-Shot Generalization with
Vision-Language Models, WACV 2025.
",
    build: Build::Episodic(|table| Ok(Box::new(Tps { options: Config::read(table)? }))),
    options: Config::OPTIONS,
};

crate::options! {
    /// Options of TPS.
    pub struct Config for "tps" {
        include views_kept;
        include adamw_steps { lr = 5e-3, from "authors' value for ImageNet's shifts; a later comparison has 0.001 elsewhere"; };
    }
}

/// The adapter.
#[derive(Clone, Debug)]
pub struct Tps {
    options: Config,
}

impl Tps {
    fn prototypes(&self, task: &Task, kept: &Matrix) -> Matrix {
        let base = &task.text_features;
        let mut shift = Matrix::zeros(base.rows(), base.cols());
        let settings = AdamWSettings { weight_decay: self.options.weight_decay, ..AdamWSettings::new(self.options.lr) };
        let mut optimiser = AdamW::new(settings);
        for _ in 0..self.options.steps {
            let (text, norms) = shifted(base, &shift);
            let mut gradient = on_text(kept, &text, task.logit_scale, marginal_entropy).gradient;
            normalise_rows_gradient(&text, &norms, &mut gradient);
            optimiser.step(&mut [shift.data_mut()], &[gradient.data()]);
        }
        shifted(base, &shift).0
    }
}

impl Adapter for Tps {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let selection = LowestEntropy { fraction: self.options.fraction }.select(image.features, &views);
        let text = self.prototypes(task, &image.features.select_rows(&selection.selected));
        let first = logits(&image.features.select_rows(&[0]), &text, task.logit_scale);
        Ok(Ballot::from_logits(first.row(0)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry_tests::{names, unit_rows, views};
    use super::*;

    #[test]
    fn the_step_lowers_the_marginal_entropy_and_no_step_is_zero_shot() {
        let task = Task::new(names(6), unit_rows(1, 6, 16), 20.0, 0).unwrap();
        let kept = views(3, 4, 16);
        let value = |text: &Matrix| marginal_entropy(&logits(&kept, text, 20.0)).value;
        let tps = |steps| Tps { options: Config { steps, ..Config::default() } };
        assert!(value(&tps(1).prototypes(&task, &kept)) < value(&task.text_features));
        for (a, b) in tps(0).prototypes(&task, &kept).data().iter().zip(task.text_features.data()) {
            assert!((a - b).abs() < 1e-6);
        }
    }
}
