//! From features to records: one sample at a time, or a set of samples together.

use super::record::Record;
use super::run::Evaluation;
use super::timing::{SampleTime, seconds};
use crate::data::Sample;
use flatclip::ViewFeatures;
use flatclip::classify::Rounds;
use flatclip::image::views::Pixels;
use flatclip::methods::{Adapter, Decision, Task, ViewSet};
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A sample on its way, with the place that it has in the stream: loaded first, then encoded.
pub(super) struct Encoded<'a> {
    pub(super) position: usize,
    pub(super) sample: &'a Sample,
    pub(super) features: Result<Ready>,
    /// Names the image, where it can change.
    pub(super) image: Option<String>,
    /// Time spent on decoding, views and cache look-up.
    pub(super) load: Duration,
    /// Of the views that the method uses; `None` where it is not known.
    pub(super) encode: Option<Duration>,
}

impl Encoded<'_> {
    fn times(&self, adapt: Duration) -> SampleTime {
        SampleTime {
            index: self.position,
            load: seconds(self.load),
            encode: self.encode.map(seconds),
            adapt: seconds(adapt),
        }
    }
}

/// What is there of a sample.
pub(super) struct Ready {
    /// None yet where nothing was kept of them: after loading, and where views are encoded in rounds.
    pub(super) views: ViewFeatures,
    /// Made now: when there were no features, or when the adapter needs pixels.
    pub(super) pixels: Option<Pixels>,
    pub(super) generated: Option<Matrix>,
    /// What encoding all views took, of features from the cache.
    pub(super) cached_encode: Option<Duration>,
}

impl Ready {
    /// Whether the features of all views are there.
    pub(super) fn is_encoded(&self) -> bool {
        self.views.unit.rows() > 0
    }

    fn view_set<'a>(&'a self, id: &'a str) -> ViewSet<'a> {
        ViewSet {
            norms: &self.views.norms,
            pixels: self.pixels.as_ref().and_then(Pixels::floats),
            generated: self.generated.as_ref(),
            ..ViewSet::new(id, &self.views.unit)
        }
    }
}

/// The record of one sample and what it took.
pub(super) type Answered = (Record, SampleTime);

/// The record of one sample and what it took.
pub(super) fn answer(item: &Encoded<'_>, adapt: impl FnOnce(&ViewSet<'_>) -> Result<Decision>) -> Result<Answered> {
    let start = Instant::now();
    let record = record(item, |ready| adapt(&ready.view_set(&item.sample.id)))?;
    Ok((record, item.times(start.elapsed())))
}

/// The record of one sample: the answer of `adapt` for its features, or why there are none. What every sample would meet (a method
/// or device that fails) is an error and no record.
fn record(item: &Encoded<'_>, adapt: impl FnOnce(&Ready) -> Result<Decision>) -> Result<Record> {
    let Sample { id, label, .. } = item.sample;
    let result = match &item.features {
        Ok(ready) => adapt(ready).and_then(|answer| Record::answered(item.position, id, *label, answer)),
        Err(error) => Ok(Record::failed(item.position, id, *label, error)),
    };
    let record = match result {
        Ok(record) => record,
        Err(error) if error.ends_work() => return Err(error),
        Err(error) => Record::failed(item.position, id, *label, &error),
    };
    Ok(record.of_image(item.image.as_deref()))
}

