//! The answer for one image.

use crate::methods::{self, Explanation};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;

/// Which class, how sure, which views were selected, and how the answer was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    origin: Arc<Origin>,
    decision: methods::Decision,
    views: Option<usize>,
}

/// What all answers of one classifier share.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The class list, in the order of the probabilities.
    pub classes: Arc<[String]>,
    /// Name of the method.
    pub method: Cow<'static, str>,
    /// What the image tower multiplies in; `None` when features were given.
    pub precision: Option<Cow<'static, str>>,
    /// The rule by which image files are read; `None` when features were given.
    pub read: Option<Cow<'static, str>>,
}

/// One view of an image as a method saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ViewScore<'a> {
    /// Which view; 0 is the image itself.
    pub index: usize,
    /// What views were ranked by, lower is better; `None` for methods that rank none.
    pub score: Option<f32>,
    /// Entropy of its own probabilities in nats.
    pub entropy: Option<f32>,
    /// Its own prediction.
    pub label: Option<&'a str>,
    /// Whether it was selected.
    pub selected: bool,
}

/// An answer as JSON shows it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AnswerReport<'a> {
    /// Name of the answered class.
    pub prediction: &'a str,
    /// Its index in the class list.
    pub index: usize,
    /// The most probable classes.
    pub top: Vec<RankedClass<'a>>,
    /// Name of the method.
    pub method: &'a str,
    /// What the image tower multiplied in.
    pub precision: Option<&'a str>,
    /// Views that were encoded.
    pub views: Option<usize>,
    /// The rule by which image files are read.
    pub read: Option<&'a str>,
    /// The selected views, best first.
    pub selected_views: &'a [usize],
    /// What views were ranked by, one per view, lower is better.
    pub view_scores: &'a [f32],
    /// Views whose score is a lower bound; absent where there are none.
    #[serde(skip_serializing_if = "<[usize]>::is_empty")]
    pub view_score_bounds: &'a [usize],
}

/// One of the most probable classes.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct RankedClass<'a> {
    /// Its name.
    pub class: &'a str,
    /// Its index in the class list.
    pub index: usize,
    /// Its probability.
    pub probability: f32,
    /// How a model with a logit bias scores the image with this class alone; absent for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sigmoid: Option<f32>,
}

impl Answer {
    /// Name of the method that answered.
    pub fn method(&self) -> &str {
        &self.origin.method
    }

    /// What the image tower multiplied in: `f32`, `i16`, ...; `None` when features were given.
    pub fn precision(&self) -> Option<&str> {
        self.origin.precision.as_deref()
    }

    /// The rule by which the classifier reads image files: `exif` (as a person sees them) or `pillow`; `None` when features
    /// were given.
    pub fn read(&self) -> Option<&str> {
        self.origin.read.as_deref()
    }

    /// An answer from its parts: its [origin](Answer::origin), [decision](Answer::decision) and [views](Answer::views). A copy
    /// in another process is made this way.
    pub fn from_parts(origin: &Arc<Origin>, decision: methods::Decision, views: Option<usize>) -> Self {
        Self { origin: Arc::clone(origin), decision, views }
    }

    /// The classifier that it comes from.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// What the method decided, as it left it.
    pub fn decision(&self) -> &methods::Decision {
        &self.decision
    }

    pub(crate) fn with_views(self, count: usize) -> Self {
        Self { views: Some(count), ..self }
    }

    /// Views that were encoded for this answer: all, or fewer where views are any-time. `None` when features were given.
    pub fn views(&self) -> Option<usize> {
        self.views
    }

    /// Name of the answered class.
    pub fn label(&self) -> &str {
        self.name(self.decision.prediction)
    }

    /// Its index in the class list.
    pub fn index(&self) -> usize {
        self.decision.prediction
    }

    /// Its probability among the given classes: for most methods a softmax, also of models that were trained with a sigmoid
    /// (see [`Answer::sigmoid`]).
    pub fn confidence(&self) -> f32 {
        self.decision.probabilities.get(self.decision.prediction).copied().unwrap_or(0.0)
    }

    /// One probability per class, in the order of the class list.
    pub fn probabilities(&self) -> &[f32] {
        &self.decision.probabilities
    }

