//! Several images at once, of one caller or of many: few calls of the image tower instead of many small ones.

use super::ViewFeatures;
use super::answer::Answer;
use super::classifier::Classifier;
use crate::image::Image;
use crate::{Error, Result};
use rayon::prelude::*;

/// The pixels of an image's views, ready to share a call of the image tower with those of others.
#[derive(Clone, Debug)]
pub struct ViewPixels {
    pub(super) id: String,
    pub(super) pixels: Vec<f32>,
}

/// An image that is to be answered.
enum Asked<'a> {
    /// Views that may share a call of the tower.
    Together(Result<ViewPixels>),
    /// An image that the method sees alone.
    Alone(&'a Image),
}

impl Classifier {
    /// Answers images together, each with its own classifier: views of classifiers of one model go through the image tower
    /// in one batch, which is faster than one by one when an image has few views. Every answer is the one that
    /// [`Classifier::answer_and_features`] gives, and one that fails does not touch the others.
    ///
    /// ```
    /// # fn main() -> flatclip::Result<()> {
    /// use flatclip::{Classifier, Model, Image};
    /// let model = Model::load("pocket")?;
    /// let animals = Classifier::builder(&model).classes(["cat", "fish"]).build()?;
    /// let image = Image { width: 8, height: 8, rgb: vec![90; 192] };
    /// let answers = Classifier::answer_together(&[(&animals, &image), (&animals, &image)]);
    /// assert_eq!(answers[0].as_ref().unwrap().0, animals.answer(&image)?);
    /// # Ok(()) }
    /// ```
    pub fn answer_together(asked: &[(&Self, &Image)]) -> Vec<Result<(Answer, ViewFeatures)>> {
        let made = asked.par_iter().map(|&(classifier, image)| {
            (classifier, classifier.batch_views(image).map_or(Asked::Alone(image), Asked::Together))
        });
        answer_all(made.collect())
    }

    /// One answer per image, their views in one call of the image tower. Every answer is the one that [`Classifier::answer`] gives.
    pub fn answer_batch(&self, images: Vec<Result<ViewPixels>>) -> Vec<Result<Answer>> {
        let asked = images.into_iter().map(|image| (self, Asked::Together(image))).collect();
        answer_all(asked).into_iter().map(|answered| Ok(answered?.0)).collect()
    }
}

