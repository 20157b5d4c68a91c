//! Compute token statistics of training images for PromptAlign.

use crate::data::few_shot::draw_shots;
use crate::data::{Dataset, Sample};
use crate::eval::source_statistics;
use flatclip::Model;
use flatclip::error::Hint;
use flatclip::methods::statistics::SourceStatistics;
use flatclip::progress::Progress;
use flatclip::prompt::Prompt;
use flatclip::{Error, Result};

/// What statistics are computed from.
#[derive(Clone, Debug, Default)]
pub struct StatisticsRequest {
    /// A maple prompt whose visual prompts are in the tower; `None` for the plain tower.
    pub prompt: Option<Prompt>,
    /// Only so many images of each class; `None` for all.
    pub shots: Option<usize>,
    /// Seed of the draw.
    pub seed: u64,
    /// Unreadable images to skip.
    pub max_errors: usize,
    /// Rotate images per EXIF and scale 16-bit grey, or read them as Pillow does; `None`: by the kind of the data set.
    pub exif: Option<bool>,
}

/// The statistics, and the ids of images that could not be read.
pub fn statistics(
    request: &StatisticsRequest,
    model: &Model,
    dataset: &Dataset,
    progress: &dyn Progress,
) -> Result<(SourceStatistics, Vec<String>)> {
    request.prompt.as_ref().map_or(Ok(()), |prompt| model.check_prompt(prompt))?;
    let visual = request.prompt.as_ref().map(Prompt::visual_prompts).unwrap_or_default();
    if let Some(prompt) = request.prompt.as_ref().filter(|_| visual.is_empty()) {
        progress.warn(&format!("a {} prompt does not change the image tower", prompt.kind()));
    }
    let samples: Vec<&Sample> = match request.shots {
        None => dataset.samples.iter().collect(),
        Some(shots) => draw_shots(dataset, shots, request.seed)?.into_iter().map(|i| &dataset.samples[i]).collect(),
    };
    if samples.is_empty() {
        return Err(Error::Data { path: dataset.name.clone().into(), reason: "no images".into() });
    }
    let decode = dataset.decode_options(request.exif);
    progress.start("images", Some(samples.len() as u64));
    let computed = source_statistics(model.clip(), &visual, &dataset.name, &samples, &decode, &mut |done| {
        progress.advance(done as u64, "");
    });
    progress.finish();
    let computed = computed?;
    for (id, error) in computed.unreadable.iter().take(5) {
        progress.warn(&format!("{id}: {error}"));
    }
    let bad = computed.unreadable.len();
    if bad > request.max_errors {
        let reason = format!("{bad} of {} images cannot be read", samples.len());
        let error = Error::Data { path: dataset.name.clone().into(), reason };
        return Err(error.with_hint(Hint::AllowErrors(bad)));
    }
    Ok((computed.statistics, computed.unreadable.into_iter().map(|(id, _)| id).collect()))
}