    /// How a model with a logit bias (SigLIP) scores the image with each class alone, in the order of the class list: the
    /// sigmoid of its logits for the un-augmented image. The scores do not add to 1; all are small where no class fits.
    /// `None` for other models.
    pub fn sigmoid(&self) -> Option<&[f32]> {
        let scores = self.explanation().sigmoid.as_slice();
        (!scores.is_empty()).then_some(scores)
    }

    /// The `top` most probable classes as (index, name, probability); ties go to the lower index.
    pub fn ranked(&self, top: usize) -> Vec<(usize, &str, f32)> {
        let ranked = most_probable(self.probabilities().iter().copied(), top).into_iter();
        ranked.map(|(index, probability)| (index, self.name(index), probability)).collect()
    }

    /// The answer with its `top` most probable classes, to be serialised: what the command line prints and Python gives as a
    /// dictionary.
    pub fn report(&self, top: usize) -> AnswerReport<'_> {
        let sigmoid = |index: usize| self.sigmoid().and_then(|scores| scores.get(index)).copied();
        let row = |(index, class, probability)| RankedClass { class, index, probability, sigmoid: sigmoid(index) };
        let why = self.explanation();
        AnswerReport {
            prediction: self.label(),
            index: self.index(),
            top: self.ranked(top).into_iter().map(row).collect(),
            method: self.method(),
            precision: self.precision(),
            views: self.views,
            read: self.read(),
            selected_views: &why.selected,
            view_scores: &why.scores,
            view_score_bounds: &why.bounds,
        }
    }

    /// The selected views, best first.
    pub fn selected(&self) -> Vec<ViewScore<'_>> {
        self.explanation().selected.iter().map(|&index| self.view(index)).collect()
    }

    /// One view.
    pub fn view(&self, index: usize) -> ViewScore<'_> {
        let why = self.explanation();
        ViewScore {
            index,
            score: why.scores.get(index).copied(),
            entropy: why.entropies.get(index).copied(),
            label: why.predictions.get(index).map(|&class| self.name(class)),
            selected: why.selected.contains(&index),
        }
    }

    /// Selected views, scores, entropies and predictions of all views as the method left them.
    pub fn explanation(&self) -> &Explanation {
        &self.decision.explanation
    }

    /// The class list.
    pub fn classes(&self) -> &[String] {
        &self.origin.classes
    }

    fn name(&self, class: usize) -> &str {
        self.origin.classes.get(class).map_or("", String::as_str)
    }
}

/// The `top` largest probabilities with their indices; ties go to the lower index.
pub(super) fn most_probable(probabilities: impl Iterator<Item = f32>, top: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<(usize, f32)> = probabilities.enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(top);
    all
}

#[cfg(test)]
mod tests {
    use crate::methods::probability::logits;
    use crate::prompt::Prompt;
    use crate::{Classifier, Model, ViewFeatures};
    use flatclip_tensor::Matrix;

    #[test]
    fn a_model_with_a_logit_bias_also_scores_each_class_alone() {
        let folder = crate::files::fixture("golden/models/tiny-siglip");
        let model = Model::load(folder.to_string_lossy()).unwrap();
        let wave = |rows: usize, step: f32| {
            Matrix::from_vec(rows, 48, (0..rows * 48).map(|i| (i as f32 * step).sin()).collect())
        };
        let classifier = Classifier::builder(&model)
            .classes(["cat", "dog", "fish"])
            .prompt(Prompt::features(wave(3, 0.7)).unwrap())
            .method("zero-shot")
            .build()
            .unwrap();
        let views = ViewFeatures::new(wave(2, 0.31)).unwrap();
        let answer = classifier.answer(&views).unwrap();
        let text = ViewFeatures::new(wave(3, 0.7)).unwrap().unit;
        let scaled = logits(&views.unit.select_rows(&[0]), &text, model.logit_scale());
        let scores = answer.sigmoid().unwrap();
        for (score, z) in scores.iter().zip(scaled.data()) {
            // -8.3 is in the file.
            assert!((score - 1.0 / (1.0 + (8.3 - z).exp())).abs() < 1e-5, "{score} {z}");
        }
        let report = answer.report(3);
        assert_eq!(report.top.len(), 3);
        for row in report.top {
            assert_eq!(row.sigmoid, Some(scores[row.index]));
        }
        assert!(scores[answer.index()] >= scores.iter().copied().fold(0.0, f32::max));
    }
}
