//! One line of `predictions.jsonl`: everything that metrics, merges and comparisons need, and nothing that depends on
//! time, machine or shard.

use super::metrics::{Outcome, Temperature, top_classes};
use flatclip::methods::Decision;
use flatclip::{Error, Result};
use serde::{Deserialize, Serialize};

/// The record of one sample. Exactly one of `answer` and `error` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Position in the run's stream, over all shards.
    pub index: usize,
    /// The sample's id.
    pub id: String,
    /// The true class.
    pub label: usize,
    /// Digest of the image's bytes, so that a resumed run notices an image that has changed. `None` where it was drawn, and in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
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
    /// Whether the label is among the five of `top5` with a probability above zero.
    pub in_top5: bool,
    /// Probability of the answered class.
    pub confidence: f32,
    /// Probability of the true class.
    pub label_probability: f32,
    /// Sum of the squared probabilities.
    pub square_sum: f32,
    /// Views that were encoded, where that differs from image to image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<usize>,
    /// The selected views, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<usize>,
    /// Score of every view, lower is better.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f32>,
    /// Views whose score is a lower bound: it was enough to know that they are not selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<usize>,
    /// Logarithm of the probability of every class, where the run keeps them: for other temperatures. Negative infinity,
    /// null in JSON, for a probability of zero.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "logarithms")]
    pub log_probabilities: Vec<f32>,
}

impl AnswerRecord {
    /// Whether a label is a top-5 hit: the answer itself, or listed with a probability above zero. Among classes of
    /// probability zero the order is arbitrary, so none of them is a hit.
    fn is_in_top5(&self, label: usize) -> bool {
        let listed = self.top5.iter().any(|&(class, probability)| class == label && probability > 0.0);
        self.prediction == label || listed
    }
}

impl Record {
    /// The same by the rules of today: earlier versions counted ties beyond the fifth place as hits.
    pub(super) fn renewed(mut self) -> Self {
        let label = self.label;
        if let Some(answer) = &mut self.answer {
            answer.in_top5 = answer.is_in_top5(label);
        }
        self
    }

    /// The record of an answer.
    pub fn answered(index: usize, id: &str, label: usize, answer: Decision) -> Result<Self> {
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        if !finite(&answer.probabilities) || !finite(&answer.explanation.scores) {
            let reason = "the answer holds NaN or infinity; look at the weights and at the image".to_owned();
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
        let mut answer = AnswerRecord {
            prediction,
            top5: top_classes(ranked_by, 5).into_iter().map(|class| (class, probabilities[class])).collect(),
            in_top5: false,
            confidence,
            label_probability,
            square_sum,
            views: None,
            selected: explanation.selected,
            scores: explanation.scores,
            bounds: explanation.bounds,
            log_probabilities: probabilities.iter().map(|p| p.ln()).collect(),
        };
        answer.in_top5 = answer.is_in_top5(label);
        Ok(Self { index, id: id.to_owned(), label, image: None, answer: Some(answer), error: None })
    }

    /// The same, made from this image; a sample that could not be answered is tried again whatever its image is.
    #[must_use]
    pub(super) fn of_image(mut self, image: Option<&str>) -> Self {
        self.image = image.filter(|_| self.answer.is_some()).map(str::to_owned);
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
        Self { index, id: id.to_owned(), label, image: None, answer: None, error: Some(error.to_string()) }
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

/// Logarithms in JSON, which has no infinity: null for the logarithm of zero.
mod logarithms {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| Some(*value).filter(|value| value.is_finite())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        let values = Vec::<Option<f32>>::deserialize(deserializer)?;
        // Earlier versions wrote the logarithm of the smallest positive number in place of that of zero.
        let is_known = |value: &f32| *value != f32::MIN_POSITIVE.ln();
        Ok(values.into_iter().map(|value| value.filter(is_known).unwrap_or(f32::NEG_INFINITY)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::methods::Explanation;

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

    /// Votes for two of eight classes, as ZERO gives them.
    fn votes() -> Decision {
        let votes = vec![0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0];
        let probabilities = votes.iter().map(|v| v / 3.0).collect();
        Decision { prediction: 3, probabilities, class_scores: votes, explanation: Explanation::default() }
    }

    #[test]
    fn a_label_of_probability_zero_is_no_top5_hit_wherever_it_stands() {
        let hit = |label: usize| {
            let record = Record::answered(0, "x", label, votes()).unwrap();
            record.answer.unwrap().in_top5
        };
        let hits: Vec<usize> = (0..8).filter(|&label| hit(label)).collect();
        assert_eq!(hits, [3, 6]);
        // Ten equal classes: the first five of the printed order, and no more.
        let equal = |label: usize| {
            let answer =
                Decision { prediction: 0, probabilities: vec![0.1; 10], class_scores: vec![1.0; 10], ..votes() };
            Record::answered(0, "x", label, answer).unwrap().answer.unwrap().in_top5
        };
        assert_eq!((0..10).filter(|&label| equal(label)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_kept_probability_of_zero_is_null_and_stays_zero_at_every_temperature() {
        let record = Record::answered(0, "x", 0, votes()).unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains("\"log_probabilities\":[null,"), "{text}");
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);
        // Earlier versions wrote the logarithm of the smallest positive number.
        let earlier = text.replace("null", &f32::MIN_POSITIVE.ln().to_string());
        assert_eq!(serde_json::from_str::<Record>(&earlier).unwrap(), record);
        let hot = read.outcome_at(Temperature::new(10.0).unwrap()).unwrap();
        assert_eq!(hot.label_probability, 0.0);
        assert!(hot.confidence > 0.5 && hot.square_sum.is_finite(), "{hot:?}");
    }

    #[test]
    fn answers_that_are_not_numbers_are_refused() {
        let bad = Decision { probabilities: vec![f32::NAN; 3], ..answer() };
        assert!(matches!(Record::answered(0, "x", 0, bad), Err(Error::NotFinite { .. })));
        let short = Decision { probabilities: vec![1.0], ..answer() };
        assert!(Record::answered(0, "x", 0, short).is_err());
    }
}
