//! A stream of images: what online methods learn from.

use super::answer::Answer;
use super::classifier::Classifier;
use super::input::{Decoded, ImageInput};
use crate::Result;
use crate::methods::OnlineAdapter;

/// The state of an online method over the images of one caller. Two streams of one classifier are independent.
/// For an episodic method it is the classifier itself.
pub struct Stream {
    classifier: Classifier,
    /// `None` for an episodic method.
    adapter: Option<Box<dyn OnlineAdapter>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("classifier", &self.classifier).finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new(classifier: Classifier, adapter: Option<Box<dyn OnlineAdapter>>) -> Self {
        Self { classifier, adapter }
    }

    /// The classifier that it came from.
    pub fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// The answer for the next image: decoded, a file, encoded bytes, or the features of its views.
    pub fn answer<'i>(&mut self, input: impl Into<ImageInput<'i>>) -> Result<Answer> {
        let Self { classifier, adapter } = self;
        let Some(adapter) = adapter else { return classifier.answer(input) };
        match input.into().decoded(classifier)? {
            Decoded::Image(image, name) => {
                let seen = classifier.see(&image, &name)?;
                let decision = adapter.adapt(classifier.task(), &seen.view_set())?;
                Ok(classifier.labelled(decision, &seen.views)?.with_views(seen.views.unit.rows()))
            }
            Decoded::Features(views) => {
                let decision = adapter.adapt(classifier.task(), &classifier.set_of(views))?;
                classifier.labelled(decision, views)
            }
        }
    }
}
