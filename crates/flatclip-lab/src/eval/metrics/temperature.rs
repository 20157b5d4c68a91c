//! Temperature scaling: one number that divides all logits, given or fitted on held-out data. It changes confidences,
//! never the answered class.

use super::{Outcome, is_in_top, top_classes};
use flatclip::{Error, Result};

/// The smallest and largest temperature that a fit gives: held-out data that is all right would have none.
const BOUNDS: [f64; 2] = [0.01, 100.0];

/// A temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature(f64);

impl Temperature {
    /// A given one: a positive number.
    pub fn new(value: f64) -> Result<Self> {
        if value.is_finite() && value > 0.0 {
            return Ok(Self(value));
        }
        Err(Error::config("temperature", format!("expected a positive number, found {value}")))
    }

    /// The one of the smallest mean cross-entropy on held-out logits and labels, between 0.01 and 100. The loss is convex in
    /// its inverse, so halving an interval finds it.
    pub fn fit(rows: &[Vec<f32>], labels: &[usize]) -> Result<Self> {
        if rows.is_empty() || rows.len() != labels.len() {
            let reason =
                format!("expected a label for each of at least one row, found {} and {}", labels.len(), rows.len());
            return Err(Error::config("held-out logits", reason));
        }
        if let Some((row, label)) = rows.iter().zip(labels).find(|(row, label)| **label >= row.len()) {
            let reason = format!("expected a class below {}, found {label}", row.len());
            return Err(Error::config("held-out labels", reason));
        }
        let impossible = rows.iter().zip(labels).filter(|(row, label)| row[**label] == f32::NEG_INFINITY).count();
        if impossible > 0 {
            let reason = format!(
                "{impossible} of {} labels have probability zero: their loss is infinite at every temperature",
                rows.len()
            );
            return Err(Error::config("held-out logits", reason));
        }
        // The slope of the loss by the inverse temperature: expected logit minus the label's.
        let slope = |inverse: f64| -> f64 {
            rows.iter().zip(labels).map(|(row, &label)| expected(row, inverse) - f64::from(row[label])).sum()
        };
        let (mut low, mut high) = ((1.0 / BOUNDS[1]).ln(), (1.0 / BOUNDS[0]).ln());
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if slope(middle.exp()) > 0.0 { high = middle } else { low = middle }
        }
        Self::new((-0.5 * (low + high)).exp())
    }

    /// The number.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Softmax of the divided logits. In f32, as the originals compute confidences: bins are compared at their edges.
    pub fn probabilities(self, logits: &[f32]) -> Vec<f32> {
        let divided: Vec<f32> = logits.iter().map(|z| z / self.0 as f32).collect();
        let largest = divided.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exp: Vec<f32> = divided.iter().map(|z| (z - largest).exp()).collect();
        let sum: f32 = exp.iter().sum();
        exp.iter().map(|e| e / sum).collect()
    }

    /// What a row of logits contributes to the metrics at this temperature.
    pub fn outcome(self, logits: &[f32], label: usize) -> Result<Outcome> {
        let probabilities = self.probabilities(logits);
        let (Some(&prediction), Some(&own)) = (top_classes(logits, 1).first(), probabilities.get(label)) else {
            let reason = format!("expected a class below {}, found {label}", logits.len());
            return Err(Error::config("labels", reason));
        };
        Ok(Outcome {
            label,
            prediction,
            in_top5: is_in_top(logits, label, 5),
            confidence: f64::from(probabilities[prediction]),
            label_probability: f64::from(own),
            square_sum: probabilities.iter().map(|&p| f64::from(p) * f64::from(p)).sum(),
            score: None,
        })
    }
}

/// The mean logit under the softmax at an inverse temperature.
fn expected(row: &[f32], inverse: f64) -> f64 {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut moment) = (0.0, 0.0);
    // A class of probability zero has no part in it.
    for &z in row.iter().filter(|z| z.is_finite()) {
        let e = (inverse * f64::from(z - top)).exp();
        sum += e;
        moment += e * f64::from(z);
    }
    moment / sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_undoes_a_wrong_scale() {
        // Three of four answers are right; calibrated logits then differ by ln 3, here by seven times that.
        let rows = vec![vec![7.0 * 3f32.ln(), 0.0]; 4];
        let fitted = Temperature::fit(&rows, &[0, 0, 1, 0]).unwrap();
        assert!((fitted.value() - 7.0).abs() < 1e-4, "{fitted:?}");
        assert!((fitted.probabilities(&rows[0])[0] - 0.75).abs() < 1e-5);
    }

    #[test]
    fn held_out_data_without_errors_ends_at_the_bound() {
        assert!((Temperature::fit(&[vec![1.0, 0.0]], &[0]).unwrap().value() - 0.01).abs() < 1e-6);
        assert!((Temperature::fit(&[vec![1.0, 0.0]], &[1]).unwrap().value() - 100.0).abs() < 1e-2);
    }

    #[test]
    fn classes_of_probability_zero_do_not_disturb_a_fit_and_such_a_label_is_refused() {
        let rows = vec![vec![7.0 * 3f32.ln(), 0.0, f32::NEG_INFINITY]; 4];
        let fitted = Temperature::fit(&rows, &[0, 0, 1, 0]).unwrap();
        assert!((fitted.value() - 7.0).abs() < 1e-4, "{fitted:?}");
        let refused = Temperature::fit(&rows, &[0, 0, 2, 0]).unwrap_err().to_string();
        assert!(refused.contains("1 of 4 labels have probability zero"), "{refused}");
    }

    #[test]
    fn what_is_no_temperature_or_no_label_is_refused() {
        assert!(Temperature::new(0.0).is_err() && Temperature::new(f64::NAN).is_err());
        assert!(Temperature::fit(&[], &[]).is_err());
        assert!(Temperature::fit(&[vec![1.0, 0.0]], &[2]).unwrap_err().to_string().contains("below 2"));
    }
}
