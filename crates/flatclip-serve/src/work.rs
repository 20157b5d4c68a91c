//! Jobs of the workers: classify images, encode images, or call a function; the first two in batches.

use crate::ask::{Asked, view_bytes};
use crate::upload::Uploaded;
use crate::{Budget, Problem, lock};
use flatclip::image::DecodeOptions;
use flatclip::image::views::Draw;
use flatclip::model::Features;
use flatclip::{Answer, Classifier, Image, Model, ViewFeatures};
use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Problem>>;

pub(crate) enum Work {
    Answer(AnswerWork),
    Embed(EmbedWork),
    Function { run: Box<dyn FnOnce() + Send>, is_abandoned: Box<dyn Fn() -> bool + Send> },
}

pub(crate) struct AnswerWork {
    pub(crate) asked: Asked,
    pub(crate) image: Uploaded,
    pub(crate) reply: Reply<Answered>,
}

pub(crate) struct EmbedWork {
    pub(crate) model: Model,
    pub(crate) image: Uploaded,
    pub(crate) options: DecodeOptions,
    pub(crate) reply: Reply<Vec<f32>>,
}

/// An answer with its details.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) explained: Option<Explained>,
    /// Duration of its batch.
    pub(crate) took: Duration,
}

/// Prediction and region of each view.
pub(crate) struct Explained {
    pub(crate) size: (usize, usize),
    pub(crate) draws: Vec<Draw>,
    pub(crate) says: Vec<Vec<(usize, f32)>>,
}

/// Number of classes reported per view.
const TOP_OF_A_VIEW: usize = 3;

impl AnswerWork {
    fn bytes(&self) -> usize {
        self.image.decoding_bytes().saturating_add(self.asked.classifier.work_bytes)
    }
}

impl EmbedWork {
    fn bytes(&self) -> usize {
        self.image.decoding_bytes().saturating_add(view_bytes(&self.model))
    }
}

impl Work {
    /// Bytes of pixels that it needs; functions reserve their own memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Answer(work) => work.bytes(),
            Self::Embed(work) => work.bytes(),
            Self::Function { .. } => 0,
        }
    }

    /// A function; a panic in it becomes an error response.
    pub(crate) fn function<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
        reply: Reply<T>,
    ) -> Self {
        let reply = Arc::new(Mutex::new(Some(reply)));
        let watched = Arc::clone(&reply);
        let run = move || {
            let done = caught(work).unwrap_or_else(|| Err(Problem::internal()));
            if let Some(reply) = lock(&reply).take() {
                let _ = reply.send(done); // fails if the client has disconnected
            }
        };
        let is_abandoned = move || lock(&watched).as_ref().is_none_or(Reply::is_closed);
        Self::Function { run: Box::new(run), is_abandoned: Box::new(is_abandoned) }
    }

    /// Whether the client has disconnected.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Answer(work) => work.reply.is_closed(),
            Self::Embed(work) => work.reply.is_closed(),
            Self::Function { is_abandoned, .. } => is_abandoned(),
        }
    }

    /// Jobs with the same key can share a call of the tower.
    pub(crate) fn batch_key(&self) -> Option<(u8, usize)> {
        match self {
            Self::Answer(_) => Some((0, 0)),
            Self::Embed(work) => Some((1, Arc::as_ptr(work.model.clip()) as usize)),
            Self::Function { .. } => None,
        }
    }

    /// Views that go through the tower.
    pub(crate) fn views(&self) -> usize {
        match self {
            Self::Answer(work) => work.asked.classifier.views(),
            Self::Embed(_) | Self::Function { .. } => 1,
        }
    }
}

/// Jobs with the same key.
pub(crate) struct Batch {
    answers: Vec<AnswerWork>,
    embeds: Vec<EmbedWork>,
    functions: Vec<Box<dyn FnOnce() + Send>>,
}

impl Batch {
    pub(crate) fn new(works: Vec<Work>) -> Self {
        let mut batch = Self { answers: Vec::new(), embeds: Vec::new(), functions: Vec::new() };
        for work in works {
            match work {
                Work::Answer(work) => batch.answers.push(work),
                Work::Embed(work) => batch.embeds.push(work),
                Work::Function { run, .. } => batch.functions.push(run),
            }
        }
        batch
    }

    pub(crate) fn run(self, pixels: &Budget) {
        self.functions.into_iter().for_each(|run| run());
        for works in groups(self.answers, pixels, AnswerWork::bytes) {
            let _held = pixels.wait(works.bytes);
            let answered = together(&works.members, answer_all);
            works.members.into_iter().zip(answered).for_each(|(work, answer)| drop(work.reply.send(answer)));
        }
        for works in groups(self.embeds, pixels, EmbedWork::bytes) {
            let _held = pixels.wait(works.bytes);
            let embedded = together(&works.members, embed_all);
            works.members.into_iter().zip(embedded).for_each(|(work, row)| drop(work.reply.send(row)));
        }
    }
}

