//! The largest training loss within a radius of the prompt: the term of the paper's bound that a tuner can lower.
//!
//! ```text
//! hat l^rho = 1/n sum_i max_{|eps| <= rho} l_i(p + eps)     the bound's: every image has its own worst eps
//! l_shared  = max_{|eps| <= rho} 1/n sum_i l_i(p + eps)     what SAPT trains on: one eps for all of them
//! sharpness = l_shared - l(p)
//! ```
//!
//! Neither maximum can be computed. What is found by gradient ascent and by random directions lies inside the ball, so every
//! maximum here is a lower estimate.

use super::floor::{Floor, RowLoss};
use super::{Ball, Probe, spread};
use crate::tuners::cross_entropy;
use flatclip::methods::probability::{mean_entropy, softmax};
use flatclip::methods::update::on_text;
use flatclip::prompt::logits;
use flatclip::surface::check_probe;
use flatclip::{Error, Matrix, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// How hard the maximum is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorstCaseSearch {
    /// Steps of each of the two ascents of the mean loss.
    pub steps: usize,
    /// Random directions.
    pub directions: usize,
    /// Images, spread over the set, that also get two ascents of their own: of their cross-entropy and of their entropy.
    pub own_images: usize,
    /// Steps of those. Each costs a forward and a backward pass of the text tower.
    pub own_steps: usize,
    /// eta: outputs and labels are raised to it, as the theorem assumes.
    pub floor: Floor,
    /// Seed of the directions.
    pub seed: u64,
}

/// What was found. Losses are those of outputs and labels raised to the floor, where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstCase {
    /// rho.
    pub radius: f32,
    /// n.
    pub images: usize,
    /// Mean loss at the prompt.
    pub centre: f64,
    /// The largest mean loss of one eps for all images: a lower estimate.
    pub shared: f64,
    /// The mean of every image's largest loss, the bound's term: a lower estimate.
    pub per_image: f64,
    /// The largest loss of any image anywhere, without the floor: a lower estimate of what cross-entropy reaches.
    pub largest_found: f64,
    /// Mean of `|y - f|_1` over the images, each at its theta-tilde: the context where the larger of its cross-entropy and its
    /// entropy is largest.
    pub distance: f64,
    /// Mean of its square.
    pub distance_squared: f64,
    /// Share of the images that have an output below the floor at the prompt.
    pub below_floor: f64,
    /// Contexts that all images were tried at.
    pub contexts: usize,
    /// Steps of the ascents of the mean loss.
    pub steps: usize,
    /// Their starts: the prompt, and the worst random direction.
    pub starts: usize,
    /// Random directions.
    pub directions: usize,
    /// Images that had ascents of their own.
    pub own_images: usize,
    /// Steps of those.
    pub own_steps: usize,
}

impl WorstCase {
    /// Looks for the worst case of a labelled probe.
    pub fn measure(ball: &Ball<'_>, probe: &Probe, search: &WorstCaseSearch) -> Result<Self> {
        let Some(labels) = &probe.labels else {
            return Err(Error::config("landscape.probe", "the training loss needs labels"));
        };
        ball.check("radius")?;
        let mut found = Search::new(probe, labels, ball.scale, search.floor);
        let centre = found.visit(ball, &[ball.zero()])?[0];
        let random = ball.random(search.directions, search.seed, "worst-case");
        let means = found.visit(ball, &random)?;
        let best = (0..means.len()).max_by(|&a, &b| means[a].total_cmp(&means[b]));
        let starts: Vec<Vec<f32>> = std::iter::once(ball.zero()).chain(best.map(|i| random[i].clone())).collect();
        found.ascend(ball, starts.clone(), search.steps)?;
        let own_images = found.own_ascents(ball, search.own_images, search.own_steps)?;
        Ok(Self {
            radius: ball.radius as f32,
            images: labels.len(),
            centre,
            shared: found.shared,
            per_image: found.mean(|worst| worst.cross),
            largest_found: found.largest_found,
            distance: found.mean(|worst| worst.tilde.1),
            distance_squared: found.mean(|worst| worst.tilde.1.powi(2)),
            below_floor: found.below_floor,
            contexts: found.contexts,
            steps: search.steps,
            starts: starts.len(),
            directions: search.directions,
            own_images,
            own_steps: search.own_steps,
        })
    }

    /// The rise of the mean loss for one eps of all images, the sharpness at the radius: a lower estimate.
    pub fn sharpness(&self) -> f64 {
        self.shared - self.centre
    }