impl Evaluation<'_> {
    /// The record of one sample whose views are encoded in rounds, no more of them than the answer needs; what it took, and
    /// how much of that was encoding now.
    pub(super) fn answer_in_rounds(
        &self,
        rounds: &Rounds,
        adapter: &dyn Adapter,
        item: &Encoded<'_>,
    ) -> Result<(Record, SampleTime, Duration)> {
        let (start, mut encoding, mut seen) = (Instant::now(), Duration::ZERO, 0);
        let mut earlier = None;
        let record = record(item, |ready| {
            let (decision, count) = self.decide(rounds, adapter, item.sample, ready, &mut encoding)?;
            (seen, earlier) = (count, ready.is_encoded().then_some(ready.cached_encode));
            Ok(decision)
        })?;
        let times = item.times(start.elapsed().saturating_sub(encoding));
        // Cached features are charged as far as the answer looked at them.
        let charged = match earlier {
            Some(all) => all.map(|all| share_of(all, seen, self.encoder.views())),
            None => item.features.is_ok().then_some(encoding),
        };
        Ok((record.with_views(seen), SampleTime { encode: charged.map(seconds), ..times }, encoding))
    }

    /// The answer, and the number of views that it was made from.
    fn decide(
        &self,
        rounds: &Rounds,
        adapter: &dyn Adapter,
        sample: &Sample,
        ready: &Ready,
        encoding: &mut Duration,
    ) -> Result<(Decision, usize)> {
        let total = self.encoder.views();
        let encode = |views: Range<usize>| {
            if ready.is_encoded() {
                return Ok(ready.views.part(views));
            }
            let start = Instant::now();
            let features =
                self.encoder.encode_range(ready.pixels.as_ref().and_then(Pixels::floats).unwrap_or_default(), views);
            *encoding += start.elapsed();
            features
        };
        let (decision, views) = rounds.answer(adapter, self.task, &sample.id, total, encode)?;
        let count = views.unit.rows();
        // Only the features of all views are kept: another run may want them all.
        let cache = self.cache.filter(|_| count == total && !ready.is_encoded());
        // Features that are not kept cost time later, not this answer.
        if let Some(Err(error)) = cache.map(|cache| cache.put(sample, &views, *encoding)) {
            tracing::warn!("the feature cache cannot be written from here on: {error}");
        }
        Ok((decision, count))
    }
}

/// The part of the time for all views that some of them take.
pub(super) fn share_of(all: Duration, views: usize, total: usize) -> Duration {
    all.mul_f64(views.min(total) as f64 / total.max(1) as f64)
}

/// The records of samples that an episodic method answers in one call. If the call fails, each is asked about alone, so that
/// one bad image costs one.
pub(super) fn answer_many(set: &[Encoded<'_>], adapter: &dyn Adapter, task: &Task) -> Result<Vec<Answered>> {
    let mut failed = false;
    let answered = answer_set(set, |images| {
        let answers = adapter.adapt_many(task, images);
        failed = answers.is_err();
        answers
    })?;
    match failed {
        true => set.iter().map(|item| answer(item, |image| adapter.adapt(task, image))).collect(),
        false => Ok(answered),
    }
}

/// The records of a set. Samples without features are no part of it; if it has no answers, none of its samples has.
pub(super) fn answer_set(
    set: &[Encoded<'_>],
    adapt: impl FnOnce(&[ViewSet<'_>]) -> Result<Vec<Decision>>,
) -> Result<Vec<Answered>> {
    let start = Instant::now();
    let images: Vec<ViewSet<'_>> =
        set.iter().filter_map(|item| Some(item.features.as_ref().ok()?.view_set(&item.sample.id))).collect();
    let answers = if images.is_empty() { Ok(Vec::new()) } else { adapt(&images) };
    let share = start.elapsed() / set.len().max(1) as u32;
    let (mut answers, failed) = match answers {
        Ok(answers) => (answers.into_iter(), None),
        Err(error) if error.ends_work() => return Err(error),
        Err(error) => (Vec::new().into_iter(), Some(error.to_string())),
    };
    let of = |item: &Encoded<'_>| {
        let own = record(item, |_| {
            answers.next().ok_or_else(|| {
                let reason = failed.clone().unwrap_or_else(|| "the set has no answer for it".to_owned());
                Error::config(format!("set of sample {}", item.sample.id), reason)
            })
        })?;
        Ok((own, item.times(share)))
    };
    set.iter().map(of).collect()
}
