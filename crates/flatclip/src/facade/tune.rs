//! Tuning: learn a prompt from a few labelled pictures per class.

use super::model::Model;
use crate::Result;
use crate::data::Dataset;
use crate::progress::Progress;
use crate::train::{self, TuneInput, TuneRequest, TuneSummary};

/// Runs the tuner, or goes on with its run, to the end. The prompt is in the run directory under the summary's name.
pub fn tune(request: &TuneRequest, model: &Model, train: &Dataset, progress: &dyn Progress) -> Result<TuneSummary> {
    let mut request = request.clone();
    if request.model.is_empty() {
        model.name().clone_into(&mut request.model);
    }
    if request.data.is_empty() {
        train.spec.clone_into(&mut request.data);
    }
    request.exif = Some(train.decode_options(request.exif).exif);
    request.text_precision = model.clip().text_precision();
    let (clip, tokenizer) = (model.clip(), model.tokenizer());
    train::tune(&TuneInput { request: &request, clip, tokenizer, dataset: train, progress })
}