    /// How the sharpness was found.
    pub fn found_by(&self) -> String {
        let (steps, starts) = (self.steps, self.starts);
        format!("ascent with {steps} steps from {starts} starts, and {} random directions", self.directions)
    }
}

/// What was found for one image.
#[derive(Clone, Copy)]
struct Worst {
    /// The largest cross-entropy.
    cross: f64,
    /// The larger of cross-entropy and entropy at theta-tilde, and `|y - f|_1` there.
    tilde: (f64, f64),
}

struct Search<'a> {
    probe: &'a Probe,
    labels: &'a [usize],
    scale: f32,
    floor: Floor,
    worst: Vec<Worst>,
    largest_found: f64,
    below_floor: f64,
    shared: f64,
    contexts: usize,
}

impl<'a> Search<'a> {
    fn new(probe: &'a Probe, labels: &'a [usize], scale: f32, floor: Floor) -> Self {
        let nothing = Worst { cross: f64::NEG_INFINITY, tilde: (f64::NEG_INFINITY, 0.0) };
        let (low, worst) = (f64::NEG_INFINITY, vec![nothing; labels.len()]);
        Self { probe, labels, scale, floor, worst, largest_found: low, below_floor: 0.0, shared: low, contexts: 0 }
    }

    fn note(&mut self, image: usize, loss: RowLoss) {
        let worst = &mut self.worst[image];
        worst.cross = worst.cross.max(loss.cross);
        let larger = loss.cross.max(loss.entropy);
        if larger > worst.tilde.0 {
            worst.tilde = (larger, loss.distance);
        }
        self.largest_found = self.largest_found.max(loss.plain);
    }

    /// Tries all images under these text features; gives the mean loss.
    fn see(&mut self, text: &Matrix) -> Result<f64> {
        check_probe(self.probe, text)?;
        let (floor, labels) = (self.floor, self.labels);
        let outputs = logits(&self.probe.features, text, self.scale);
        let losses: Vec<RowLoss> =
            labels.par_iter().enumerate().map(|(row, &label)| floor.losses(outputs.row(row), label)).collect();
        if self.contexts == 0 {
            let below = (0..outputs.rows()).filter(|&row| floor.is_above(&softmax(outputs.row(row)))).count();
            self.below_floor = below as f64 / labels.len().max(1) as f64;
        }
        let mean = losses.iter().map(|loss| loss.cross).sum::<f64>() / losses.len() as f64;
        losses.into_iter().enumerate().for_each(|(image, loss)| self.note(image, loss));
        self.shared = self.shared.max(mean);
        self.contexts += 1;
        Ok(mean)
    }

    /// Tries all images at every eps; gives the mean losses.
    fn visit(&mut self, ball: &Ball<'_>, steps: &[Vec<f32>]) -> Result<Vec<f64>> {
        let mut means = Vec::with_capacity(steps.len());
        ball.visit(steps, |_, text| {
            means.push(self.see(text)?);
            Ok(())
        })?;
        Ok(means)
    }

    fn ascend(&mut self, ball: &Ball<'_>, starts: Vec<Vec<f32>>, steps: usize) -> Result<()> {
        ball.ascend(starts, steps, |_, text| {
            self.see(text)?;
            let outputs = logits(&self.probe.features, text, self.scale);
            Ok(cross_entropy(&outputs, self.labels).d_text(&self.probe.features, self.scale))
        })
    }

    /// Ascents of single images, spread over the set: of their cross-entropy, and of their entropy, which theta-tilde needs too.
    fn own_ascents(&mut self, ball: &Ball<'_>, most: usize, steps: usize) -> Result<usize> {
        let images = spread(self.labels.len(), most);
        for of_labels in [true, false] {
            ball.ascend(vec![ball.zero(); images.len()], steps, |index, text| {
                let image = images[index];
                let (one, label) = (self.probe.features.select_rows(&[image]), self.labels[image]);
                let outputs = logits(&one, text, self.scale);
                self.note(image, self.floor.losses(outputs.row(0), label));
                Ok(if of_labels {
                    cross_entropy(&outputs, &[label]).d_text(&one, self.scale)
                } else {
                    on_text(&one, text, self.scale, mean_entropy).gradient
                })
            })?;
        }
        Ok(images.len())
    }