fn answer_all(mut asked: Vec<(&Classifier, Asked<'_>)>) -> Vec<Result<(Answer, ViewFeatures)>> {
    let mut encoded: Vec<Result<ViewFeatures>> = asked.iter().map(|_| Ok(ViewFeatures::none())).collect();
    for group in groups(&asked) {
        let mut pixels = Vec::new();
        for &place in &group {
            if let (_, Asked::Together(Ok(views))) = &mut asked[place] {
                let own = std::mem::take(&mut views.pixels);
                if pixels.is_empty() { pixels = own } else { pixels.extend(own) }
            }
        }
        let count = group.iter().map(|&place| asked[place].0.views()).sum();
        let features = asked[group[0]].0.encode_pixels(&pixels, count);
        let mut start = 0;
        for place in group {
            let own = start..start + asked[place].0.views();
            start = own.end;
            // The tower fails for all of them alike; each gets its own error.
            let failed = |error: &Error| Error::config("views", error.to_string());
            encoded[place] = features.as_ref().map(|features| features.part(own)).map_err(failed);
        }
    }
    let answer = |((classifier, asked), features): ((&Classifier, Asked<'_>), Result<ViewFeatures>)| match asked {
        Asked::Alone(image) => classifier.answer_and_features(image),
        Asked::Together(views) => {
            let (views, features) = (views?, features?);
            Ok((classifier.decide_features(&views.id, &features)?, features))
        }
    };
    asked.into_par_iter().zip(encoded).map(answer).collect()
}

/// Places of images whose views can share a call of one tower, in their order.
fn groups(asked: &[(&Classifier, Asked<'_>)]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (place, (classifier, _)) in
        asked.iter().enumerate().filter(|(_, (_, asked))| matches!(asked, Asked::Together(Ok(_))))
    {
        match groups.iter_mut().find(|group| asked[group[0]].0.shares_tower(classifier)) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Model;

    fn image(seed: u8) -> Image {
        Image { width: 40, height: 30, rgb: (0..3600u32).map(|i| (i * 7 + u32::from(seed) * 31) as u8).collect() }
    }

    #[test]
    fn a_mix_of_models_methods_and_views_gives_the_answers_of_each_alone() {
        let (pocket, vit) = (Model::load("pocket").unwrap(), Model::load("pocket-vit").unwrap());
        let build = |model: &Model, method: &str, views: usize| {
            Classifier::builder(model).classes(["fish", "lamp", "boat"]).method(method).views(views).build().unwrap()
        };
        let any_time = Classifier::builder(&pocket).classes(["fish", "lamp"]).method("zero").any_time(0.9).build();
        let classifiers = [
            build(&pocket, "zero-shot", 1),
            build(&pocket, "stss", 16),
            build(&vit, "zero", 8),
            build(&pocket, "tpt", 8),
            any_time.unwrap(),
            build(&pocket, "tda", 1),
        ];
        let images: Vec<Image> = (0..6).map(image).collect();
        let asked: Vec<(&Classifier, &Image)> = classifiers.iter().zip(&images).collect();
        let together = Classifier::answer_together(&asked);
        for (place, (classifier, image)) in asked.iter().enumerate().take(5) {
            let alone = classifier.answer_and_features(image).unwrap();
            let (answer, features) = together[place].as_ref().unwrap();
            assert_eq!((answer, &features.unit, &features.norms), (&alone.0, &alone.1.unit, &alone.1.norms), "{place}");
        }
        // An online method is refused here as it is alone, and the others have their answers.
        assert!(together[5].as_ref().unwrap_err().to_string().contains("stream"));
        assert!(Classifier::answer_together(&[]).is_empty());
    }

    #[test]
    fn bounds_give_the_answer_of_all_scores() {
        let model = Model::load("pocket").unwrap();
        let classes = ["fish", "lamp", "boat", "cat", "cup", "tree"];
        let build = || Classifier::builder(&model).classes(classes).method("stss").views(32);
        let mut dropped = 0;
        for classifier in [build().build().unwrap(), build().any_time(0.9).build().unwrap()] {
            for image in (0..4).map(image) {
                let lazy = classifier.answer(&image).unwrap();
                let all = classifier.explaining(true).answer(&image).unwrap();
                let (few, every) = (lazy.explanation(), all.explanation());
                assert_eq!((lazy.probabilities(), lazy.views()), (all.probabilities(), all.views()));
                assert_eq!(few.selected, every.selected);
                assert!(every.bounds.is_empty());
                for (view, (bound, score)) in few.scores.iter().zip(&every.scores).enumerate() {
                    assert!(if few.bounds.contains(&view) { bound <= score } else { bound == score }, "view {view}");
                }
                dropped += few.bounds.len();
            }
        }
        assert!(dropped > 0);
    }

    #[test]
    fn a_batch_has_the_answers_of_each_alone() {
        let model = Model::load("pocket").unwrap();
        for (method, views) in [("zero-shot", 1), ("stss", 4)] {
            let classifier =
                Classifier::builder(&model).classes(["fish", "lamp"]).method(method).views(views).build().unwrap();
            assert!(classifier.takes_batches());
            let images: Vec<Image> = (0..5).map(image).collect();
            let mut made: Vec<_> = images.iter().map(|image| classifier.batch_views(image).unwrap()).collect();
            made.insert(2, Err(crate::Error::config("image", "damaged")));
            let mut answers = classifier.answer_batch(made);
            assert!(answers.remove(2).unwrap_err().to_string().contains("damaged"));
            for (answer, image) in answers.into_iter().zip(&images) {
                assert_eq!(answer.unwrap(), classifier.answer(image).unwrap());
            }
        }
        let bad = || Err(crate::Error::config("image", "damaged"));
        let classifier = Classifier::builder(&model).classes(["fish", "lamp"]).build().unwrap();
        assert!(classifier.answer_batch(vec![bad(), bad()]).iter().all(Result::is_err));
        let online = Classifier::builder(&model).classes(["fish", "lamp"]).method("tda").build().unwrap();
        assert!(!online.takes_batches() && online.batch_views(&image(1)).is_none());
    }
}
