//! The sharpness selector of STSS: views whose loss stays low around the prompt.

use super::bank::TextBank;
use super::probability::logits;
use super::select::{Score, Selection, Selector, ViewLogits, keep_count, ranking};
use flatclip_tensor::Matrix;

crate::choices! {
    /// How the losses at the perturbed contexts become one.
    pub enum Reduce {
        /// The largest: the paper's.
        Max = "max",
        /// The mean.
        Mean = "mean",
        /// A quantile.
        Quantile = "quantile",
    }
}

crate::choices! {
    /// What happens to the un-augmented view.
    pub enum Original {
        /// It competes like the others.
        Pool = "pool",
        /// It is always kept.
        Forced = "forced",
        /// It is never kept (unless it is the only view).
        Excluded = "excluded",
    }
}

/// `score_v = H_v + lambda * (reduce_r H_{r,v} - H_v)`; the lowest are kept.
#[derive(Clone, Copy, Debug)]
pub struct SharpnessSelector<'b> {
    /// Text features at the perturbed contexts.
    pub bank: &'b TextBank,
    /// Factor on cosines.
    pub scale: f32,
    /// Weight of the sharpness.
    pub lambda: f64,
    /// The loss.
    pub score: Score,
    /// Max, mean or quantile over the perturbations.
    pub reduce: Reduce,
    /// Which quantile.
    pub quantile: f64,
    /// Whether negative sharpness counts as zero.
    pub clamp: bool,
    /// The un-augmented view.
    pub original: Original,
    /// Fraction of the views to keep.
    pub fraction: f64,
    /// Number of views to keep, if not zero.
    pub count: usize,
}

impl SharpnessSelector<'_> {
    /// The loss of every view at one perturbed context.
    pub fn losses(&self, features: &Matrix, text: &Matrix) -> Vec<f32> {
        logits(features, text, self.scale).iter_rows().map(|row| self.score.of(row)).collect()
    }

    /// The reduced loss of every view over the perturbed contexts. One `[V, K]` at a time: `[R, V, K]` is
    /// never in memory.
    fn around(&self, features: &Matrix) -> Vec<f32> {
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); features.rows()];
        for text in self.bank.perturbed() {
            for (seen, loss) in all.iter_mut().zip(self.losses(features, text)) {
                seen.push(loss);
            }
        }
        all.into_iter().map(|seen| self.reduced(seen)).collect()
    }

    fn reduced(&self, mut losses: Vec<f32>) -> f32 {
        match self.reduce {
            Reduce::Max => losses.into_iter().fold(f32::NEG_INFINITY, f32::max),
            Reduce::Mean => (losses.iter().map(|&h| f64::from(h)).sum::<f64>() / losses.len() as f64) as f32,
            Reduce::Quantile => {
                losses.sort_by(f32::total_cmp);
                let place = self.quantile * (losses.len() - 1) as f64;
                let (low, part) = (place.floor() as usize, (place - place.floor()) as f32);
                losses[low] + part * (losses[(low + 1).min(losses.len() - 1)] - losses[low])
            }
        }
    }

    /// The score of every view.
    pub fn scores(&self, features: &Matrix, views: &ViewLogits) -> Vec<f32> {
        let base = self.score.of_views(views);
        if self.bank.perturbed().is_empty() || self.lambda == 0.0 {
            return base;
        }
        let score = |(h, around): (&f32, f32)| {
            let rise = around - h;
            h + self.lambda as f32 * if self.clamp { rise.max(0.0) } else { rise }
        };
        base.iter().zip(self.around(features)).map(score).collect()
    }

    fn keep(&self, ranking: &[usize], views: usize) -> Vec<usize> {
        let count = if self.count > 0 { self.count } else { keep_count(self.fraction, views) };
        let others = ranking.iter().copied().filter(|&view| view != 0);
        match self.original {
            Original::Forced => std::iter::once(0).chain(others.take(count - 1)).collect(),
            _ => ranking.iter().copied().take(count).collect(),
        }
    }
}

impl Selector for SharpnessSelector<'_> {
    fn select(&self, features: &Matrix, views: &ViewLogits) -> Selection {
        let scores = self.scores(features, views);
        let mut ranking = ranking(&scores);
        if self.original == Original::Excluded && ranking.len() > 1 {
            ranking.retain(|&view| view != 0);
        }
        let selected = self.keep(&ranking, features.rows());
        Selection { scores, ranking, selected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharpness(bank: &TextBank) -> SharpnessSelector<'_> {
        SharpnessSelector {
            bank,
            scale: 10.0,
            lambda: 1.0,
            score: Score::Entropy,
            reduce: Reduce::Max,
            quantile: 0.5,
            clamp: false,
            original: Original::Pool,
            fraction: 0.5,
            count: 0,
        }
    }

    fn text(shift: f32) -> Matrix {
        Matrix::from_vec(2, 2, vec![1.0, shift, -shift, 1.0])
    }

    fn features() -> Matrix {
        Matrix::from_vec(4, 2, vec![0.8, 0.6, 1.0, 0.0, 0.6, 0.8, 0.707, 0.707])
    }

    #[test]
    fn with_lambda_one_the_score_is_the_worst_perturbed_loss_and_clamping_never_goes_below_the_loss() {
        let mut rows = text(0.0).into_vec();
        [0.4, -0.3, 0.1].iter().for_each(|&s| rows.extend(text(s).into_vec()));
        let bank = TextBank::from_rows(&Matrix::from_vec(8, 2, rows), 2, 3).unwrap();
        let views = ViewLogits::new(&features(), bank.base(), 10.0);
        let plain = sharpness(&bank);
        let worst = plain.around(&features());
        for (score, worst) in plain.scores(&features(), &views).iter().zip(&worst) {
            assert!((score - worst).abs() < 1e-6);
        }
        let clamped = SharpnessSelector { clamp: true, ..plain }.scores(&features(), &views);
        clamped.iter().zip(&views.entropies).for_each(|(s, h)| assert!(s >= h));
        let half = SharpnessSelector { lambda: 0.5, ..plain }.scores(&features(), &views);
        for ((s, h), worst) in half.iter().zip(&views.entropies).zip(&worst) {
            assert!((s - 0.5 * (h + worst)).abs() < 1e-6);
        }
    }

    #[test]
    fn the_original_is_forced_or_excluded_when_set() {
        let bank = TextBank::flat(text(0.0));
        let views = ViewLogits::new(&features(), bank.base(), 10.0);
        let kept = |original| SharpnessSelector { original, ..sharpness(&bank) }.select(&features(), &views).selected;
        assert_eq!(kept(Original::Pool), [1, 0]);
        assert_eq!(kept(Original::Forced), [0, 1]);
        assert_eq!(kept(Original::Excluded), [1, 2]);
    }

    #[test]
    fn quantiles_lie_between_and_end_at_the_extremes() {
        let bank = TextBank::flat(text(0.0));
        let at = |quantile| {
            SharpnessSelector { reduce: Reduce::Quantile, quantile, ..sharpness(&bank) }.reduced(vec![3.0, 1.0, 2.0])
        };
        assert_eq!((at(0.0), at(0.5), at(1.0), at(0.75)), (1.0, 2.0, 3.0, 2.5));
    }
}