    fn mean(&self, of: impl Fn(&Worst) -> f64) -> f64 {
        self.worst.iter().map(of).sum::<f64>() / self.worst.len().max(1) as f64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flatclip::methods::Task;
    use flatclip::model::{Clip, LoadOptions};
    use flatclip::prompt::Prompt;
    use flatclip::text::Tokenizer;
    use std::sync::Arc;

    /// The pocket model, four classes, a probe of text features of another template with their labels.
    pub(in crate::flatness) fn pocket() -> (Task, Probe) {
        let checkpoint = flatclip::weights::Checkpoint::embedded("pocket").unwrap().unwrap();
        let clip = Arc::new(Clip::load(&checkpoint, LoadOptions::default()).unwrap());
        let tokenizer = Tokenizer::of(&checkpoint).unwrap();
        let classes: Vec<String> = ["fish", "lamp", "boat", "clock"].map(String::from).to_vec();
        let other = Prompt::templates(&["a drawing of a {}."]).unwrap();
        let features = other.text_features(&clip, &tokenizer, &classes).unwrap();
        let prompt = Arc::new(Prompt::templates(&["a photo of a {}."]).unwrap());
        let task = Task::from_prompt(&prompt, &clip, &tokenizer, classes, 0).unwrap();
        (task, Probe { name: "p".into(), features, labels: Some(vec![0, 1, 2, 3]) })
    }

    fn measure(radius: f64, steps: usize, directions: usize, own_images: usize, floor: Floor) -> WorstCase {
        let (task, probe) = pocket();
        let search = WorstCaseSearch { steps, directions, own_images, own_steps: 4, floor, seed: 1 };
        WorstCase::measure(&Ball::of(&task, "test", radius).unwrap(), &probe, &search).unwrap()
    }

    #[test]
    fn without_a_radius_every_term_is_the_loss_at_the_prompt() {
        let w = measure(0.0, 2, 2, 4, Floor::NONE);
        assert!(w.sharpness().abs() < 1e-6 && (w.per_image - w.centre).abs() < 1e-6, "{w:?}");
        // The prompt, the directions, and two ascents with their starts.
        assert_eq!((w.images, w.contexts, w.own_images, w.below_floor), (4, 1 + 2 + 2 * 3, 4, 0.0));
    }

    #[test]
    fn an_eps_of_ones_own_is_at_least_as_bad_as_a_shared_one_and_ascent_beats_chance() {
        let w = measure(0.5, 4, 4, 4, Floor::NONE);
        assert!(w.centre < w.shared && w.shared <= w.per_image && w.per_image <= w.largest_found, "{w:?}");
        let chance = measure(0.5, 0, 8, 0, Floor::NONE);
        assert!(chance.shared < w.shared, "{} by chance, {} by ascent", chance.shared, w.shared);
        assert!((0.0..=2.0).contains(&w.distance) && w.distance_squared >= w.distance * w.distance);
        assert!(w.found_by().contains("4 steps from 2 starts"), "{}", w.found_by());
    }

    /// The largest loss that is found is no bound: more search finds a larger one. `ln(1/eta)` is one for the floored loss.
    #[test]
    fn with_a_floor_no_loss_is_above_its_logarithm_and_without_one_search_goes_on_rising() {
        let floor = Floor::new(0.05, 4).unwrap();
        let w = measure(4.0, 4, 4, 4, floor);
        assert!(w.largest_found > -(0.05f64.ln()) && w.per_image <= -(0.05f64.ln()), "{w:?}");
        assert!(w.below_floor > 0.0, "{w:?}");
        assert!(measure(4.0, 0, 1, 0, floor).largest_found < w.largest_found, "a lower estimate");
    }

    /// theta-tilde maximises the larger of cross-entropy and entropy. For an image that is right and sure, the entropy is what
    /// can rise most, and the distance is taken there.
    #[test]
    fn the_distance_is_taken_where_the_larger_of_both_losses_is_largest() {
        let probe = Probe { name: String::new(), features: Matrix::zeros(1, 1), labels: Some(vec![0]) };
        let mut search = Search::new(&probe, &[0], 1.0, Floor::NONE);
        let loss = |cross: f64, entropy: f64, distance: f64| RowLoss { cross, entropy, distance, plain: cross };
        search.note(0, loss(0.5, 0.1, 0.8));
        search.note(0, loss(0.4, 0.9, 0.3));
        search.note(0, loss(0.6, 0.2, 0.9));
        let found = (search.mean(|worst| worst.cross), search.mean(|worst| worst.tilde.1));
        assert_eq!(found, (0.6, 0.3), "cross-entropy alone would give 0.9");
    }
}