/// Jobs that are decoded at the same time, and their memory.
struct Group<W> {
    members: Vec<W>,
    bytes: usize,
}

/// Splits a batch into parts that need at most a quarter of the budget each, or have one job. Each part reserves all of its
/// memory at once, so that workers cannot deadlock.
fn groups<W>(works: Vec<W>, budget: &Budget, bytes: impl Fn(&W) -> usize) -> Vec<Group<W>> {
    let mut groups: Vec<Group<W>> = Vec::new();
    for work in works {
        let own = bytes(&work);
        match groups.last_mut() {
            Some(last) if last.bytes.saturating_add(own) <= budget.capacity() / 4 => {
                last.bytes += own;
                last.members.push(work);
            }
            _ => groups.push(Group { members: vec![work], bytes: own }),
        }
    }
    groups
}

/// Runs all jobs at once; if that panics, runs each one separately, so that only the job that causes the panic fails.
fn together<W, T>(works: &[W], run: fn(&[W]) -> Vec<Result<T, Problem>>) -> Vec<Result<T, Problem>> {
    match caught(|| run(works)) {
        Some(done) => done,
        None if works.len() == 1 => vec![Err(Problem::internal())],
        None => works.chunks(1).flat_map(|one| together(one, run)).collect(),
    }
}

/// The result, or `None` after a panic, which is counted.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(run)).ok();
    if done.is_none() {
        crate::metrics::count_panic();
    }
    done
}

fn answer_all(works: &[AnswerWork]) -> Vec<Result<Answered, Problem>> {
    let start = Instant::now();
    if works.iter().any(|work| work.asked.panic) {
        std::panic::panic_any("injected");
    }
    let images: Vec<Result<Image, Problem>> =
        works.par_iter().map(|work| Ok(work.image.image(&work.asked.classifier.decode_options())?)).collect();
    let classifiers: Vec<Classifier> =
        works.iter().map(|work| work.asked.classifier.classifier.explaining(work.asked.explain)).collect();
    let decoded = classifiers.iter().zip(&images);
    let asked: Vec<_> = decoded.filter_map(|(classifier, image)| Some((classifier, image.as_ref().ok()?))).collect();
    let mut answers = Classifier::answer_together(&asked).into_iter();
    let mut one = |(work, image): (&AnswerWork, &Result<Image, Problem>)| {
        let image = image.as_ref().map_err(Clone::clone)?;
        let (answer, views) = answers.next().ok_or_else(Problem::internal)??;
        let Asked { classifier, explain, .. } = &work.asked;
        let explained = explain.then(|| explained(classifier, image, &views)).transpose()?;
        Ok(Answered { answer, explained, took: start.elapsed() })
    };
    works.iter().zip(&images).map(&mut one).collect()
}

fn explained(classifier: &Classifier, image: &Image, views: &ViewFeatures) -> Result<Explained, Problem> {
    let mut draws = classifier.view_draws(image)?;
    draws.truncate(views.unit.rows()); // any-time views may be fewer
    let says = classifier.view_answers(views, TOP_OF_A_VIEW);
    Ok(Explained { size: (image.width, image.height), draws, says })
}

fn embed_all(works: &[EmbedWork]) -> Vec<Result<Vec<f32>, Problem>> {
    let decoded: Vec<Result<Image, Problem>> =
        works.par_iter().map(|work| Ok(work.image.image(&work.options)?)).collect();
    let mut good = Vec::with_capacity(works.len());
    let faults: Vec<_> = decoded.into_iter().map(|image| image.map(|image| good.push(Ok(image))).err()).collect();
    let rows = match works.first() {
        Some(work) if !good.is_empty() => work.model.plain_features(good.into_iter()),
        _ => return faults.into_iter().flatten().map(Err).collect(),
    };
    match rows {
        Ok(rows) => {
            let rows = Features::unit(rows).0;
            let mut rows = rows.iter_rows().map(<[f32]>::to_vec);
            let mut row = || rows.next().ok_or_else(Problem::internal);
            faults.into_iter().map(|fault| fault.map_or_else(&mut row, Err)).collect()
        }
        // The error may come from any image of the batch: run each one separately, so that only the faulty one fails.
        Err(_) if works.len() > 1 => works.chunks(1).flat_map(embed_all).collect(),
        Err(error) => vec![Err(error.into())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_split_by_the_memory_it_takes() {
        let budget = Budget::new(100);
        let sizes = |works: &[usize]| -> Vec<usize> {
            groups(works.to_vec(), &budget, |&bytes| bytes).iter().map(|group| group.members.len()).collect()
        };
        assert_eq!(sizes(&[5, 5, 5, 5, 5, 5]), [5, 1]);
        assert_eq!(sizes(&[90, 90, 1]), [1, 1, 1]);
        assert!(sizes(&[]).is_empty());
    }
}
