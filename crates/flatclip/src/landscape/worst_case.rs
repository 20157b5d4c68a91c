//! The largest training loss within a radius of the prompt: the term of the paper's bound that a tuner can lower.
//!
//! ```text
//! hat l^rho = 1/n sum_i max_{|eps| <= rho} l_i(p + eps)     the bound's: every image has its own worst eps
//! l_shared  = max_{|eps| <= rho} 1/n sum_i l_i(p + eps)     what SAPT trains on: one eps for all of them
//! ```
//!
//! Neither maximum can be computed. What is found by gradient ascent, by random directions and by one step along each image's own
//! gradient lies inside the ball, so every number here is a lower estimate.

use super::Probe;
use super::surface::row_losses;
use crate::methods::sam::Ascent;
use crate::methods::tuners::cross_entropy;
use crate::model::{ClassTokens, Context, ContextPass, TextTower};
use crate::prompt::logits;
use crate::rng::Stream;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How hard the maximum is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorstCaseSearch {
    /// rho: the Euclidean length of eps over the whole context.
    pub radius: f32,
    /// Steps of each of the two ascents of the mean loss.
    pub steps: usize,
    /// Random directions.
    pub directions: usize,
    /// Images, spread over the set, that also get a step along their own gradient. Each costs a forward and a backward pass of
    /// the text tower.
    pub own_gradients: usize,
    /// eta: outputs and labels are taken to be at least this, as the theorem assumes; 0 for one-hot labels.
    pub floor: f64,
    /// Seed of the directions.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstCase {
    /// rho.
    pub radius: f32,
    /// n.
    pub images: usize,
    /// Mean loss at the prompt.
    pub centre: f64,
    /// The largest mean loss of one eps for all images.
    pub shared: f64,
    /// The mean of every image's largest loss: the bound's term.
    pub per_image: f64,
    /// The largest loss of any image anywhere: stands for M.
    pub largest: f64,
    /// Mean of `|y - f|_1` over the images, each at its own worst context.
    pub distance: f64,
    /// Mean of its square.
    pub distance_squared: f64,
    /// Contexts that all images were tried at.
    pub contexts: usize,
    /// Images that had a step along their own gradient.
    pub own_gradients: usize,
}

/// Contexts that the text tower is given at once.
const BATCH: usize = 16;

struct Search<'a> {
    tower: &'a Arc<TextTower>,
    classes: &'a ClassTokens,
    centre: &'a Context,
    probe: &'a Probe,
    labels: &'a [usize],
    scale: f32,
    radius: f64,
    /// The largest loss so far: of each image, and of the mean.
    worst: Vec<f32>,
    shared: f64,
    contexts: usize,
}

impl WorstCase {
    /// Looks for the worst case of a labelled probe.
    pub fn measure(
        tower: &Arc<TextTower>,
        classes: &ClassTokens,
        context: &Context,
        logit_scale: f32,
        probe: &Probe,
        search: &WorstCaseSearch,
    ) -> Result<Self> {
        let Some(labels) = &probe.labels else {
            return Err(Error::config("landscape.probe", "the training loss needs labels"));
        };
        if !(search.radius.is_finite() && search.radius >= 0.0) {
            let reason = format!("expected a radius of 0 or more, found {}", search.radius);
            return Err(Error::config("radius", reason));
        }
        let mut found = Search {
            tower,
            classes,
            centre: context,
            probe,
            labels,
            scale: logit_scale,
            radius: f64::from(search.radius),
            worst: vec![f32::NEG_INFINITY; labels.len()],
            shared: f64::NEG_INFINITY,
            contexts: 0,
        };
        let centre = found.visit(&[vec![0.0; context.data.len()]])?[0];
        let random = found.random(search)?;
        found.ascend(vec![0.0; context.data.len()], search.steps)?;
        if let Some(best) = random {
            found.ascend(best, search.steps)?;
        }
        let own = found.own_gradients(search.own_gradients)?;
        Ok(found.result(centre, own, search.floor))
    }
}

