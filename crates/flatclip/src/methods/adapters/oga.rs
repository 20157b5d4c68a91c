//! OGA: per class the most certain past images; Gaussians of them with a shared covariance, multiplied with the
//! zero-shot answer. Golden cases: `oga-*`.

use super::prelude::*;
use crate::methods::cache::Stored;
use crate::methods::gaussian::{Scatter, identity, times};
use std::collections::BTreeMap;
use std::ops::Range;

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs::FEATURES.with_views(1),
    summary: "Gaussians of the most certain past images, multiplied with the zero-shot answer",
    docs: "\
What: every class has `capacity` places for past images (view 0) of low zero-shot entropy; an image enters
the class of its zero-shot answer if a place is free or holds a larger entropy. mu_k is the mean of two or
more stored images, else the text feature. Once a class has three, the residuals of all n stored images
about their class's mean give M, their covariance, and L = D pinv((n - 1) M + tr(M) I), or pinv(M) when n >
4 D; before, L = D I.
  l_k = -1/2 (x - mu_k)' L (x - mu_k)        answer ~ softmax(s x.T) softmax(tau l)
`batch` images of a stream enter together, then all are answered; one by one where images are given one by
one.
Short streams: a class with two stored images has a mean of images, every other class its text feature. CLIP's
images are far nearer to each other than to any text, so that at the start the few classes with images draw
answers to themselves: with L = D I, D = 512 and cosines of 0.7 to images and 0.25 to texts the exponent
differs by tau D 0.45 = 11 nats. A stream of fewer than two images per class is warned about.
compat = true divides the sum of stored images by the capacity instead of their number, as the authors' code
does: that draws the means of classes with free places to zero.
Online: the answer depends on the images before it, and on their order.
Cost: one image-tower pass of one view; one D^3 inverse for a batch in which something was stored.
Reference: Fuchs et al., Online Gaussian Test-Time Adaptation of Vision-Language Models, 2025. Verified with
the authors' code in f32, which stores features in f16.
",
    verified: Verified::AuthorsCode,
    options: Config::OPTIONS,
    ..AdapterSpec::new("oga", Build::Online(|table| Ok(Box::new(Oga::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "oga" {
        /// Places per class.
        capacity: usize = 8, alias "shot_capacity", range between(1, 10_000), from "authors' code";
        /// Weight of the Gaussians.
        tau: f64 = 0.05, range at_least(0.0), from "authors' code";
        /// Images of a stream that enter together before they are answered.
        batch: usize = 32, range between(1, 100_000), from "authors' code";
        /// Divide the means to unit length.
        unit_means: bool = false, from "authors' code";
        /// Divide the sum of the stored images by the capacity, as the authors' code does.
        compat: bool = false, from "choice: the mean is meant";
    }
}

#[derive(Clone, Debug, Default)]
pub struct Oga {
    options: Config,
    /// Of every class, in the order of their places.
    pub memory: Vec<Vec<Stored>>,
    /// `[K, D]`.
    pub means: Matrix,
    scatter: Scatter,
    /// `[D, D]`, shared by the classes.
    pub precision: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct Said {
    /// Exponents of the Gaussians.
    pub exponents: Vec<f64>,
    pub answer: Vec<f64>,
}

impl Oga {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    /// The next images of the stream: all enter, then all are answered.
    pub fn step(&mut self, task: &Task, images: &[&[f32]]) -> Vec<Said> {
        let zero_shot: Vec<Vec<f64>> = images.iter().map(|x| zero_shot(task, x)).collect();
        let mut before: BTreeMap<usize, Vec<Stored>> = BTreeMap::new();
        for (x, p) in images.iter().zip(&zero_shot) {
            let class = argmax(p);
            let stored = Stored { feature: x.to_vec(), entropy: entropy_of(p) };
            if let Some(place) = self.place(class, stored.entropy) {
                before.entry(class).or_insert_with(|| self.memory[class].clone());
                self.memory[class].splice(place, [stored]);
            }
        }
        if !before.is_empty() {
            self.refit(&before, task);
        }
        let by_precision = times(&self.means, &self.precision);
        let own: Vec<f64> = self.means.iter_rows().zip(by_precision.iter_rows()).map(|(m, l)| dot(m, l)).collect();
        images.iter().zip(&zero_shot).map(|(x, p)| self.answer(x, p, &by_precision, &own)).collect()
    }

    /// Where an image of this entropy would be stored: a free place, else that of the largest entropy if it is larger.
    fn place(&self, class: usize, entropy: f64) -> Option<Range<usize>> {
        let stored = &self.memory[class];
        if stored.len() < self.options.capacity {
            // A free place counts as the largest entropy that there is.
            return (entropy < (self.memory.len() as f64).ln()).then_some(stored.len()..stored.len());
        }
        let worst = (0..stored.len()).fold(0, |w, at| if stored[at].entropy > stored[w].entropy { at } else { w });
        (entropy < stored[worst].entropy).then_some(worst..worst + 1)
    }

    /// New means and residuals of the classes that changed, then the precision.
    fn refit(&mut self, before: &BTreeMap<usize, Vec<Stored>>, task: &Task) {
        for (&class, old) in before {
            self.scatter.remove(rows(old), self.means.row(class));
            let mean = self.mean(class, task);
            self.means.row_mut(class).copy_from_slice(&mean);
            self.scatter.add(rows(&self.memory[class]), &mean);
        }
        let width = self.means.cols();
        self.precision = if self.memory.iter().all(|stored| stored.len() < 3) {
            identity(width, width as f64)
        } else if self.scatter.count <= 4 * width {
            self.scatter.ridge_precision()
        } else {
            self.scatter.plain_precision()
        };
    }

    fn mean(&self, class: usize, task: &Task) -> Vec<f32> {
        let stored = &self.memory[class];
        if stored.len() < 2 {
            return task.text_features().row(class).to_vec();
        }
        let mut sum = vec![0.0f64; self.means.cols()];
        rows(stored).for_each(|row| sum.iter_mut().zip(row).for_each(|(s, &x)| *s += f64::from(x)));
        let norm = sum.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
        let divisor = match self.options {
            Config { unit_means: true, .. } => norm,
            Config { compat: true, capacity, .. } => capacity as f64,
            _ => stored.len() as f64,
        };
        sum.into_iter().map(|s| (s / divisor) as f32).collect()
    }

    fn answer(&self, x: &[f32], zero_shot: &[f64], by_precision: &Matrix, own: &[f64]) -> Said {
        // (x - mu)' L (x - mu) = x' L x - 2 x' L mu + mu' L mu; the first term is common to all classes.
        let row = Matrix::from_vec(1, x.len(), x.to_vec());
        let square = dot(times(&row, &self.precision).row(0), x);
        let exponents: Vec<f64> =
            by_precision.iter_rows().zip(own).map(|(l, own)| -0.5 * (square - 2.0 * dot(x, l) + own)).collect();
        let top = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weighted: Vec<f64> =
            zero_shot.iter().zip(&exponents).map(|(p, l)| p * (self.options.tau * (l - top)).exp()).collect();
        let sum: f64 = weighted.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        Said { exponents, answer: weighted.into_iter().map(|w| w / sum).collect() }
    }
}

fn rows(stored: &[Stored]) -> impl Iterator<Item = &[f32]> {
    stored.iter().map(|s| s.feature.as_slice())
}

fn zero_shot(task: &Task, x: &[f32]) -> Vec<f64> {
    let logits: Vec<f32> =
        task.text_features().iter_rows().map(|t| (f64::from(task.logit_scale) * dot(x, t)) as f32).collect();
    softmax(&logits)
}

impl OnlineAdapter for Oga {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let width = task.text_features().cols();
        self.memory = vec![Vec::new(); task.class_count()];
        self.means = task.text_features().clone();
        self.scatter = Scatter::new(width);
        self.precision = identity(width, width as f64);
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        Ok(self.adapt_set(task, std::slice::from_ref(image))?.swap_remove(0))
    }

    fn set_size(&self) -> usize {
        self.options.batch
    }

    fn shortest_stream(&self, task: &Task) -> usize {
        2 * task.class_count()
    }

    fn adapt_set(&mut self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        images.iter().try_for_each(|image| image.check(task, &SPEC))?;
        let features: Vec<&[f32]> = images.iter().map(|image| image.features.row(0)).collect();
        let said = self.step(task, &features);
        Ok(images.iter().zip(said).map(|(image, said)| Decision::of_first_view(task, image, &said.answer)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(options: Config, images: u64) -> Oga {
        let task = task(3, 8, 30.0);
        let mut oga = ready(Oga::new(options), &task);
        for seed in 0..images {
            oga.adapt(&task, &ViewSet::new("s", &views(seed, 1, 8))).unwrap();
        }
        oga
    }

    #[test]
    fn the_sums_are_those_of_what_is_stored() {
        let oga = after(Config { capacity: 3, ..Config::default() }, 40);
        let mut expected = Scatter::new(8);
        for (class, stored) in oga.memory.iter().enumerate() {
            assert!(stored.len() <= 3);
            expected.add(rows(stored), oga.means.row(class));
        }
        assert_eq!(oga.scatter.count, expected.count);
        assert_close(&oga.scatter.covariance(), &expected.covariance(), 1e-12);
    }

    #[test]
    fn free_places_shorten_the_mean_only_in_compat() {
        let of = |compat| after(Config { compat, capacity: 1000, ..Config::default() }, 12);
        let (plain, compat) = (of(false), of(true));
        let class = (0..3).max_by_key(|&k| plain.memory[k].len()).unwrap();
        let factor = plain.memory[class].len() as f32 / 1000.0;
        let shortened: Vec<f32> = plain.means.row(class).iter().map(|x| x * factor).collect();
        assert_close(&shortened, compat.means.row(class), 1e-6);
    }

    #[test]
    fn a_set_enters_before_it_is_answered() {
        let task = task(3, 8, 30.0);
        let images: Vec<Matrix> = (0..9).map(|seed| views(seed, 1, 8)).collect();
        let sets: Vec<ViewSet<'_>> = images.iter().map(|m| ViewSet::new("s", m)).collect();
        let [mut together, mut single] = [0; 2].map(|_| ready(Oga::new(Config::default()), &task));
        let all = together.adapt_set(&task, &sets).unwrap();
        let each: Vec<Decision> = sets.iter().map(|set| single.adapt(&task, set).unwrap()).collect();
        assert_eq!(all[8], each[8]);
        assert_ne!(all[0], each[0]);
    }
}
