//! What tuning changed: the plain images before and after, how far the parameters went, and how sharp the loss is there.

use super::fit::{HeldOut, LossAndAccuracy};
use super::tune::TuneInput;
use crate::data::Sample;
use crate::data::train_images::Readable;
use crate::tuners::{Batch, Tuner};
use flatclip::Result;
use flatclip::methods::sam::{Ascent, moved};
use flatclip::model::Clip;
use flatclip::prompt::{Prompt, PromptClassifier, Tensor};
use flatclip::rng::Stream;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};

/// Images in all that the comparison is made on, where the run keeps none out itself.
const IMAGES: usize = 256;
/// And of one class, at most.
const PER_CLASS: usize = 4;
/// A prompt that went less than this part of its norm did not go anywhere.
const STANDSTILL: f64 = 0.01;

/// Plain images (one un-augmented view each), before and after tuning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How many.
    pub images: usize,
    /// Whether they are held out; else they are the training images, since there are no others.
    pub held_out: bool,
    /// With the data set's own templates.
    pub before: LossAndAccuracy,
    /// With the tuned prompt.
    pub after: LossAndAccuracy,
}

impl Comparison {
    /// Whether the tuned prompt answers these images as the untuned one does: a loss within one per cent, as many right.
    pub fn changed_nothing(&self) -> bool {
        let (before, after) = (self.before, self.after);
        (after.loss - before.loss).abs() <= 0.01 * before.loss && after.accuracy == before.accuracy
    }
}

/// How far the parameters went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// ‖p - p0‖.
    pub moved: f64,
    /// The same in units of ‖p0‖.
    pub relative: f64,
}

impl Distance {
    /// From one set of tensors to another of the same shapes.
    pub(crate) fn between(start: &[Tensor], end: &[Tensor]) -> Self {
        let pairs = || start.iter().flat_map(|t| &t.values).zip(end.iter().flat_map(|t| &t.values));
        let norm = |squares: f64| squares.sqrt();
        let moved = norm(pairs().map(|(a, b)| f64::from(b - a).powi(2)).sum());
        let length = norm(pairs().map(|(a, _)| f64::from(*a).powi(2)).sum());
        Self { moved, relative: if length > 0.0 { moved / length } else { 0.0 } }
    }

    /// Whether the result is the start, for all that matters.
    pub fn stands_still(&self) -> bool {
        self.relative < STANDSTILL
    }
}

/// The radius at which runs are compared.
pub(super) const RADIUS: f64 = 0.1;

/// How sharp the loss is around the parameters: its rise at one radius.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharpnessAtRadius {
    /// Length of eps.
    pub radius: f64,
    /// The same as a fraction of the parameters' norm; 0 in runs of versions that did not say.
    #[serde(default)]
    pub relative_radius: f64,
    /// Loss at p.
    pub loss: f32,
    /// Loss at p + eps.
    pub perturbed_loss: f32,
    /// Their difference.
    pub sharpness: f32,
    /// Part of the images that are right at p.
    pub accuracy: f32,
}

/// SAM's measure at the tuner's parameters.
pub(super) fn sharpness(clip: &Clip, tuner: &dyn Tuner, batch: &Batch<'_>, radius: f64) -> Result<SharpnessAtRadius> {
    let p = tuner.parameters();
    let here = tuner.loss(clip, p, batch)?;
    let there = tuner.loss(clip, &moved(p, &Ascent::sam(radius).epsilon(p, &here.gradient)), batch)?;
    let norm = l2_norm(p.iter().flat_map(|tensor| &tensor.values));
    Ok(SharpnessAtRadius {
        radius,
        relative_radius: radius / norm.max(f64::MIN_POSITIVE),
        loss: here.value,
        perturbed_loss: there.value,
        sharpness: there.value - here.value,
        accuracy: here.correct as f32 / batch.labels.len().max(1) as f32,
    })
}

/// Loss and accuracy of a prompt on features.
pub(crate) fn measured(classifier: &PromptClassifier<'_>, own: &HeldOut) -> Result<LossAndAccuracy> {
    Ok(LossAndAccuracy::of(&classifier.logits(&own.features)?, &own.labels))
}

/// The images to compare on: those kept out, else some that were not drawn, else the training images.
pub(crate) struct Images {
    plain: HeldOut,
    held_out: bool,
}

impl Images {
    pub(crate) fn choose(input: &TuneInput<'_>, held_out: Option<&HeldOut>, used: &[Sample]) -> Result<Self> {
        if let Some(plain) = held_out.filter(|_| input.request.test.is_none()) {
            return Ok(Self { plain: plain.clone(), held_out: true });
        }
        let spare = spare(input, used);
        let readable = Readable::of(&spare, &input.decode()).good;
        let spare: Vec<Sample> = readable.into_iter().map(|i| spare[i].clone()).collect();
        let (samples, held_out) = if spare.is_empty() { (used, false) } else { (spare.as_slice(), true) };
        Ok(Self { plain: input.plain(samples)?, held_out })
    }

    pub(crate) fn compare(&self, input: &TuneInput<'_>, tuned: &PromptClassifier<'_>) -> Result<Comparison> {
        let dataset = input.dataset;
        let usual = [Prompt::TEMPLATE.to_owned()];
        let templates = if dataset.templates.is_empty() { &usual[..] } else { &dataset.templates };
        let prompt = Prompt::templates(templates)?;
        let untuned = PromptClassifier::new(&prompt, input.clip, input.tokenizer, &dataset.classes)?;
        Ok(Comparison {
            images: self.plain.labels.len(),
            held_out: self.held_out,
            before: measured(&untuned, &self.plain)?,
            after: measured(tuned, &self.plain)?,
        })
    }
}

/// A few images of each class that are not among `used`: the same for the same seed.
fn spare(input: &TuneInput<'_>, used: &[Sample]) -> Vec<Sample> {
    let dataset = input.dataset;
    let taken: std::collections::BTreeSet<&str> = used.iter().map(|sample| sample.id.as_str()).collect();
    let count = (IMAGES / dataset.classes.len().max(1)).clamp(1, PER_CLASS);
    let mut spare = Vec::new();
    for (class, members) in dataset.classes.iter().zip(dataset.by_class()) {
        let mut rest: Vec<&Sample> = members.iter().map(|&index| &dataset.samples[index]).collect();
        rest.retain(|sample| !taken.contains(sample.id.as_str()));
        rest.sort_by(|a, b| a.id.cmp(&b.id));
        Stream::new(input.request.seed, &["comparison", class]).shuffle(&mut rest);
        spare.extend(rest.into_iter().take(count).cloned());
    }
    spare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_in_units_of_the_start() {
        let tensor = |values: &[f32]| Tensor { name: "context".into(), shape: vec![2], values: values.to_vec() };
        let gone = Distance::between(&[tensor(&[3.0, 4.0])], &[tensor(&[3.0, 4.5])]);
        assert_eq!((gone.moved, gone.relative), (0.5, 0.1));
        assert!(!gone.stands_still());
        assert!(Distance::between(&[tensor(&[3.0, 4.0])], &[tensor(&[3.0, 4.01])]).stands_still());
    }
}
