//! The test sets of an analysis: which images, and what is found for each of them.

use super::AnalyzeRequest;
use crate::data::Dataset;
use crate::eval::Plan;
use crate::flatness::{Ball, EntropyFound, EntropyGap, Floor, Scores, WorstEntropy, ascend_entropy, spread};
use crate::report::AnalysedSet;
use flatclip::methods::adapters::stss::Stss;
use flatclip::methods::probability::logits;
use flatclip::methods::{Adapter as _, Task, ViewSet};
use flatclip::model::Features;
use flatclip::{Error, Matrix, Model, Progress, Result};
use std::collections::BTreeSet;

/// Images per call of the image tower.
const BATCH: usize = 32;
/// Steps of the ascent of an image's entropy.
const STEPS: usize = 6;

impl AnalyzeRequest {
    /// The same with all three data sets cut to the classes that they share (ImageNet against ImageNet-A: 200), in the order
    /// of the nearer set; scores over different class lists would not compare.
    pub(super) fn on_common_classes(&self, progress: &dyn Progress) -> Result<Self> {
        let sets = [&self.near, &self.far, &self.train];
        if sets.iter().all(|set| set.classes == self.near.classes) {
            return Ok(self.clone());
        }
        let place = |set: &Dataset, name: &String| set.classes.iter().position(|class| class == name);
        let mut common: Vec<String> = Vec::new();
        for name in &self.near.classes {
            if sets.iter().all(|set| place(set, name).is_some()) && !common.contains(name) {
                common.push(name.clone());
            }
        }
        if common.len() < 2 {
            let counts: Vec<String> = sets.iter().map(|set| format!("{} ({})", set.name, set.classes.len())).collect();
            let reason =
                format!("expected classes that all data sets share, found {}: {}", common.len(), counts.join(", "));
            return Err(Error::config("classes", reason));
        }
        progress.note(&format!("on the {} classes that all three data sets share", common.len()));
        let cut = |set: &Dataset| {
            let keep: Vec<usize> = common.iter().filter_map(|name| place(set, name)).collect();
            set.restrict_classes(&keep)
        };
        let (near, far, train) = (cut(&self.near), cut(&self.far), cut(&self.train));
        if near.samples.is_empty() || far.samples.is_empty() {
            return Err(Error::config("classes", "one of the sets has no image of the shared classes"));
        }
        Ok(Self { near, far, train, ..self.clone() })
    }
}

/// What the images of a set are measured with.
pub(super) struct Measure<'a> {
    pub(super) request: &'a AnalyzeRequest,
    pub(super) model: &'a Model,
    pub(super) task: &'a Task,
    pub(super) stss: &'a Stss,
    pub(super) ball: Ball<'a>,
    pub(super) floor: Floor,
    /// Unit-norm mean feature of each class over the training images.
    pub(super) centres: Matrix,
}

/// What was found for every image of a set.
pub(super) struct Found {
    pub(super) scores: Scores,
    pub(super) features: Matrix,
    /// The largest entropy that ascent found, for images spread over the set.
    pub(super) ascent: Vec<f32>,
    /// The scores of the same images.
    pub(super) ascent_scores: Vec<f32>,
    pub(super) set: AnalysedSet,
}

