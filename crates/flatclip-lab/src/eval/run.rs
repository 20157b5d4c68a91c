//! One run: prompt x adapter x data set, from samples to records.

use super::answer::{Answered, Encoded, Ready, answer, answer_many, answer_set, share_of};
use super::cache::FeatureCache;
use super::encoder::Encoder;
use super::log::PredictionLog;
use super::plan::{Plan, Shard};
use super::record::Record;
use super::timing::{SampleTime, Timing, seconds};
use crate::data::{Dataset, shortened};
use flatclip::ViewFeatures;
use flatclip::classify::Rounds;
use flatclip::error::{Hint, quoted};
use flatclip::image::views::Pixels;
use flatclip::methods::{AnyAdapter, Kind, Task};
use flatclip::progress::Progress;
use flatclip::resident_memory;
use flatclip::{Error, Result};
use rayon::prelude::*;
use std::time::{Duration, Instant};

pub(crate) struct Evaluation<'a> {
    pub dataset: &'a Dataset,
    pub task: &'a Task,
    /// Whether the adapter needs pixels in addition to features.
    pub wants_pixels: bool,
    /// Views of a sample that the method uses: it is charged for encoding these, however many are made for others.
    pub views_used: usize,
    pub encoder: &'a dyn Encoder,
    pub cache: Option<&'a FeatureCache>,
    /// Which samples, in which order.
    pub plan: &'a Plan,
    /// Which part of them.
    pub shard: Option<Shard>,
    /// Stop when more samples than this are bad.
    pub max_errors: usize,
    /// Any-time views: they are encoded only as far as an answer needs.
    pub rounds: Option<Rounds>,
    /// Keep the probability of every class.
    pub keep_probabilities: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RunState {
    /// Samples with a record.
    done: usize,
    total: usize,
    right: usize,
    failed: usize,
}

impl RunState {
    /// Share of the answered samples that is right, for people.
    fn status(&self) -> String {
        let accuracy = self.right as f64 / (self.done - self.failed).max(1) as f64;
        let bad = if self.failed > 0 { format!(", {} bad", self.failed) } else { String::new() };
        format!("top-1 {:.2} %{bad}", 100.0 * accuracy)
    }

    fn count(&mut self, record: &Record) {
        self.done += 1;
        match &record.answer {
            Some(answer) => self.right += usize::from(answer.prediction == record.label),
            None => self.failed += 1,
        }
    }
}

