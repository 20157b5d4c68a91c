//! Token statistics of training images, which PromptAlign aligns test images with.

use crate::data::few_shot::draw_shots;
use crate::data::{Dataset, Sample};
use flatclip::error::Hint;
use flatclip::image::DecodeOptions;
use flatclip::image::views::{ViewKey, ViewOptions, make_views};
use flatclip::methods::statistics::{SourceStatistics, StatisticsOrigin, StatisticsSum, prompts_hash};
use flatclip::model::{Clip, ImageConfig, VisionInput};
use flatclip::progress::Progress;
use flatclip::prompt::Prompt;
use flatclip::{Error, Model, Result};
use flatclip_tensor::Matrix;
use rayon::prelude::*;

/// Images per pass: their tokens between all blocks are held at once (7 MB an image for ViT-B/16).
const CHUNK: usize = 16;

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
    let (statistics, unreadable) = computed?;
    for (id, error) in unreadable.iter().take(5) {
        progress.warn(&format!("{id}: {error}"));
    }
    let bad = unreadable.len();
    if bad > request.max_errors {
        let reason = format!("{bad} of {} images cannot be read", samples.len());
        let error = Error::Data { path: dataset.name.clone().into(), reason };
        return Err(error.with_hint(Hint::AllowErrors(bad)));
    }
    Ok((statistics, unreadable.into_iter().map(|(id, _)| id).collect()))
}

/// Mean and variance of the tokens that every block of the image tower reads, over un-augmented images; id and reason of
/// every image that could not be read.
fn source_statistics(
    clip: &Clip,
    visual_prompts: &[Matrix],
    dataset: &str,
    samples: &[&Sample],
    decode: &DecodeOptions,
    watch: &mut dyn FnMut(usize),
) -> Result<(SourceStatistics, Vec<(String, Error)>)> {
    let ImageConfig::Vit { layers, .. } = clip.config().image else {
        let reason =
            "token statistics need a vision transformer, this image tower is a ResNet; choose a ViT checkpoint";
        return Err(Error::config("model", reason));
    };
    let views = ViewOptions::of(clip.config(), 1);
    let read = |sample: &&Sample| {
        let decoded_image = sample.image(decode)?;
        make_views(&decoded_image, &views, ViewKey { seed: 0, dataset, sample: &sample.id })
    };
    let (mut sum, mut unreadable, mut images) = (None::<StatisticsSum>, Vec::new(), 0);
    for (done, chunk) in samples.chunks(CHUNK).enumerate() {
        let decoded_images: Vec<Result<Vec<f32>>> = chunk.par_iter().map(read).collect();
        let mut pixels = Vec::new();
        let before = images;
        for (sample, decoded_image) in chunk.iter().zip(decoded_images) {
            match decoded_image {
                Ok(decoded_image) => {
                    pixels.extend(decoded_image);
                    images += 1;
                }
                Err(error) => unreadable.push((sample.id.clone(), error)),
            }
        }
        if images > before {
            add_images(&mut sum, clip, visual_prompts, layers, &pixels, images - before)?;
        }
        watch((done * CHUNK + chunk.len()).min(samples.len()));
    }
    let sum = sum.ok_or_else(|| Error::config("statistics", "none of the training images could be read"))?;
    let origin = StatisticsOrigin {
        weights: clip.hash().to_owned(),
        visual_prompts: prompts_hash(visual_prompts),
        source: dataset.to_owned(),
        images,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok((SourceStatistics { origin, ..sum.finish()? }, unreadable))
}

fn add_images(
    sum: &mut Option<StatisticsSum>,
    clip: &Clip,
    prompts: &[Matrix],
    layers: usize,
    pixels: &[f32],
    count: usize,
) -> Result<()> {
    let input = VisionInput { prompts, norms: None, recorded: usize::MAX };
    let pass = clip.vision().pass(pixels, count, input)?;
    let tokens: Vec<Matrix> = (0..layers).map(|block| pass.tokens(block)).collect::<Result<_>>()?;
    let slices: Vec<&[f32]> = tokens.iter().map(Matrix::data).collect();
    let width = clip.vision().token_width()?;
    sum.get_or_insert_with(|| StatisticsSum::new(layers, pass.tokens_per_image(), width)).add(&slices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{OpenOptions, Source, Split, open};
    use flatclip::model::LoadOptions;
    use flatclip::weights::Checkpoint;
    use std::path::Path;

    fn photos(count: usize) -> Dataset {
        let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
        open(&format!("pocket:photo:train:{count}"), &options).unwrap()
    }

    fn vit() -> Clip {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/models/tiny-vit.jit.pt");
        Clip::load(&Checkpoint::open(&file).unwrap(), LoadOptions::default()).unwrap()
    }

    #[test]
    fn statistics_are_those_of_the_tokens_and_do_not_depend_on_chunks() {
        let clip = vit();
        let data = photos(19);
        let samples: Vec<&Sample> = data.samples.iter().collect();
        let width = clip.vision().token_width().unwrap();
        let prompts = [Matrix::from_vec(2, width, vec![0.1; 2 * width])];
        let mut seen = Vec::new();
        let decode = DecodeOptions::default();
        let (whole, unreadable) =
            source_statistics(&clip, &prompts, "photo", &samples, &decode, &mut |done| seen.push(done)).unwrap();
        assert_eq!(seen, [16, 19]);
        assert!(unreadable.is_empty());
        assert_eq!(whole.origin.images, 19);
        // One at a time: variance 0, and the mean of the means is the mean.
        let mut mean = vec![0.0f64; whole.means[1].data().len()];
        for sample in &samples {
            let one = source_statistics(&clip, &prompts, "photo", &[sample], &decode, &mut |_| {}).unwrap().0;
            assert!(one.variances.iter().all(|m| m.data().iter().all(|v| *v < 1e-6)));
            mean.iter_mut().zip(one.means[1].data()).for_each(|(m, x)| *m += f64::from(*x) / 19.0);
        }
        for (a, b) in mean.iter().zip(whole.means[1].data()) {
            assert!((a - f64::from(*b)).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn unreadable_images_are_counted_and_resnets_refused() {
        let bad = Sample { id: "gone.jpg".into(), label: 0, source: Source::File("no/such/gone.jpg".into()) };
        let data = photos(2);
        let of = |clip: &Clip, samples: &[&Sample]| {
            source_statistics(clip, &[], "photo", samples, &DecodeOptions::default(), &mut |_| {})
        };
        let vit = vit();
        let (found, unreadable) = of(&vit, &[&bad, &data.samples[0]]).unwrap();
        assert_eq!((unreadable.len(), found.origin.images), (1, 1));
        assert!(of(&vit, &[&bad]).is_err());
        let pocket = Checkpoint::embedded("pocket").unwrap().unwrap();
        let pocket = Clip::load(&pocket, LoadOptions::default()).unwrap();
        assert!(of(&pocket, &[&data.samples[0]]).unwrap_err().to_string().contains("ViT"));
    }
}