impl Search<'_> {
    /// Tries all images at `p + eps` for every eps; gives the mean losses.
    fn visit(&mut self, steps: &[Vec<f32>]) -> Result<Vec<f64>> {
        let mut means = Vec::with_capacity(steps.len());
        for batch in steps.chunks(BATCH) {
            let contexts: Vec<Context> = batch.iter().map(|eps| moved(self.centre, eps)).collect();
            for text in self.tower.encode(self.classes, &contexts)? {
                let losses = row_losses(self.probe, &text, self.scale)?;
                let mean = losses.iter().map(|&l| f64::from(l)).sum::<f64>() / losses.len() as f64;
                self.worst.iter_mut().zip(&losses).for_each(|(worst, &loss)| *worst = worst.max(loss));
                self.shared = self.shared.max(mean);
                self.contexts += 1;
                means.push(mean);
            }
        }
        Ok(means)
    }

    /// Random directions of full length; the one with the largest mean loss.
    fn random(&mut self, search: &WorstCaseSearch) -> Result<Option<Vec<f32>>> {
        let draw = |index: usize| {
            let mut stream = Stream::new(search.seed, &["worst-case", &index.to_string()]);
            let direction: Vec<f32> = (0..self.centre.data.len()).map(|_| stream.normal() as f32).collect();
            scaled(&direction, self.radius)
        };
        let directions: Vec<Vec<f32>> = (0..search.directions).map(draw).collect();
        let means = self.visit(&directions)?;
        let best = (0..means.len()).max_by(|&a, &b| means[a].total_cmp(&means[b]));
        Ok(best.map(|index| directions[index].clone()))
    }

    /// Projected gradient ascent of the mean loss: from the prompt, the first step is SAM's.
    fn ascend(&mut self, mut eps: Vec<f32>, steps: usize) -> Result<()> {
        for _ in 0..steps {
            let pass = self.tower.pass(self.classes, &[moved(self.centre, &eps)])?;
            let gradient = self.gradient(&pass, &self.probe.features, self.labels)?;
            let step = scaled(&gradient, self.radius);
            eps.iter_mut().zip(&step).for_each(|(e, s)| *e += s);
            if l2_norm(&eps) > self.radius {
                eps = scaled(&eps, self.radius);
            }
            self.visit(std::slice::from_ref(&eps))?;
        }
        Ok(())
    }

    /// One step of full length along each image's own gradient, for images spread over the set.
    fn own_gradients(&mut self, most: usize) -> Result<usize> {
        let count = most.min(self.labels.len());
        let pass = self.tower.pass(self.classes, std::slice::from_ref(self.centre))?;
        let images: Vec<usize> = (0..count).map(|i| i * self.labels.len() / count).collect();
        for batch in images.chunks(BATCH) {
            let mut contexts = Vec::with_capacity(batch.len());
            for &image in batch {
                let one = self.probe.features.select_rows(&[image]);
                let gradient = self.gradient(&pass, &one, &self.labels[image..=image])?;
                contexts.push(moved(self.centre, &scaled(&gradient, self.radius)));
            }
            for (&image, text) in batch.iter().zip(self.tower.encode(self.classes, &contexts)?) {
                let one = Probe {
                    name: String::new(),
                    features: self.probe.features.select_rows(&[image]),
                    labels: Some(vec![self.labels[image]]),
                };
                let loss = row_losses(&one, &text, self.scale)?[0];
                self.worst[image] = self.worst[image].max(loss);
            }
        }
        Ok(count)
    }

    fn gradient(&self, pass: &ContextPass, images: &Matrix, labels: &[usize]) -> Result<Vec<f32>> {
        let entropy = cross_entropy(&logits(images, &pass.features()[0], self.scale), labels);
        let gradient = pass.gradient(&[entropy.d_text(images, self.scale)])?;
        Ok(gradient.into_iter().flat_map(|context| context.data).collect())
    }

    fn result(self, centre: f64, own_gradients: usize, floor: f64) -> WorstCase {
        let n = self.worst.len().max(1) as f64;
        let mean = |f: &dyn Fn(f64) -> f64| self.worst.iter().map(|&loss| f(f64::from(loss))).sum::<f64>() / n;
        // For a one-hot label, |y - f|_1 = 2 (1 - f_y), and f_y = exp(-loss). Raising the label's other entries to the floor
        // takes at most as much away as the label itself moves: what is left is a lower estimate.
        let others = floor * (self.classes.classes.len().max(1) - 1) as f64;
        let label_moves = 2.0 * others / (1.0 + others);
        let distance = |loss: f64| (2.0 * (1.0 - (-loss).exp().max(floor)) - label_moves).max(0.0);
        WorstCase {
            radius: self.radius as f32,
            images: self.worst.len(),
            centre,
            shared: self.shared,
            per_image: mean(&|loss| loss),
            largest: self.worst.iter().copied().fold(f32::NEG_INFINITY, f32::max).into(),
            distance: mean(&distance),
            distance_squared: mean(&|loss| distance(loss).powi(2)),
            contexts: self.contexts,
            own_gradients,
        }
    }
}

