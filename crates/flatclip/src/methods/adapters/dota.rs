//! DOTA: a Gaussian per class, estimated along the stream from soft labels, added to the zero-shot classifier.
//! Golden cases: `dota-*`.

use super::prelude::*;
use crate::methods::gaussian::{identity, times};
use crate::methods::linalg;
use rayon::prelude::*;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "a Gaussian per class, estimated along the stream, corrects the zero-shot logits",
    docs: "\
What: state is a mean mu_k (constant at first, not the text feature), a count c_k and a covariance S_k per
class, and L, the inverse of the mean covariance. z and x are mean logits and mean feature of the m selected
views (the image, or its int(fraction * V) views of lowest entropy):
  answer = z + w d, d_k = x L mu_k - mu_k L mu_k / 2, w = min(rho mean(c) / m, eta).
Then each selected view x_v is learnt with its own softmax y: S_k <- (c_k S_k + sum_v y_k r r') / (c_k + sum_v
y_k) with r = x_v - mu_k and the mean before, mu_k likewise, c_k += sum_v y_k; L = inv((1 - epsilon) mean_k
S_k + epsilon I). Means, counts and covariances are exact for any `refresh`; L lags by fewer than `refresh`
images. A rank update of L cannot stand for the inverse: c_k / (c_k + y_k) scales all of S_k, which changes
the mean in every direction. refresh = 1 inverts after every image, as published; refresh = 0 after a
hundredth of the images seen so far, about 200 + 100 ln(n / 200) inverses for n images.
Online: the answer depends on the images before it, and on their order.
Cost: one image-tower pass; K D^2 for each image, one D^3 inverse for each refresh; memory 2 K D^2 bytes (0.5
GB for K = 1000, D = 512: every S_k has a divisor of its own, so the upper triangles of all are kept).
Reference: Han et al., DOTA: Distributional Test-Time Adaptation of Vision-Language Models, 2024. Verified
with the authors' code in f32; it rounds mu and L to f16 before it answers, which is not done here.
",
    verified: Verified::AuthorsCode,
    presets: presets::dota,
    options: Config::OPTIONS,
    ..AdapterSpec::new("dota", Build::Online(|table| Ok(Box::new(Dota::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "dota" {
        include view_selection;
        include data_preset;
        /// Ridge of the mean covariance.
        epsilon: f64 = 1e-4, range between(1e-9, 1.0), from "authors' code, most sets";
        /// Variance at the start.
        sigma: f64 = 0.002, range above(0.0), from "authors' code";
        /// Largest weight of the correction.
        eta: f64 = 0.2, range at_least(0.0), from "authors' ImageNet value";
        /// Weight of the correction for each image that a class has seen on average.
        rho: f64 = 0.005, range at_least(0.0), from "authors' ImageNet value";
        /// Every entry of the means at the start.
        mean_start: f64 = 0.001, from "authors' code";
        /// Images after which the inverse is brought up to date; 1 is the method as published, 0 waits for a hundredth of the
        /// images seen so far, so that it is exact for the first 200.
        refresh: usize = 0, range up_to(10_000), from "choice: the authors' code inverts after every image";
    }
}

/// Covariances of all classes as the upper triangles of symmetric matrices, and their mean.
#[derive(Clone, Debug, Default)]
struct Covariances {
    width: usize,
    classes: usize,
    /// Row `i` of all classes: `[K, D - i]`. Threads share the rows.
    rows: Vec<Vec<f32>>,
    /// Row `i` of the mean over classes.
    mean: Vec<Vec<f64>>,
}

/// What an image does to the covariance of one class: `S <- keep S + sum_v weight_v r_v r_v'`.
#[derive(Clone, Debug)]
struct Change {
    class: usize,
    keep: f64,
    terms: Vec<(f64, Vec<f32>)>,
}

impl Covariances {
    fn new(classes: usize, width: usize, sigma: f64) -> Self {
        let row = |i: usize| {
            let mut row = vec![0.0f32; classes * (width - i)];
            row.iter_mut().step_by(width - i).for_each(|x| *x = sigma as f32);
            row
        };
        let mean = |i: usize| {
            let mut row = vec![0.0; width - i];
            row[0] = sigma;
            row
        };
        Self { width, classes, rows: (0..width).map(row).collect(), mean: (0..width).map(mean).collect() }
    }

    /// Applies changes in their order. Entries are independent of each other, so threads change no bit.
    fn apply(&mut self, changes: &[Change]) {
        let (width, classes) = (self.width, self.classes as f64);
        self.rows.par_iter_mut().zip(&mut self.mean).enumerate().for_each(|(i, (row, mean))| {
            let length = width - i;
            for change in changes {
                let own = &mut row[change.class * length..][..length];
                let keep = change.keep as f32;
                // The mean follows what the class lost and gained.
                mean.iter_mut().zip(own.iter()).for_each(|(m, s)| *m -= f64::from(*s) / classes);
                own.iter_mut().for_each(|s| *s *= keep);
                for (weight, residual) in &change.terms {
                    let factor = (weight * f64::from(residual[i])) as f32;
                    own.iter_mut().zip(&residual[i..]).for_each(|(s, r)| *s += factor * r);
                }
                mean.iter_mut().zip(own.iter()).for_each(|(m, s)| *m += f64::from(*s) / classes);
            }
        });
    }

    /// `keep` times the mean over classes plus `ridge` times the identity, `[D, D]`.
    fn ridged(&self, keep: f64, ridge: f64) -> Vec<f64> {
        let mut out = identity(self.width, ridge);
        for (i, row) in self.mean.iter().enumerate() {
            for (at, m) in row.iter().enumerate() {
                out[i * self.width + i + at] += keep * m;
                if at > 0 {
                    out[(i + at) * self.width + i] += keep * m;
                }
            }
        }
        out
    }
}

#[derive(Clone, Debug, Default)]
pub struct Dota {
    options: Config,
    /// `[K, D]`.
    pub means: Matrix,
    pub counts: Vec<f64>,
    covariances: Covariances,
    /// The inverse of the ridged mean covariance, `[D, D]`.
    pub precision: Vec<f64>,
    pending: Vec<Change>,
    /// Images since the inverse was computed, and in all.
    waited: usize,
    seen: usize,
}

/// Below this share a class does not change in f32: half the rounding unit.
const NOTHING: f64 = 3e-8;
/// Residuals that wait for their covariance: 32 MB at D = 512.
const MAX_PENDING: usize = 1 << 14;

impl Dota {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    /// The mean covariance over classes, `[D, D]`.
    pub fn mean_covariance(&self) -> Vec<f64> {
        self.covariances.ridged(1.0, 0.0)
    }

    /// What the Gaussians say of a feature, and the weight of that for an image with `kept` views.
    pub fn correction(&self, feature: &[f32], kept: usize) -> (Vec<f32>, f64) {
        let by_precision = times(&self.means, &self.precision);
        let score = |(mean, row): (&[f32], &[f32])| (dot(feature, row) - 0.5 * dot(mean, row)) as f32;
        let scores = self.means.iter_rows().zip(by_precision.iter_rows()).map(score).collect();
        let mean_count = self.counts.iter().sum::<f64>() / self.counts.len() as f64;
        (scores, (self.options.rho * mean_count / kept as f64).min(self.options.eta))
    }

    fn learn(&mut self, features: &Matrix, views: &ViewLogits, kept: &[usize]) -> Result<()> {
        let labels: Vec<Vec<f64>> = kept.iter().map(|&view| softmax(views.logits.row(view))).collect();
        for class in 0..self.counts.len() {
            let count = self.counts[class];
            let total: f64 = labels.iter().map(|y| y[class]).sum();
            let new = count + total;
            let mean = self.means.row_mut(class);
            if total / new > NOTHING {
                let residual = |view: usize| features.row(view).iter().zip(&*mean).map(|(x, m)| x - m).collect();
                let terms = kept.iter().zip(&labels).map(|(&view, y)| (y[class] / new, residual(view))).collect();
                self.pending.push(Change { class, keep: count / new, terms });
            }
            for (at, m) in mean.iter_mut().enumerate() {
                let sum: f64 = kept.iter().zip(&labels).map(|(&v, y)| y[class] * f64::from(features.row(v)[at])).sum();
                *m = ((count * f64::from(*m) + sum) / new) as f32;
            }
            self.counts[class] = new;
        }
        (self.waited, self.seen) = (self.waited + 1, self.seen + 1);
        if self.pending.iter().map(|change| change.terms.len()).sum::<usize>() > MAX_PENDING {
            self.covariances.apply(&std::mem::take(&mut self.pending));
        }
        let wait = if self.options.refresh == 0 { self.seen / 100 } else { self.options.refresh };
        if self.waited >= wait { self.refresh() } else { Ok(()) }
    }

    fn refresh(&mut self) -> Result<()> {
        self.covariances.apply(&std::mem::take(&mut self.pending));
        self.waited = 0;
        let epsilon = self.options.epsilon;
        let matrix = self.covariances.ridged(1.0 - epsilon, epsilon);
        self.precision = linalg::inverse(&matrix, self.means.cols()).ok_or_else(|| {
            Error::method(Config::NAME, "the mean covariance has no inverse; expected a larger epsilon")
        })?;
        Ok(())
    }
}

impl OnlineAdapter for Dota {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let (classes, width) = (task.class_count(), task.text_features().cols());
        // The covariances of an earlier stream go first: both would take a gigabyte at K = 1000, D = 512.
        *self = Self::new(self.options.clone());
        let o = &self.options;
        self.means = Matrix::from_vec(classes, width, vec![o.mean_start as f32; classes * width]);
        self.counts = vec![1.0; classes];
        self.covariances = Covariances::new(classes, width, o.sigma);
        self.precision = identity(width, 1.0 / o.sigma);
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let lowest = LowestScore { fraction: self.options.fraction, score: self.options.score };
        let (query, selection) = Query::confident(image.features, &views, lowest);
        let (scores, weight) = self.correction(&query.feature, selection.selected.len());
        let logits: Vec<f32> =
            query.logits.iter().zip(&scores).map(|(&z, &d)| (f64::from(z) + weight * f64::from(d)) as f32).collect();
        self.learn(image.features, &views, &selection.selected)?;
        Ok(Decision::from_logits(&logits).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(task: &Task, refresh: usize, images: u64) -> Dota {
        let mut dota = ready(Dota::new(Config { refresh, ..Config::default() }), task);
        for i in 0..images {
            dota.adapt(task, &ViewSet::new("s", &views(i, 12, task.text_features().cols()))).unwrap();
        }
        dota
    }

    #[test]
    fn a_late_refresh_ends_where_one_after_every_image_does() {
        let task = task(5, 8, 30.0);
        let (every, third) = (after(&task, 1, 6), after(&task, 3, 6));
        assert_eq!((&every.means, &every.counts), (&third.means, &third.counts));
        for (a, b) in every.precision.iter().zip(&third.precision) {
            assert!((a - b).abs() < 1e-9 * a.abs().max(1.0), "{a} {b}");
        }
        assert_ne!(after(&task, 3, 5).precision, every.precision);
    }

    #[test]
    fn without_a_number_the_inverse_lags_by_a_hundredth_and_is_exact_at_first() {
        let task = task(5, 8, 30.0);
        assert_eq!(after(&task, 0, 150).precision, after(&task, 1, 150).precision);
        let (late, exact) = (after(&task, 0, 450), after(&task, 1, 450));
        assert_eq!((&late.means, &late.counts), (&exact.means, &exact.counts));
        let feature = unit_rows(77, 1, 8);
        let (a, b) = (late.correction(feature.row(0), 1).0, exact.correction(feature.row(0), 1).0);
        let size = b.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 0.02 * size), "{a:?} {b:?}");
    }

    #[test]
    fn the_mean_is_that_of_the_covariances() {
        let task = Task::new(names(3), unit_rows(2, 3, 4), 30.0, 0).unwrap();
        let dota = after(&task, 1, 9);
        let mean = dota.mean_covariance();
        for i in 0..4 {
            for j in i..4 {
                let own = &dota.covariances.rows[i];
                let expected = (0..3).map(|k| f64::from(own[k * (4 - i) + j - i])).sum::<f64>() / 3.0;
                assert!((mean[i * 4 + j] - expected).abs() < 1e-9);
                assert_eq!(mean[i * 4 + j], mean[j * 4 + i]);
            }
        }
    }
}