impl Evaluation<'_> {
    /// Answers every sample of the shard that has no record in `records` yet, in order, appending to the log and to
    /// `records`. The adapter must be prepared.
    pub(crate) fn run(
        &self,
        adapter: &mut AnyAdapter,
        log: &mut PredictionLog,
        records: &mut Vec<Record>,
        progress: &dyn Progress,
    ) -> Result<Timing> {
        self.check(adapter.kind())?;
        let positions = self.plan.positions(self.shard);
        self.check_prefix(records, &positions)?;
        self.check_images(records)?;
        let mut timing = Timing { views_used: self.views_used, ..Timing::default() };
        self.retry(adapter, log, records, &mut timing, progress)?;
        let mut state = RunState { total: positions.len(), ..RunState::default() };
        records.iter().for_each(|record| state.count(record));
        progress.advance(state.done as u64, &state.status());
        let size = if adapter.set_size() == 0 { positions.len().max(1) } else { adapter.set_size() };
        // An online adapter must process the earlier samples again before it resumes, one that answers sets a whole set.
        let mut replay = match adapter.kind() {
            Kind::Online => records.len(),
            Kind::Batch if records.len() < positions.len() => records.len() % size,
            _ => 0,
        };
        let first = records.len() - replay;
        let start = Instant::now();
        let mut settle = |encoded: &[Encoded<'_>], timing: &mut Timing| {
            let mut new = self.adapt(adapter, encoded, timing).map_err(ended)?;
            let old = replay.min(new.len());
            self.check_replay(&records[records.len() - replay..], &new[..old])?;
            replay -= old;
            new.drain(..old);
            log.append(&new)?;
            new.iter().for_each(|record| state.count(record));
            records.append(&mut new);
            progress.advance(state.done as u64, &state.status());
            timing.note_memory(false);
            self.check_errors(&state, records)?;
            if progress.cancelled() && state.done < state.total {
                log.sync()?;
                let text = format!("{} of {} samples are done and saved", state.done, state.total);
                return Err(Error::Interrupted(text).with_hint(Hint::Resume));
            }
            Ok(())
        };
        let mut waiting = Vec::new();
        self.load(&positions[first..], |batch| {
            waiting.extend(self.encode(batch, &mut timing, progress).map_err(ended)?);
            while !waiting.is_empty() && waiting.len() >= size {
                // Samples that are answered alone need not wait.
                let count = if size == 1 { waiting.len() } else { size };
                let set: Vec<Encoded<'_>> = waiting.drain(..count).collect();
                settle(&set, &mut timing)?;
            }
            // With nothing to answer, only an interruption is looked for: a set can be the whole stream.
            if progress.cancelled() { settle(&[], &mut timing) } else { Ok(()) }
        })?;
        if !waiting.is_empty() {
            settle(&waiting, &mut timing)?;
        }
        log.sync()?;
        timing.wall = seconds(start.elapsed());
        timing.note_memory(true);
        timing.peak_memory = resident_memory().1;
        Ok(timing)
    }

    /// Tries samples again that failed in an earlier session: the disk may have been full, or the file may be there now. A
    /// method that learns from its stream resumes before the first of them.
    fn retry(
        &self,
        adapter: &mut AnyAdapter,
        log: &mut PredictionLog,
        records: &mut Vec<Record>,
        timing: &mut Timing,
        progress: &dyn Progress,
    ) -> Result<()> {
        let failed: Vec<usize> = (0..records.len()).filter(|&i| records[i].error.is_some()).collect();
        let Some(&first) = failed.first() else { return Ok(()) };
        if adapter.kind() != Kind::Episodic {
            records.truncate(first);
            return log.replace(records);
        }
        let positions: Vec<usize> = failed.iter().map(|&i| records[i].index).collect();
        let (mut again, mut spent) = (Vec::new(), timing.clone());
        self.load(&positions, |batch| {
            let encoded = self.encode(batch, &mut spent, progress)?;
            again.extend(self.adapt(adapter, &encoded, &mut spent)?);
            Ok(())
        })?;
        let mut changed = false;
        for (place, record) in failed.into_iter().zip(again) {
            changed |= records[place] != record;
            records[place] = record;
        }
        if changed {
            *timing = spent;
            log.replace(records)?;
        }
        Ok(())
    }

    /// Refuses a part of a stream to a method whose answers depend on the others of the stream.
    pub(crate) fn check(&self, kind: Kind) -> Result<()> {
        let reason = match kind {
            Kind::Online => {
                "an online method learns from the stream: shards of it are other streams with other answers. Run it whole"
            }
            Kind::Batch => {
                "a batch method answers sets of images together: shards of a stream have other sets with other answers. \
                 Run it whole"
            }
            Kind::Episodic => return Ok(()),
        };
        if self.shard.is_some_and(|shard| shard.count > 1) {
            return Err(Error::config("shard", reason));
        }
        Ok(())
    }

    /// The records of an earlier session must be the beginning of this run.
    fn check_prefix(&self, records: &[Record], positions: &[usize]) -> Result<()> {
        let fits = |(record, &position): (&Record, &usize)| {
            record.index == position && record.id == self.dataset.samples[self.plan.order[position]].id
        };
        if records.len() <= positions.len() && records.iter().zip(positions).all(fits) {
            return Ok(());
        }
        Err(fault("its records are not the beginning of this run: the data set or its order has changed"))
    }

    /// Answers of an earlier session must be those of the images as they are now.
    fn check_images(&self, records: &[Record]) -> Result<()> {
        let changed = records.par_iter().find_map_first(|record| {
            let (before, sample) = (record.image.as_ref()?, &self.dataset.samples[self.plan.order[record.index]]);
            let kept = self.cache.and_then(|cache| cache.content_digest(sample)).map(shortened);
            let now = kept.map_or_else(|| sample.short_digest(), |digest| Ok(Some(digest)));
            match now {
                Ok(now) if now.as_ref() == Some(before) => None,
                Ok(_) => Some((sample, "has changed since it was answered".to_owned())),
                Err(error) => Some((sample, format!("was answered and cannot be read any more ({error})"))),
            }
        });
        let Some((sample, what)) = changed else { return Ok(()) };
        let reason = format!("cannot go on: the image `{}` {what}", quoted(&sample.id));
        Err(fault(reason).with_hint(Hint::Elsewhere))
    }

    fn check_replay(&self, old: &[Record], new: &[Record]) -> Result<()> {
        match old.iter().zip(new).find(|(old, new)| old != new) {
            None => Ok(()),
            Some((old, _)) => {
                let what = "replaying the stream gives another answer for";
                Err(fault(format!("{what} `{}`; the model or code changed", old.id)))
            }
        }
    }

    fn check_errors(&self, state: &RunState, records: &[Record]) -> Result<()> {
        if state.failed <= self.max_errors {
            return Ok(());
        }
        let last = records.iter().rev().find_map(|record| record.error.clone()).unwrap_or_default();
        let error = Error::Limit {
            what: format!("bad samples (the last: {last})"),
            asked: state.failed as u64,
            allowed: self.max_errors as u64,
            hint: "finished samples are saved".into(),
        };
        Err(error.with_hint(Hint::AllowErrors(self.dataset.samples.len())))
    }

    /// Runs the tower on the views of all samples that have no features, in one batch.
    fn encode<'s>(
        &self,
        mut batch: Vec<Encoded<'s>>,
        timing: &mut Timing,
        progress: &dyn Progress,
    ) -> Result<Vec<Encoded<'s>>> {
        let views = self.encoder.views();
        // Views that are encoded in rounds are encoded when the image is answered.
        let is_fresh = |ready: &&Ready| !ready.is_encoded() && self.rounds.is_none();
        let ready = batch.iter().filter_map(|item| item.features.as_ref().ok());
        let fresh: Vec<&Pixels> = ready.filter(is_fresh).filter_map(|ready| ready.pixels.as_ref()).collect();
        let start = Instant::now();
        let mut encoded = self.encode_views(&fresh, views)?.into_iter();
        let share = start.elapsed() / fresh.len().max(1) as u32;
        timing.encode_session += share.as_secs_f64() * fresh.len() as f64;
        for item in &mut batch {
            timing.samples += 1;
            timing.load += item.load.as_secs_f64();
            let Ok(ready) = &mut item.features else { continue };
            let mut encode = None;
            if ready.is_encoded() {
                timing.cached += 1;
                encode = ready.cached_encode;
            } else if self.rounds.is_none() {
                let lost = || Error::config(format!("sample {}", item.sample.id), "the encoder gave no features");
                match encoded.next().unwrap_or_else(|| Err(lost())) {
                    Ok(features) => ready.views = features,
                    Err(error) => {
                        item.features = Err(error);
                        continue;
                    }
                }
                encode = Some(share);
                // Features that are not kept cost time later, not this answer.
                if let Some(Err(error)) = self.cache.map(|cache| cache.put(item.sample, &ready.views, share)) {
                    progress.warn(&format!("the feature cache cannot be written from here on: {error}"));
                }
            }
            ready.pixels = ready.pixels.take().filter(|_| self.wants_pixels || self.rounds.is_some());
            // Generated images of the sample are encoded for this method alone.
            let begun = Instant::now();
            match self.encoder.generated(item.sample) {
                Ok(generated) => ready.generated = generated,
                Err(error) => {
                    item.features = Err(error);
                    continue;
                }
            }
            let beside = if ready.generated.is_some() { begun.elapsed() } else { Duration::ZERO };
            timing.encode_session += beside.as_secs_f64();
            // Views in rounds are charged as far as an answer looks at them.
            item.encode = encode.map(|all| share_of(all, self.views_used, views) + beside);
            if self.rounds.is_none() {
                timing.charge(item.encode);
            }
        }
        Ok(batch)
    }

    /// One result per sample. If the whole batch fails, each sample is tried alone, so that one bad image costs one; a device
    /// that fails is no fault of an image.
    fn encode_views(&self, fresh: &[&Pixels], views: usize) -> Result<Vec<Result<ViewFeatures>>> {
        let one = |pixels: &Pixels| match self.encoder.encode_pixels(&[pixels], views) {
            Err(error) if error.ends_work() => Err(error),
            other => Ok(other),
        };
        match fresh {
            [] => Ok(Vec::new()),
            [only] => Ok(vec![one(only)?]),
            many => match self.encoder.encode_pixels(many, views * many.len()) {
                Ok(all) => Ok((0..many.len()).map(|i| Ok(all.part(i * views..(i + 1) * views))).collect()),
                Err(error) if error.ends_work() => Err(error),
                Err(_) => many.iter().map(|pixels| one(pixels)).collect(),
            },
        }
    }

    /// Answers some samples: side by side with an episodic adapter, one after the other with an online one, together with
    /// one that answers sets.
    fn adapt(&self, adapter: &mut AnyAdapter, batch: &[Encoded<'_>], timing: &mut Timing) -> Result<Vec<Record>> {
        let start = Instant::now();
        let mut encoding = Duration::ZERO;
        let answered: Vec<Answered> = match (adapter, &self.rounds) {
            (AnyAdapter::Episodic(adapter), Some(rounds)) => {
                let of = |item| {
                    let (record, time, spent) = self.answer_in_rounds(rounds, adapter.as_ref(), item)?;
                    encoding += spent;
                    Ok((record, time))
                };
                batch.iter().map(of).collect::<Result<_>>()?
            }
            (AnyAdapter::Episodic(adapter), None) if adapter.is_vectorised() => {
                answer_many(batch, adapter.as_ref(), self.task)?
            }
            // One image alone leaves all threads to the kernels.
            (AnyAdapter::Episodic(adapter), None) if batch.len() > 1 => {
                let adapter = adapter.as_ref();
                let of = |item| answer(item, |image| adapter.adapt(self.task, image));
                let answered: Vec<Result<Answered>> = batch.par_iter().map(of).collect();
                answered.into_iter().collect::<Result<_>>()?
            }
            (other, _) if other.kind() == Kind::Batch || other.set_size() > 1 => {
                answer_set(batch, |images| other.adapt_set(self.task, images))?
            }
            (other, _) => {
                let of = |item| answer(item, |image| other.adapt(self.task, image));
                batch.iter().map(of).collect::<Result<_>>()?
            }
        };
        let (mut records, times): (Vec<Record>, Vec<SampleTime>) = answered.into_iter().unzip();
        if self.rounds.is_some() {
            times.iter().for_each(|time| timing.charge(time.encode.map(Duration::from_secs_f64)));
        }
        timing.encode_session += encoding.as_secs_f64();
        timing.adapt += start.elapsed().saturating_sub(encoding).as_secs_f64();
        timing.per_sample.extend(times);
        if !self.keep_probabilities {
            records.iter_mut().for_each(Record::forget_probabilities);
        }
        Ok(records)
    }
}

/// An error of the records.
fn fault(reason: impl Into<String>) -> Error {
    Error::Run { path: super::run_dir::PREDICTIONS.into(), reason: reason.into() }
}

/// What was answered before a device failed is saved.
fn ended(error: Error) -> Error {
    error.with_hint(Hint::Resume)
}
