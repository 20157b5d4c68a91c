//! Loading overlapped with encoding: one thread decodes images and makes views while the caller encodes and adapts. A bounded
//! channel between them keeps memory flat, however long the data set.

use super::answer::{Encoded, Ready};
use super::run::Evaluation;
use crate::data::{Sample, shortened};
use flatclip::ViewFeatures;
use flatclip::{Error, Result};
use rayon::prelude::*;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// Samples that wait between the loader and the encoder, at least: the next batch is made while one is encoded. With 64 views
/// of 224 pixels a sample is 38 MB, as bytes 10 MB.
const WAITING: usize = 2;
/// Samples that are decoded at the same time.
const DECODED_TOGETHER: usize = 4;
/// Samples in a batch at most.
const BATCH_SAMPLES: usize = 64;

impl<'a> Evaluation<'a> {
    /// Loads `positions` in order on a thread of its own and gives `consume` batches of them, in order.
    pub(super) fn load(
        &self,
        positions: &[usize],
        mut consume: impl FnMut(Vec<Encoded<'a>>) -> Result<()>,
    ) -> Result<()> {
        let own = own_pool()?;
        std::thread::scope(|scope| {
            let (views, batch) = (self.encoder.views(), self.encoder.batch_views());
            let (sender, receiver) = sync_channel(WAITING.max(batch / views.max(1)).min(BATCH_SAMPLES));
            scope.spawn(move || match own {
                Some(pool) => pool.install(|| self.produce(positions, &sender)),
                None => self.produce(positions, &sender),
            });
            let mut next = None;
            loop {
                let batch = collect(&receiver, views, batch, &mut next);
                if batch.is_empty() {
                    return Ok(());
                }
                // An error drops the receiver, which ends the loader.
                consume(batch)?;
            }
        })
    }

    fn produce(&self, positions: &[usize], sender: &SyncSender<Encoded<'a>>) {
        for group in positions.chunks(DECODED_TOGETHER.min(rayon::current_num_threads()).max(1)) {
            let loaded: Vec<Encoded<'a>> = group.par_iter().map(|&position| self.load_one(position)).collect();
            for item in loaded {
                if sender.send(item).is_err() {
                    return;
                }
            }
        }
    }

    fn load_one(&self, position: usize) -> Encoded<'a> {
        let start = Instant::now();
        let sample = &self.dataset.samples[self.plan.order[position]];
        let cached = self.cache.and_then(|cache| cache.get(sample));
        let cached = cached.and_then(|cached| cached.first_views(self.encoder.views()));
        let cached_encode = cached.as_ref().and_then(|cached| cached.encode);
        let (views, digest) = cached.map(|cached| (cached.features, cached.digest)).unzip();
        // Before the pixels: of an image that changes meanwhile the record names the earlier one.
        let image = match digest {
            Some(digest) => sample.can_change().then(|| shortened(digest)),
            // Of one that cannot be read the pixels tell.
            None => sample.short_digest().unwrap_or_default(),
        };
        let pixels = if views.is_none() || self.wants_pixels {
            self.encoder.pixels(sample).map(Some).map_err(|error| name_sample(error, sample))
        } else {
            Ok(None)
        };
        let views = views.unwrap_or_else(ViewFeatures::none);
        let features = pixels.map(|pixels| Ready { views, pixels, generated: None, cached_encode });
        Encoded { position, sample, features, image, load: start.elapsed(), encode: None }
    }
}

/// Threads for the loader where the caller has a pool of its own: the global pool is then not the caller's to use (a
/// forked process has none of its threads).
fn own_pool() -> Result<Option<rayon::ThreadPool>> {
    if rayon::current_thread_index().is_none() {
        return Ok(None);
    }
    let built = rayon::ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).build();
    built.map(Some).map_err(|error| Error::config("threads", error.to_string()))
}

/// An image's error must name the image.
fn name_sample(error: Error, sample: &Sample) -> Error {
    match error {
        Error::Image { path, reason } if path.as_os_str().is_empty() => {
            Error::Image { path: sample.path().to_path_buf(), reason }
        }
        other => other,
    }
}

/// Waits for one sample, then takes what fits into a batch: many single views, or one sample with many.
fn collect<'a>(
    receiver: &Receiver<Encoded<'a>>,
    views: usize,
    full: usize,
    next: &mut Option<Encoded<'a>>,
) -> Vec<Encoded<'a>> {
    let (mut batch, mut fresh_views) = (Vec::new(), 0);
    while batch.len() < BATCH_SAMPLES {
        let Some(item) = next.take().or_else(|| receiver.recv().ok()) else { break };
        let new = if item.features.as_ref().is_ok_and(|ready| ready.pixels.is_some()) { views } else { 0 };
        if fresh_views > 0 && fresh_views + new > full {
            *next = Some(item);
            break;
        }
        fresh_views += new;
        batch.push(item);
        if fresh_views >= full {
            break;
        }
    }
    batch
}
