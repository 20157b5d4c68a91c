//! Images of several callers at once: few calls of the image tower instead of many small ones.

use super::ViewFeatures;
use super::answer::Answer;
use super::classifier::Classifier;
use crate::image::Image;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use rayon::prelude::*;

/// An image's name and the pixels of its views.
pub(super) type NamedPixels = (String, Vec<f32>);

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
        let made: Vec<Option<Result<NamedPixels>>> =
            asked.par_iter().map(|(classifier, image)| classifier.batch_pixels(image)).collect();
        let mut encoded: Vec<Option<Result<ViewFeatures>>> = asked.iter().map(|_| None).collect();
        let mut names = vec![String::new(); asked.len()];
        let mut pixels: Vec<Option<Vec<f32>>> = vec![None; asked.len()];
        for (place, made) in made.into_iter().enumerate() {
            match made {
                Some(Ok((id, own))) => (names[place], pixels[place]) = (id, Some(own)),
                Some(Err(error)) => encoded[place] = Some(Err(error)),
                None => {}
            }
        }
        for group in groups(asked, &pixels) {
            for (place, features) in encode_group(asked, &mut pixels, &group) {
                encoded[place] = Some(features);
            }
        }
        let answer = |(place, features): (usize, Option<Result<ViewFeatures>>)| {
            let (classifier, image) = asked[place];
            match features {
                None => classifier.answer_and_features(image),
                Some(features) => {
                    let features = features?;
                    Ok((classifier.decide_features(&names[place], &features)?, features))
                }
            }
        };
        encoded.into_par_iter().enumerate().map(answer).collect()
    }
}

/// Places of images whose views can share a call of one tower, in their order.
fn groups(asked: &[(&Classifier, &Image)], pixels: &[Option<Vec<f32>>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for place in (0..asked.len()).filter(|&place| pixels[place].is_some()) {
        let same = |group: &&mut Vec<usize>| asked[group[0]].0.shares_tower(asked[place].0);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

/// Features of the views of one group, by place.
fn encode_group(
    asked: &[(&Classifier, &Image)],
    pixels: &mut [Option<Vec<f32>>],
    group: &[usize],
) -> Vec<(usize, Result<ViewFeatures>)> {
    let counts: Vec<usize> = group.iter().map(|&place| asked[place].0.views()).collect();
    let mut all = Vec::new();
    for &place in group {
        let own = pixels[place].take().unwrap_or_default();
        if all.is_empty() { all = own } else { all.extend(own) }
    }
    match asked[group[0]].0.encode_pixels(&all, counts.iter().sum()) {
        Ok(features) => split(features, group, &counts),
        // The tower fails for all of them alike; each gets its own error.
        Err(error) => {
            let text = error.to_string();
            group.iter().map(|&place| (place, Err(Error::config("views", text.clone())))).collect()
        }
    }
}

fn split(features: ViewFeatures, group: &[usize], counts: &[usize]) -> Vec<(usize, Result<ViewFeatures>)> {
    if let [place] = group {
        return vec![(*place, Ok(features))];
    }
    let (mut start, width) = (0, features.unit.cols());
    let mut part = |(&place, &count): (&usize, &usize)| {
        let rows = features.unit.data()[start * width..(start + count) * width].to_vec();
        let own = ViewFeatures {
            unit: Matrix::from_vec(count, width, rows),
            norms: features.norms[start..start + count].to_vec(),
        };
        start += count;
        (place, Ok(own))
    };
    group.iter().zip(counts).map(&mut part).collect()
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
}