fn moved(context: &Context, eps: &[f32]) -> Context {
    Context { data: context.data.iter().zip(eps).map(|(p, e)| p + e).collect(), ..context.clone() }
}

/// SAM's step along a direction: the direction with the given length; a zero direction stays.
fn scaled(direction: &[f32], length: f64) -> Vec<f32> {
    Ascent::sam(length).epsilon_of(&[(&[direction.len()], direction)], &[direction]).swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Clip, LoadOptions};
    use crate::prompt::{Prompt, PromptKind};
    use crate::text::Tokenizer;

    /// The pocket model, four classes, a probe of text features of another template with their labels.
    fn measure(radius: f32, steps: usize, directions: usize, own_gradients: usize) -> WorstCase {
        let checkpoint = crate::weights::Checkpoint::embedded("pocket").unwrap().unwrap();
        let clip = Arc::new(Clip::load(&checkpoint, LoadOptions::default()).unwrap());
        let tokenizer = Tokenizer::of(&checkpoint).unwrap();
        let classes: Vec<String> = ["fish", "lamp", "boat", "clock"].map(String::from).to_vec();
        let other = Prompt::templates(&["a drawing of a {}."]).unwrap();
        assert!(matches!(other.kind, PromptKind::Templates(_)));
        let features = other.text_features(&clip, &tokenizer, &classes).unwrap();
        let prompt = Arc::new(Prompt::templates(&["a photo of a {}."]).unwrap());
        let task = crate::methods::Task::from_prompt(&prompt, &clip, &tokenizer, classes, 0).unwrap();
        let side = task.text_side("test").unwrap();
        let probe = Probe { name: "p".into(), features, labels: Some(vec![0, 1, 2, 3]) };
        let search = WorstCaseSearch { radius, steps, directions, own_gradients, floor: 0.0, seed: 1 };
        let context = task.start_context("test").unwrap();
        WorstCase::measure(side.tower, side.tokens, context, task.logit_scale, &probe, &search).unwrap()
    }

    #[test]
    fn without_a_radius_every_term_is_the_loss_at_the_prompt() {
        let w = measure(0.0, 2, 2, 4);
        assert!((w.shared - w.centre).abs() < 1e-6 && (w.per_image - w.centre).abs() < 1e-6, "{w:?}");
        assert_eq!((w.images, w.contexts, w.own_gradients), (4, 1 + 2 + 2 * 2, 4));
    }

    #[test]
    fn an_eps_of_ones_own_is_at_least_as_bad_as_a_shared_one_and_ascent_beats_chance() {
        let w = measure(0.5, 4, 4, 4);
        assert!(w.centre < w.shared && w.shared <= w.per_image && w.per_image <= w.largest, "{w:?}");
        let chance = measure(0.5, 0, 8, 0);
        assert!(chance.shared < w.shared, "{} by chance, {} by ascent", chance.shared, w.shared);
        assert!((0.0..=2.0).contains(&w.distance) && w.distance_squared >= w.distance * w.distance);
    }
}
