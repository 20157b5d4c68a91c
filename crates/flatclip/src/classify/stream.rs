//! A stream of images: what online methods learn from.

use super::ViewFeatures;
use super::answer::Answer;
use super::classifier::Classifier;
use crate::Result;
use crate::image::Image;
use crate::methods::OnlineAdapter;
use std::path::Path;

/// The state of an online method over the images of one caller. Two streams of one classifier know nothing of each other.
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

    /// The answer for the next image.
    pub fn answer(&mut self, image: &Image) -> Result<Answer> {
        self.answer_named(image, "")
    }

    /// The same for an image whose name says where its generated views are (DiffTPT).
    pub fn answer_named(&mut self, image: &Image, name: &str) -> Result<Answer> {
        let Self { classifier, adapter } = self;
        match adapter {
            None => classifier.answer_named(image, name),
            Some(adapter) => {
                let seen = classifier.see(image, name)?;
                let decision = adapter.adapt(classifier.task(), &seen.view_set())?;
                Ok(classifier.labelled(decision, seen.views())?.with_views(seen.count()))
            }
        }
    }

    /// The answer for the next image, from its encoded bytes.
    pub fn answer_bytes(&mut self, bytes: &[u8]) -> Result<Answer> {
        let image = self.classifier.decode(bytes)?;
        self.answer(&image)
    }

    /// The answer for the next image, from a file.
    pub fn answer_path(&mut self, path: impl AsRef<Path>) -> Result<Answer> {
        let path = path.as_ref();
        let image = self.classifier.open(path)?;
        self.answer_named(&image, &Classifier::name_of(path))
    }

    /// The answer for the next image, from the features of its views.
    pub fn answer_features(&mut self, views: &ViewFeatures) -> Result<Answer> {
        let Self { classifier, adapter } = self;
        match adapter {
            None => classifier.answer_features(views),
            Some(adapter) => {
                let set = Classifier::set_of(views);
                classifier.labelled(adapter.adapt(classifier.task(), &set)?, views)
            }
        }
    }
}
