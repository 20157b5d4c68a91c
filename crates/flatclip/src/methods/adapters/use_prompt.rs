//! USE: TPT on a pseudo label of view 0 and the most confident others, skipped when they agree. Golden cases of loss, gate
//! and gradient on the logits: `se-*`.

use super::prelude::*;
use super::se::{AlphaRule, Se};
use crate::methods::update::tune_on;

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs::CONTEXT,
    summary: "tunes the prompt on a pseudo label of view 0 and confident views, unless they agree",
    docs: "\
What: q = alpha softmax(l_0) + (1 - alpha) mean softmax(selected), as se with alpha = 0.5 + d scale. If every
selected view has the class of view 0, that is the answer (the gate; about two of three ImageNet photos). Else
one AdamW step on the context, from the start for every image, on -sum_k p_k ln q_k: p the mean probability
of view 0 and the selected views, q constant. The answer is the mixture, with the same views and alpha, of the
logits after the step.
Verified are pseudo label, gate, loss and its gradient on the logits; the step is that of tpt.
Cost: one image-tower pass over the views; where the gate is open, one text-tower backward and forward pass.
Reference: USE, ICML 2026 (repository sirujiang/USE).
",
    verified: Verified::AuthorsCode,
    options: Use::OPTIONS,
    ..AdapterSpec::new("use", Build::Episodic(|table| Ok(Box::new(Use::read(table)?))))
};

crate::options! {
    pub struct Use for "use" {
        include view_selection { fraction = 0.1, from "authors' code: 6 of 63"; };
        /// How much the weight of view 0 follows from its rank.
        scale: f64 = 0.4, range between(0.0, 1.0), from "authors' code";
        /// Learning rate.
        lr: f64 = 5e-3, range at_least(0.0), from "authors' code";
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01, range at_least(0.0), from "authors' code";
    }
}

/// `-sum_k p_k ln q_k` with `p` the mean probability of the rows of `logits` and `q` a constant.
pub fn loss(logits: &Matrix, q: &[f64]) -> Loss {
    let costs: Vec<f64> = q.iter().map(|q| -q.max(f64::MIN_POSITIVE).ln()).collect();
    let expected = |p: &[f64]| p.iter().zip(&costs).map(|(p, cost)| p * cost).sum::<f64>();
    let all: Vec<usize> = (0..logits.rows()).collect();
    let value = expected(&mean_probability(logits, &all)) as f32;
    let mut gradient = Matrix::zeros(logits.rows(), logits.cols());
    for (row, at) in logits.iter_rows().enumerate() {
        let p = softmax(at);
        let mean = expected(&p);
        let slopes = p.iter().zip(&costs).map(|(p, cost)| (p * (cost - mean) / all.len() as f64) as f32);
        gradient.row_mut(row).iter_mut().zip(slopes).for_each(|(g, slope)| *g = slope);
    }
    Loss { value, gradient }
}

impl Adapter for Use {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        task.start_pass(Use::NAME).map(|_| ())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let Self { fraction, score, scale, .. } = *self;
        let rule = Se { fraction, score, scale, alpha_rule: AlphaRule::Linear, ..Se::default() };
        let mixture = rule.mixture(&views);
        let mut answer = mixture.probabilities(&views.logits);
        let mut selection = LowestScore::of_scores(1.0, self.score.of_views(&views));
        selection.selected = [&[0], mixture.kept.as_slice()].concat();
        if !mixture.agrees(&views.logits) {
            let kept = image.features.select_rows(&selection.selected);
            let adamw = AdamW::with_decay(self.lr, self.weight_decay);
            let tuned = tune_on(task, Self::NAME, &kept, |logits| loss(logits, &answer), 1, adamw)?;
            let after = ViewLogits::new(image.features, &tuned.text_features, task.logit_scale);
            answer = mixture.probabilities(&after.logits);
        }
        Ok(Decision::from_probabilities(&answer).answer(views.explain(selection)))
    }
}
