//! PromptAlign's source statistics: computed from training images, read, written, and taken over from the authors' files.

use crate::data::Sample;
use crate::digest::matrix_hash;
use crate::image::views::{ViewKey, ViewOptions, make_views};
use crate::image::{DecodeOptions, Normalise};
use crate::methods::statistics::{SourceStatistics, StatisticsOrigin, StatisticsSum};
use crate::model::{Clip, ImageConfig, VisionInput};
use crate::weights::torch_file::{self, TorchTensor, Value};
use crate::{Error, Result, files};
use flatclip_tensor::Matrix;
use rayon::prelude::*;
use std::path::Path;

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

/// Mean and variance of the tokens that every block of the image tower reads, over un-augmented pictures.
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
    let views = ViewOptions {
        count: 1,
        size: clip.image_size(),
        normalise: Normalise::new(clip.config().mean, clip.config().std),
        ..ViewOptions::default()
    };
    let read = |sample: &&Sample| {
        let picture = sample.picture(decode)?;
        make_views(&picture, &views, ViewKey { seed: 0, dataset, sample: &sample.id })
    };
    let (mut sum, mut unreadable, mut images) = (None::<StatisticsSum>, Vec::new(), 0);
    for (done, chunk) in samples.chunks(CHUNK).enumerate() {
        let pictures: Vec<Result<Vec<f32>>> = chunk.par_iter().map(read).collect();
        let mut pixels = Vec::new();
        let before = images;
        for (sample, picture) in chunk.iter().zip(pictures) {
            match picture {
                Ok(picture) => {
                    pixels.extend(picture);
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
    Ok(Computed { statistics: sum.finish()?.with_origin(origin), unreadable })
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

/// One fingerprint of a prompt's visual prompts; empty when there are none.
pub(crate) fn prompts_hash(visual_prompts: &[Matrix]) -> String {
    visual_prompts.iter().map(matrix_hash).collect::<Vec<_>>().join(" ")
}

/// One fingerprint of all means and variances.
pub(crate) fn statistics_hash(statistics: &SourceStatistics) -> String {
    let all = || statistics.means.iter().chain(&statistics.variances);
    let rows = all().map(Matrix::rows).sum();
    let data = all().flat_map(|m| m.data().iter().copied()).collect();
    matrix_hash(&Matrix::from_vec(rows, statistics.means[0].cols(), data))
}

/// Reads statistics that [`save_statistics`] wrote.
pub fn load_statistics(path: &Path) -> Result<SourceStatistics> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    SourceStatistics::from_bytes(&bytes).map_err(|error| named(path, &error))
}

/// Writes statistics: the file is complete or absent.
pub fn save_statistics(path: &Path, statistics: &SourceStatistics) -> Result<()> {
    files::write_atomic(path, &statistics.to_bytes()?)
}

/// Takes over the two tensors that PromptAlign's authors publish, each `[blocks, tokens, width]` (or a list of
/// `[tokens, width]`) in a file of `torch.save`.
pub fn import_statistics(means: &Path, variances: &Path) -> Result<SourceStatistics> {
    let statistics =
        SourceStatistics::new(stacked(means)?, stacked(variances)?).map_err(|error| named(variances, &error))?;
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let source = format!("{}, {}", name(means), name(variances));
    Ok(statistics.with_origin(StatisticsOrigin { source, ..StatisticsOrigin::default() }))
}

fn stacked(path: &Path) -> Result<Vec<Matrix>> {
    let value = torch_file::load(path)?;
    let wrong = |found: String| Error::Prompt {
        path: path.to_path_buf(),
        reason: format!("expected one tensor [blocks, tokens, width] or a list of [tokens, width], found {found}"),
    };
    let matrix = |tensor: &TorchTensor| match *tensor.shape() {
        [rows, cols] => Ok(Matrix::from_vec(rows, cols, tensor.values()?)),
        _ => Err(wrong(format!("a tensor of shape {:?} in a list", tensor.shape()))),
    };
    match &value {
        Value::Tensor(tensor) => match *tensor.shape() {
            [_, rows, cols] if rows * cols > 0 => {
                let blocks = tensor.values()?;
                Ok(blocks.chunks_exact(rows * cols).map(|m| Matrix::from_vec(rows, cols, m.to_vec())).collect())
            }
            _ => Err(wrong(format!("a tensor of shape {:?}", tensor.shape()))),
        },
        Value::List(items) => items
            .iter()
            .map(|item| match item {
                Value::Tensor(tensor) => matrix(tensor),
                _ => Err(wrong("a list of something else".into())),
            })
            .collect(),
        _ => Err(wrong("neither".into())),
    }
}

fn named(path: &Path, error: &Error) -> Error {
    let reason = format!("{error}; expected a file of token statistics");
    Error::Prompt { path: path.to_path_buf(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{OpenOptions, Source, Split, open};
    use crate::model::LoadOptions;
    use crate::weights::Checkpoint;
    use std::path::PathBuf;

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
    fn unreadable_pictures_are_counted_and_resnets_refused() {
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

    #[test]
    fn the_authors_tensors_are_taken_over_and_other_files_named() {
        let (means, variances) = (fixture("torch/statistics-means.pt"), fixture("torch/statistics-variances.pt"));
        let found = import_statistics(&means, &variances).unwrap();
        assert_eq!(found.means[1].row(2), [20.0, 21.0, 22.0, 23.0]);
        assert_eq!(found.variances[0].row(0), [1.0, 2.0, 3.0, 4.0]);
        let error = import_statistics(&fixture("torch/varied.pt"), &variances).unwrap_err().to_string();
        assert!(error.contains("varied.pt") && error.contains("[blocks, tokens, width]"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("statistics.safetensors");
        save_statistics(&path, &found).unwrap();
        assert_eq!(load_statistics(&path).unwrap(), found);
        let error = load_statistics(&means).unwrap_err().to_string();
        assert!(error.contains("statistics-means.pt") && error.contains("token statistics"), "{error}");
    }
}
