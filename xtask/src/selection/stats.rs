//! What runs of a rule and of its control say about each other.

use anyhow::Result;
use flatclip_lab::report::Run;
use std::collections::BTreeMap;

/// Bootstrap resamples of images.
const RESAMPLES: usize = 2000;

/// Right or wrong by the sample's id.
pub(crate) type Rights = BTreeMap<String, bool>;

/// How a run answered.
pub(crate) fn rights(run: &Run) -> Result<Rights> {
    let records = run.records()?.into_iter();
    Ok(records.filter_map(|r| Some((r.id.clone(), r.answer.as_ref()?.prediction == r.label))).collect())
}

/// Accuracies in per cent, their difference and its interval.
pub(crate) struct Paired {
    pub(crate) rule: f64,
    pub(crate) control: f64,
    pub(crate) difference: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Of runs (group, rule, control): an image of a group counts by the mean over its runs.
pub(crate) fn paired<G: AsRef<str>>(runs: &[(G, Rights, Rights)]) -> Paired {
    let mut images: BTreeMap<(&str, &str), (f64, f64, f64)> = BTreeMap::new();
    for (group, rule, control) in runs {
        for (id, &right) in rule {
            if let Some(&other) = control.get(id) {
                let sums = images.entry((group.as_ref(), id)).or_default();
                *sums = (sums.0 + f64::from(u8::from(right)), sums.1 + f64::from(u8::from(other)), sums.2 + 1.0);
            }
        }
    }
    let rows: Vec<(f64, f64)> = images.values().map(|(a, b, n)| (100.0 * a / n, 100.0 * b / n)).collect();
    let count = rows.len().max(1) as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / count;
    let (rule, control) = (mean(&|r| r.0), mean(&|r| r.1));
    let differences: Vec<f64> = rows.iter().map(|r| r.0 - r.1).collect();
    let mut stream = flatclip::rng::Stream::new(0, &["selection", "bootstrap"]);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| (0..differences.len()).map(|_| differences[stream.below(differences.len())]).sum::<f64>() / count)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
    Paired { rule, control, difference: rule - control, low: at(0.025), high: at(0.975) }
}

/// How far the scores of a rule follow the entropies of its control, summed over images.
#[derive(Default)]
pub(crate) struct Agreement {
    images: f64,
    sums: [f64; 5],
}

impl Agreement {
    /// Adds every image that both runs answered with the same number of scores.
    pub(crate) fn add(&mut self, rule: &Run, control: &Run) -> Result<()> {
        let entropies: BTreeMap<String, (Vec<f32>, Vec<usize>)> =
            control.records()?.into_iter().filter_map(|r| r.answer.map(|a| (r.id, (a.scores, a.selected)))).collect();
        for record in rule.records()? {
            let Some(answer) = record.answer else { continue };
            let Some((entropy, kept)) = entropies.get(&record.id) else { continue };
            if answer.scores.len() != entropy.len() || entropy.len() < 3 {
                continue;
            }
            let h: Vec<f64> = entropy.iter().map(|&x| f64::from(x)).collect();
            let score: Vec<f64> = answer.scores.iter().map(|&x| f64::from(x)).collect();
            let added: Vec<f64> = score.iter().zip(&h).map(|(s, h)| s - h).collect();
            let (q, c) = (spread(&added) / spread(&h).max(1e-12), correlation(&added, &h));
            let predicted = (1.0 + q * c) / (1.0 + 2.0 * q * c + q * q).sqrt().max(1e-12);
            let alike = answer.selected.iter().filter(|view| kept.contains(view)).count() as f64;
            let found = [q, c, predicted, correlation(&ranks(&score), &ranks(&h)), alike];
            self.sums.iter_mut().zip(found).for_each(|(sum, x)| *sum += x);
            self.images += 1.0;
        }
        Ok(())
    }

    /// q, c, predicted correlation, rank correlation, views kept alike.
    pub(crate) fn means(&self) -> [f64; 5] {
        self.sums.map(|sum| sum / self.images.max(1.0))
    }
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len().max(1) as f64
}

fn spread(x: &[f64]) -> f64 {
    let m = mean(x);
    (x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / x.len().max(1) as f64).sqrt()
}

fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let (a, b) = (mean(x), mean(y));
    let sum: f64 = x.iter().zip(y).map(|(x, y)| (x - a) * (y - b)).sum();
    sum / (x.len().max(1) as f64 * spread(x) * spread(y)).max(1e-12)
}

fn ranks(x: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[a].total_cmp(&x[b]));
    let mut ranks = vec![0.0; x.len()];
    order.iter().enumerate().for_each(|(rank, &i)| ranks[i] = rank as f64);
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(rights: &[bool]) -> BTreeMap<String, bool> {
        rights.iter().enumerate().map(|(i, &right)| (i.to_string(), right)).collect()
    }

    #[test]
    fn an_image_counts_by_the_mean_over_its_seeds_and_equal_runs_do_not_differ() {
        let (a, b) = (answers(&[true, true, false, true]), answers(&[true, false, false, false]));
        let one = paired(&[("s", a.clone(), b.clone())]);
        assert_eq!((one.rule, one.control, one.difference), (75.0, 25.0, 50.0));
        assert!(one.low <= 50.0 && one.high >= 50.0);
        let two = paired(&[("s", a.clone(), b.clone()), ("s", b.clone(), b.clone())]);
        assert_eq!(two.difference, 25.0);
        let same = paired(&[("s", a.clone(), a)]);
        assert_eq!((same.difference, same.low, same.high), (0.0, 0.0, 0.0));
    }

    #[test]
    fn the_formula_predicts_the_correlation() {
        let h = [0.1, 0.5, 0.7, 1.9, 2.0, 0.3];
        let s = [0.05, -0.02, 0.04, 0.1, 0.0, 0.02];
        let score: Vec<f64> = h.iter().zip(&s).map(|(h, s)| h + s).collect();
        let (q, c) = (spread(&s) / spread(&h), correlation(&s, &h));
        let predicted = (1.0 + q * c) / (1.0 + 2.0 * q * c + q * q).sqrt();
        assert!((predicted - correlation(&score, &h)).abs() < 1e-12);
        assert_eq!(ranks(&[0.3, 0.1, 0.2]), [2.0, 0.0, 1.0]);
    }
}