impl Measure<'_> {
    pub(super) fn set(&self, dataset: &Dataset, progress: &dyn Progress) -> Result<Found> {
        // Data sets are read class by class: the first images would be those of a few classes.
        let indices = Plan::new(dataset.samples.len(), Some(self.request.limit), None).order;
        let mut scores = Scores::default();
        let mut rows: Vec<(Vec<f32>, usize)> = Vec::new();
        let mut features: Vec<f32> = Vec::new();
        let decode = dataset.decode_options(self.request.exif);
        progress.start(&dataset.name, Some(indices.len() as u64));
        for batch in indices.chunks(BATCH) {
            let decoded_images = batch.iter().map(|&i| dataset.samples[i].image(&decode));
            let images = Features::unit(self.model.plain_features(decoded_images)?).0;
            self.scores(dataset, batch, &images, &mut scores)?;
            let outputs = self.task.logits(&images);
            rows.extend(outputs.iter_rows().zip(batch).map(|(row, &i)| (row.to_vec(), dataset.samples[i].label)));
            features.extend_from_slice(images.data());
            progress.advance(rows.len() as u64, "");
            stop_if_cancelled(&dataset.name, progress)?;
        }
        progress.finish();
        let width = self.centres.cols();
        let features = Matrix::from_vec(features.len() / width.max(1), width, features);
        let (places, found) = self.ascend(&dataset.name, &features, &scores, progress)?;
        let gap = EntropyGap::measure(rows.iter().map(|(row, label)| (row.as_slice(), *label)), self.floor);
        let name = if dataset.spec.is_empty() { &dataset.name } else { &dataset.spec };
        let covered: BTreeSet<usize> = rows.iter().map(|(_, label)| *label).collect();
        let (classes, worst) = ((covered.len(), dataset.classes.len()), self.both_estimates(&scores, &places, &found));
        let set = AnalysedSet::new(name, classes, &scores, worst, gap);
        let ascent = found.iter().map(|found| found.plain as f32).collect();
        let ascent_scores = places.iter().map(|&i| scores.scores[i]).collect();
        Ok(Found { scores, features, ascent, ascent_scores, set })
    }

    /// Score, entropy, distance and answer of some images.
    fn scores(&self, dataset: &Dataset, batch: &[usize], images: &Matrix, scores: &mut Scores) -> Result<()> {
        let floored = self.floored(images);
        for (row, (&i, floored)) in batch.iter().zip(floored).enumerate() {
            let sample = &dataset.samples[i];
            let one = images.select_rows(&[row]);
            let answer = self.stss.adapt(self.task, &ViewSet::new(&sample.id, &one))?;
            let dot = |c: &[f32]| c.iter().zip(one.row(0)).map(|(a, b)| a * b).sum::<f32>();
            scores.scores.push(answer.explanation.scores[0]);
            scores.entropies.push(answer.explanation.entropies[0]);
            scores.floored.push(floored as f32);
            scores.right.push(answer.explanation.predictions[0] == sample.label);
            scores.distances.push(1.0 - self.centres.iter_rows().map(dot).fold(f32::NEG_INFINITY, f32::max));
        }
        Ok(())
    }

    /// The score of every image with outputs raised to the floor: the largest over the same perturbed contexts.
    fn floored(&self, images: &Matrix) -> Vec<f64> {
        let scale = self.task.logit_scale;
        let perturbed = self.stss.bank().map(|bank| bank.perturbed()).unwrap_or_default();
        let outputs: Vec<Matrix> = match perturbed {
            [] => vec![self.task.logits(images)],
            all => all.iter().map(|text| logits(images, text, scale)).collect(),
        };
        let largest = |row: usize| EntropyFound::over(outputs.iter().map(|at| at.row(row)), self.floor).floored;
        (0..images.rows()).map(largest).collect()
    }

    /// Ascent of the entropy of images spread over the set; what a random direction found counts too.
    fn ascend(
        &self,
        name: &str,
        features: &Matrix,
        scores: &Scores,
        progress: &dyn Progress,
    ) -> Result<(Vec<usize>, Vec<EntropyFound>)> {
        let places = spread(features.rows(), self.request.ascent_images);
        progress.start(&format!("{name}: ascent"), Some(places.len() as u64));
        let mut found = Vec::with_capacity(places.len());
        for batch in places.chunks(BATCH) {
            let images = features.select_rows(batch);
            let ascent = ascend_entropy(&self.ball, &images, STEPS, self.floor)?;
            found.extend(ascent.into_iter().zip(batch).map(|(found, &i)| {
                let (plain, floored) = (f64::from(scores.scores[i]), f64::from(scores.floored[i]));
                found.larger(EntropyFound { plain, floored })
            }));
            progress.advance(found.len() as u64, "");
            stop_if_cancelled(name, progress)?;
        }
        progress.finish();
        Ok((places, found))
    }

    fn both_estimates(&self, scores: &Scores, places: &[usize], found: &[EntropyFound]) -> WorstEntropy {
        let n = places.len().max(1) as f64;
        let mean = |values: &[f32]| places.iter().map(|&i| f64::from(values[i])).sum::<f64>() / n;
        WorstEntropy {
            images: places.len(),
            entropy: mean(&scores.entropies),
            random: mean(&scores.scores),
            directions: self.stss.bank().map_or(0, |bank| bank.perturbed().len()),
            ascent: found.iter().map(|found| found.plain).sum::<f64>() / n,
            steps: STEPS,
            ascent_floored: found.iter().map(|found| found.floored).sum::<f64>() / n,
        }
    }
}

pub(super) fn stop_if_cancelled(name: &str, progress: &dyn Progress) -> Result<()> {
    if progress.cancelled() {
        return Err(Error::Interrupted(format!("{name}: nothing was written")));
    }
    Ok(())
}
