//! One line of `predictions.jsonl`: everything that metrics, merges and comparisons need, and nothing that depends on
//! time, machine or shard.

use super::metrics::{Outcome, Temperature, is_in_top, top_classes};
use crate::methods::Decision;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a run says about one sample. Exactly one of `answer` and `error` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Position in the run's stream, over all shards.
    pub index: usize,
    /// The sample's id.
    pub id: String,
    /// The true class.
    pub label: usize,
    /// Names the picture's bytes, so that a run that goes on notices one that has changed. `None` where it was drawn, and in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<String>,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerRecord>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The part of an answer that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRecord {
    /// The answered class.
    pub prediction: usize,
    /// The five best classes by the method's own score, with their probabilities.
    pub top5: Vec<(usize, f32)>,
    /// Whether the label is among the five best (ties count).
    pub in_top5: bool,
    /// Probability of the answered class.
    pub confidence: f32,
    /// Probability of the true class.
    pub label_probability: f32,
    /// Sum of the squared probabilities.
    pub square_sum: f32,
    /// Views that were encoded, where that differs from picture to picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<usize>,
    /// Views that were kept, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<usize>,
    /// Score of every view, lower is better.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f32>,
    /// Logarithm of the probability of every class, where the run keeps them: for other temperatures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_probabilities: Vec<f32>,
}

impl Record {
    /// The record of an answer.
    pub fn answered(index: usize, id: &str, label: usize, answer: Decision) -> Result<Self> {
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        if !finite(&answer.probabilities) || !finite(&answer.explanation.scores) {
            let reason = "the answer holds NaN or infinity; look at the weights and at the picture".to_owned();
            return Err(Error::NotFinite { place: id.to_owned(), reason });
        }
        let Decision { prediction, probabilities, class_scores, explanation } = answer;
        let (Some(&confidence), Some(&label_probability)) = (probabilities.get(prediction), probabilities.get(label))
        else {
            let reason = format!("answer {prediction} or label {label} is not one of {} classes", probabilities.len());
            return Err(Error::config(format!("sample {id}"), reason));
        };
        let ranked_by = if class_scores.len() == probabilities.len() { &class_scores } else { &probabilities };
        let square_sum = probabilities.iter().map(|&p| f64::from(p) * f64::from(p)).sum::<f64>() as f32;
        let answer = AnswerRecord {
            prediction,
            top5: top_classes(ranked_by, 5).into_iter().map(|class| (class, probabilities[class])).collect(),
            in_top5: is_in_top(ranked_by, label, 5),
            confidence,
            label_probability,
            square_sum,
            views: None,
            selected: explanation.selected,
            scores: explanation.scores,
            log_probabilities: probabilities.iter().map(|p| p.max(f32::MIN_POSITIVE).ln()).collect(),
        };
        Ok(Self { index, id: id.to_owned(), label, picture: None, answer: Some(answer), error: None })
    }

    /// The same, made from this picture; a sample that could not be answered is tried again whatever its picture is.
    #[must_use]
    pub(super) fn of_picture(mut self, picture: Option<&str>) -> Self {
        self.picture = picture.filter(|_| self.answer.is_some()).map(str::to_owned);
        self
    }

    /// The same, made from so many views.
    #[must_use]
    pub(crate) fn with_views(mut self, count: usize) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.views = Some(count);
        }
        self
    }

    /// The record of a sample that could not be answered.
    pub fn failed(index: usize, id: &str, label: usize, error: &Error) -> Self {
        Self { index, id: id.to_owned(), label, picture: None, answer: None, error: Some(error.to_string()) }
    }

    /// Keeps no probabilities but those that the metrics need.
    pub(super) fn forget_probabilities(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.log_probabilities = Vec::new();
        }
    }

    /// What the metrics need at a temperature; `None` for a failed sample, and for one whose probabilities were not kept.
    pub fn outcome_at(&self, temperature: Temperature) -> Option<Outcome> {
        let answer = self.answer.as_ref().filter(|answer| !answer.log_probabilities.is_empty())?;
        let p = temperature.probabilities(&answer.log_probabilities);
        Some(Outcome {
            confidence: f64::from(*p.get(answer.prediction)?),
            label_probability: f64::from(*p.get(self.label)?),
            square_sum: p.iter().map(|&p| f64::from(p) * f64::from(p)).sum(),
            ..self.outcome()?
        })
    }

    /// What the metrics need; `None` for a failed sample.
    pub fn outcome(&self) -> Option<Outcome> {
        let answer = self.answer.as_ref()?;
        let kept: Vec<f64> =
            answer.selected.iter().filter_map(|&v| answer.scores.get(v)).map(|&s| f64::from(s)).collect();
        let score = (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64);
        Some(Outcome {
            label: self.label,
            prediction: answer.prediction,
            in_top5: answer.in_top5,
            confidence: f64::from(answer.confidence),
            label_probability: f64::from(answer.label_probability),
            square_sum: f64::from(answer.square_sum),
            score,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Explanation;

    fn answer() -> Decision {
        Decision {
            prediction: 1,
            probabilities: vec![0.25, 0.5, 0.25],
            class_scores: vec![1.0, 3.0, 2.0],
            explanation: Explanation { selected: vec![2, 0], scores: vec![0.4, 0.9, 0.1], ..Explanation::default() },
        }
    }

    #[test]
    fn a_record_survives_json_to_the_bit() {
        let record = Record::answered(3, "a/b.jpg", 2, answer()).unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        let outcome = record.outcome().unwrap();
        assert!(!outcome.is_correct() && outcome.in_top5);
        assert!((outcome.score.unwrap() - 0.25).abs() < 1e-7);
        assert_eq!(record.answer.unwrap().top5, [(1, 0.5), (2, 0.25), (0, 0.25)]);
    }

    #[test]
    fn a_temperature_changes_confidences_and_not_the_answer() {
        let mut record = Record::answered(3, "a/b.jpg", 2, answer()).unwrap();
        let at = |record: &Record, t: f64| record.outcome_at(Temperature::new(t).unwrap());
        let (plain, one, hot) = (record.outcome().unwrap(), at(&record, 1.0).unwrap(), at(&record, 2.0).unwrap());
        assert!((plain.confidence - one.confidence).abs() < 1e-6 && (plain.square_sum - one.square_sum).abs() < 1e-6);
        // Square roots of 1/4, 1/2, 1/4, scaled to 1.
        assert!((hot.confidence - 0.5f64.sqrt() / (1.0 + 0.5f64.sqrt())).abs() < 1e-6);
        assert_eq!(hot.prediction, plain.prediction);
        record.forget_probabilities();
        assert!(at(&record, 2.0).is_none() && record.outcome().is_some());
    }

    #[test]
    fn answers_that_are_not_numbers_are_refused() {
        let bad = Decision { probabilities: vec![f32::NAN; 3], ..answer() };
        assert!(matches!(Record::answered(0, "x", 0, bad), Err(Error::NotFinite { .. })));
        let short = Decision { probabilities: vec![1.0], ..answer() };
        assert!(Record::answered(0, "x", 0, short).is_err());
    }
}
