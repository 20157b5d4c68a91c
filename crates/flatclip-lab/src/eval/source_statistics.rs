//! PromptAlign's source statistics, computed from training images.

use crate::data::Sample;
use flatclip::image::DecodeOptions;
use flatclip::image::views::{ViewKey, ViewOptions, make_views};
use flatclip::methods::statistics::{SourceStatistics, StatisticsOrigin, StatisticsSum, prompts_hash};
use flatclip::model::{Clip, ImageConfig, VisionInput};
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use rayon::prelude::*;

/// Images per pass: their tokens between all blocks are held at once (7 MB an image for ViT-B/16).
const CHUNK: usize = 16;

/// Statistics, and the images that could not be read.
#[derive(Debug)]
pub(crate) struct Computed {
    /// The statistics of all readable images.
    pub statistics: SourceStatistics,
    /// Id and reason of every other image.
    pub unreadable: Vec<(String, Error)>,
}

/// Mean and variance of the tokens that every block of the image tower reads, over un-augmented images.
pub(crate) fn source_statistics(
    clip: &Clip,
    visual_prompts: &[Matrix],
    dataset: &str,
    samples: &[&Sample],
    decode: &DecodeOptions,
    watch: &mut dyn FnMut(usize),
) -> Result<Computed> {
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
    Ok(Computed { statistics: SourceStatistics { origin, ..sum.finish()? }, unreadable })
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
    use std::path::{Path, PathBuf};

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
    }

    fn vit() -> Clip {
        let file = fixture("golden/models/tiny-vit.jit.pt");
        Clip::load(&Checkpoint::open(&file).unwrap(), LoadOptions::default()).unwrap()
    }

    #[test]
    fn statistics_are_those_of_the_tokens_and_do_not_depend_on_chunks() {
        let clip = vit();
        let data =
            open("pocket:photo:train:19", &OpenOptions { split: Split::Train, ..OpenOptions::default() }).unwrap();
        let samples: Vec<&Sample> = data.samples.iter().collect();
        let prompts = [Matrix::from_vec(
            2,
            clip.vision().token_width().unwrap(),
            vec![0.1; 2 * clip.vision().token_width().unwrap()],
        )];
        let mut seen = Vec::new();
        let whole = source_statistics(&clip, &prompts, "photo", &samples, &DecodeOptions::default(), &mut |done| {
            seen.push(done)
        })
        .unwrap();
        assert_eq!(seen, [16, 19]);
        assert!(whole.unreadable.is_empty());
        assert_eq!(whole.statistics.origin.images, 19);
        // One at a time: variance 0, and the mean of the means is the mean.
        let mut mean = vec![0.0f64; whole.statistics.means[1].data().len()];
        for sample in &samples {
            let one = source_statistics(&clip, &prompts, "photo", &[sample], &DecodeOptions::default(), &mut |_| {})
                .unwrap()
                .statistics;
            assert!(one.variances.iter().all(|m| m.data().iter().all(|v| *v < 1e-6)));
            mean.iter_mut().zip(one.means[1].data()).for_each(|(m, x)| *m += f64::from(*x) / 19.0);
        }
        for (a, b) in mean.iter().zip(whole.statistics.means[1].data()) {
            assert!((a - f64::from(*b)).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn unreadable_images_are_counted_and_resnets_refused() {
        let bad = Sample { id: "gone.jpg".into(), label: 0, source: Source::File("no/such/gone.jpg".into()) };
        let data =
            open("pocket:photo:train:2", &OpenOptions { split: Split::Train, ..OpenOptions::default() }).unwrap();
        let vit = vit();
        let found =
            source_statistics(&vit, &[], "photo", &[&bad, &data.samples[0]], &DecodeOptions::default(), &mut |_| {})
                .unwrap();
        assert_eq!((found.unreadable.len(), found.statistics.origin.images), (1, 1));
        assert!(source_statistics(&vit, &[], "photo", &[&bad], &DecodeOptions::default(), &mut |_| {}).is_err());
        let pocket = Checkpoint::embedded("pocket").unwrap().unwrap();
        let pocket = Clip::load(&pocket, LoadOptions::default()).unwrap();
        let resnet = source_statistics(&pocket, &[], "", &[&data.samples[0]], &DecodeOptions::default(), &mut |_| {});
        assert!(resnet.unwrap_err().to_string().contains("ViT"));
    }
}
