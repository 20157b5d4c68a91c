//! C-TPT: TPT with a second term that spreads the class text features, for calibrated answers. Golden cases: `c-tpt-*`.

use super::prelude::*;
use super::tpt::view_0;
use crate::methods::update::{Objective, Tuned, on_text, tune_start};
use flatclip_tensor::ops::l2_norm;

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["ctpt"],
    needs: Needs { ensembles: true, ..Needs::CONTEXT },
    summary: "TPT plus a term that spreads the class text features, for calibration",
    docs: "\
What: TPT's loss minus weight times the mean distance of the unit-norm class text features t_k to their mean
(text-feature dispersion), one joint AdamW step on the context; view 0 is answered.
  loss = H(mean_selected softmax(s f_v T')) - weight mean_k |t_k - mean_j t_j|
weight = 0 is TPT. With a prompt of several templates every one of them is tuned by itself and view 0 is
answered by the mean of their logits: the ensemble rows of the paper, with the templates c-tpt4.
Cost: as tpt; two_step doubles the text-tower passes, every further template adds the same again.
Reference: Yoon et al., C-TPT: Calibrated Test-Time Prompt Tuning for Vision-Language Models via Text
Feature Dispersion, ICLR 2024.
",
    verified: Verified::AuthorsCode,
    options: Config::OPTIONS,
    ..AdapterSpec::new("c-tpt", Build::Episodic(|table| Ok(Box::new(CTpt::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "c-tpt" {
        /// Weight of the dispersion.
        weight: f64 = 50.0, range at_least(0.0), from "authors' scripts: 50 on fine-grained sets, 20 on ImageNet's shifts";
        /// A step on the entropy, then one on the dispersion, with one optimiser state: the authors' alternative.
        two_step: bool = false, from "authors' code";
        include view_selection;
        include adamw_steps;
    }
}

/// `mean_k ||t_k - mean_j t_j||` and its gradient.
pub fn dispersion(text: &Matrix) -> Loss {
    let classes = text.rows() as f64;
    let mut centre = vec![0.0f64; text.cols()];
    for row in text.iter_rows() {
        centre.iter_mut().zip(row).for_each(|(c, &t)| *c += f64::from(t) / classes);
    }
    let mut gradient = Matrix::zeros(text.rows(), text.cols());
    let mut value = 0.0;
    for (k, row) in text.iter_rows().enumerate() {
        let away: Vec<f32> = row.iter().zip(&centre).map(|(&t, c)| (f64::from(t) - c) as f32).collect();
        let distance = l2_norm(&away);
        value += distance / classes;
        let scale = if distance > 0.0 { 1.0 / (classes * distance) } else { 0.0 };
        gradient.row_mut(k).iter_mut().zip(&away).for_each(|(g, &a)| *g = (scale * f64::from(a)) as f32);
    }
    // Every class also moves the centre: minus the mean of the rows' directions.
    let mut pull = vec![0.0f64; text.cols()];
    for row in gradient.iter_rows() {
        pull.iter_mut().zip(row).for_each(|(p, &g)| *p += f64::from(g) / classes);
    }
    for k in 0..text.rows() {
        gradient.row_mut(k).iter_mut().zip(&pull).for_each(|(g, p)| *g = (f64::from(*g) - p) as f32);
    }
    Loss { value: value as f32, gradient }
}

/// `first + scale * second`.
fn sum(mut first: Loss, scale: f64, second: &Loss) -> Loss {
    first.value += (scale * f64::from(second.value)) as f32;
    let pairs = first.gradient.data_mut().iter_mut().zip(second.gradient.data());
    pairs.for_each(|(a, &b)| *a = (f64::from(*a) + scale * f64::from(b)) as f32);
    first
}

pub struct CTpt {
    options: Config,
    /// One for each template of a prompt of several.
    starts: Vec<Task>,
}

impl CTpt {
    pub fn new(options: Config) -> Self {
        Self { options, starts: Vec::new() }
    }

    pub fn adapt_traced(&self, task: &Task, image: &ViewSet<'_>) -> Result<(Decision, Tuned)> {
        image.check(task, &SPEC)?;
        let o = &self.options;
        let views = ViewLogits::of(task, image);
        let selection = LowestScore { fraction: o.fraction, score: o.score }.select(&views);
        let kept = image.features.select_rows(&selection.selected);
        let entropy = |text: &Matrix| on_text(&kept, text, task.logit_scale, marginal_entropy);
        let spread = |text: &Matrix| {
            let zero = Loss { value: 0.0, gradient: Matrix::zeros(text.rows(), text.cols()) };
            sum(zero, -o.weight, &dispersion(text))
        };
        let joint = |text: &Matrix| sum(entropy(text), -o.weight, &dispersion(text));
        let objectives: &[Objective<'_>] = if o.two_step { &[&entropy, &spread] } else { &[&joint] };
        let adamw = AdamW::with_decay(o.lr, o.weight_decay);
        let tuned = tune_start(task, Config::NAME, objectives, o.steps, adamw)?;
        Ok((view_0(task, image, &tuned.text_features).answer(views.explain(selection)), tuned))
    }
}

impl Adapter for CTpt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        self.starts = task.by_template()?;
        let own = if self.starts.is_empty() { std::slice::from_ref(task) } else { &self.starts };
        own.iter().try_for_each(|start| start.start_pass(Config::NAME).map(drop))
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        if self.starts.is_empty() {
            return Ok(self.adapt_traced(task, image)?.0);
        }
        let own = |start| Ok(self.adapt_traced(start, image)?.0.class_scores);
        let logits = self.starts.iter().map(own).collect::<Result<Vec<_>>>()?.concat();
        let logits = Matrix::from_vec(self.starts.len(), task.class_count(), logits);
        let mean = mean_row(&logits, &(0..logits.rows()).collect::<Vec<_>>());
        // The views are distinguished by the features of all templates together.
        let views = ViewLogits::of(task, image);
        let selection = LowestScore { fraction: self.options.fraction, score: self.options.score }.select(&views);
        Ok(Decision::from_logits(&mean).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Clip, LoadOptions};
    use crate::prompt::Prompt;
    use crate::text::Tokenizer;
    use crate::weights::Checkpoint;
    use std::sync::Arc;

    #[test]
    fn dispersion_gradient_matches_differences() {
        let text = unit_rows(3, 4, 5);
        let gradient = dispersion(&text).gradient;
        assert_gradient(&text, gradient.data(), 1e-2, 1e-4, |text| f64::from(dispersion(text).value));
    }

    /// A prompt of several templates: the mean of what each answers alone.
    #[test]
    fn every_template_is_tuned_by_itself() {
        let checkpoint = Checkpoint::embedded("pocket").unwrap().unwrap();
        let clip = Arc::new(Clip::load(&checkpoint, LoadOptions::default()).unwrap());
        let tokenizer = Tokenizer::of(&checkpoint).unwrap();
        let task = |templates: &[&str]| {
            let prompt = Arc::new(Prompt::templates(templates).unwrap());
            let classes: Vec<String> = ["fish", "lamp", "boat"].map(str::to_owned).to_vec();
            Task::from_prompt(&prompt, &clip, &tokenizer, classes, 1).unwrap()
        };
        let features = unit_rows(5, 12, clip.config().embed_dim);
        let logits = |templates: &[&str]| {
            let task = task(templates);
            let mut adapter = CTpt::new(Config { fraction: 0.3, ..Config::default() });
            adapter.prepare(&task).unwrap();
            adapter.adapt(&task, &ViewSet::new("p", &features)).unwrap().class_scores
        };
        let (photo, sketch) = ("a photo of a {}.", "a sketch of the {}.");
        let (one, two, both) = (logits(&[photo]), logits(&[sketch]), logits(&[photo, sketch]));
        assert_ne!(one, two);
        for (mean, (a, b)) in both.iter().zip(one.iter().zip(&two)) {
            assert!((mean - (a + b) / 2.0).abs() < 1e-4, "{mean} {a} {b}");
        }
        assert_eq!(logits(&[photo, photo]), one);
    }

    #[test]
    fn equal_classes_have_no_dispersion_and_a_finite_gradient() {
        let loss = dispersion(&Matrix::from_vec(2, 2, vec![0.6, 0.8, 0.6, 0.8]));
        assert_eq!(loss.value, 0.0);
        assert!(loss.gradient.data().iter().all(|g| g.is_finite()));
    }
}
