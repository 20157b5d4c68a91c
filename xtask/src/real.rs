//! `cargo xtask real FOLDER TOWER_DIR`: a real image tower on real photos, against reference features and labels, and a table of
//! adapters; with `--precision bf16` or `i16`, features in that precision against those in f32.
//!
//! FOLDER holds `reference_rows.json`, `reference_features.safetensors`, `imagenet_text_features.safetensors` and
//! `data/imagenet/images/val/WNID/*`; TOWER_DIR is a model directory. Nothing of either belongs into this repository. Features of
//! all views and runs are kept in a cache folder outside of it: a stopped run is resumed, a second one encodes nothing.

use anyhow::{Context as _, Result, bail, ensure};
use flatclip::image::DecodeOptions;
use flatclip::model::{Features, Precision, Towers};
use flatclip::prompt::{PromptContent, read_text_features};
use flatclip::{Matrix, Model, Progress};
use flatclip_lab::data::{Dataset, Sample, Source, Split};
use flatclip_lab::report::Run;
use flatclip_lab::{EvaluateRequest, PromptChoice, evaluate};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Adapters that need no text tower, in the order of the table; the others are compared with the first.
const ADAPTERS: [&str; 6] = ["zero-shot", "vte", "zero", "mta", "tda", "tps"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Holds reference_rows.json, reference_features.safetensors, imagenet_text_features.safetensors and the photos in
    /// data/imagenet/images/val; without the first of these the task is skipped
    folder: PathBuf,
    /// Model directory of the image tower
    tower_dir: PathBuf,
    /// Views per photo
    #[arg(long, value_name = "N", default_value = "64")]
    views: NonZeroUsize,
    /// Use the first N photos
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Where features and runs are kept [default: real in the cache folder of flatclip]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// f32, or a precision whose features are compared with those of f32: bf16, i16
    #[arg(long, default_value = "f32")]
    precision: String,
}

/// What the library says on the way.
pub(crate) struct Lines;

impl Progress for Lines {
    fn advance(&self, done: u64, status: &str) {
        if done.is_multiple_of(50) {
            eprintln!("{done} photos: {status}");
        }
    }

    fn warn(&self, text: &str) {
        eprintln!("warning: {text}");
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let folder = arguments.folder.as_path();
    if !folder.join("reference_rows.json").is_file() {
        println!("skipped: {} has no reference_rows.json", folder.display());
        return Ok(());
    }
    let photos = photos(folder, arguments.limit.map_or(usize::MAX, NonZeroUsize::get))?;
    let text = features_of(&folder.join("imagenet_text_features.safetensors"))?;
    let load = |precision| -> Result<Model> {
        let name = arguments.tower_dir.display().to_string();
        Ok(Model::builder(name).offline(true).towers(Towers::Image).precision(precision).load(&Lines)?)
    };
    let model = load(Precision::F32)?;
    println!("{}", model.describe());
    let plain = single_views(&model, &photos)?;
    match arguments.precision.as_str() {
        "f32" => {}
        "bf16" => return compare(&plain, &single_views(&load(Precision::Bf16)?, &photos)?, &text, &model),
        "i16" => return compare(&plain, &single_views(&load(Precision::I16)?, &photos)?, &text, &model),
        other => bail!("--precision: expected f32, bf16 or i16, found {other:?}"),
    }
    check_reference(&photos, &plain, &features_of(&folder.join("reference_features.safetensors"))?, &text)?;
    adapters(arguments, &model, &photos)
}

/// The photos with their labels, in the order of the reference.
fn photos(folder: &Path, limit: usize) -> Result<Dataset> {
    let file = folder.join("reference_rows.json");
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let rows = rows["rows"].as_array().context("reference_rows.json has no `rows`")?;
    let photo = |row: &serde_json::Value| {
        let id = row[0].as_str().context("a row has no path")?.to_owned();
        let label = usize::try_from(row[1].as_u64().context("a row has no label")?)?;
        let source = Source::File(folder.join("data/imagenet/images/val").join(&id));
        Ok(Sample { id, label, source })
    };
    Ok(Dataset {
        name: "imagenet".to_owned(),
        split: Split::Val,
        classes: flatclip::text::imagenet::CLASS_NAMES.iter().map(|&class| class.to_owned()).collect(),
        samples: rows.iter().take(limit).map(photo).collect::<Result<_>>()?,
        ..Dataset::default()
    })
}

fn features_of(path: &Path) -> Result<Matrix> {
    match read_text_features(path)?.content {
        PromptContent::Features(features) => Ok(features),
        _ => bail!("{}: not a matrix of features", path.display()),
    }
}

/// Unit-norm features of the photos as they are.
fn single_views(model: &Model, photos: &Dataset) -> Result<Matrix> {
    let images = photos.samples.iter().map(|photo| photo.image(&DecodeOptions::pillow()));
    Ok(Features::unit(model.plain_features(images)?).0)
}

/// Features of the plain view against the reference, and zero-shot accuracy.
fn check_reference(photos: &Dataset, features: &Matrix, reference: &Matrix, text: &Matrix) -> Result<()> {
    let mut cosines: Vec<f32> = features.iter_rows().zip(reference.iter_rows()).map(|(a, b)| dot(a, b)).collect();
    cosines.sort_by(f32::total_cmp);
    let answers = features.iter_rows().map(|row| best(&logits(row, text, 1.0)));
    let right = answers.zip(&photos.samples).filter(|(answer, photo)| *answer == Some(photo.label)).count();
    let (lowest, median, count) = (cosines[0], cosines[cosines.len() / 2], features.rows());
    println!("features against the reference: cosine median {median:.6}, lowest {lowest:.6}");
    println!("zero-shot: {right} of {count} right");
    ensure!(lowest >= 0.9999, "a photo has cosine {lowest} to the reference, expected >= 0.9999");
    ensure!(count != 200 || (129..=133).contains(&right), "{right} of 200 right, expected 131 +- 2");
    Ok(())
}

/// Features in another precision against those in f32, on the plain view of every photo.
fn compare(exact: &Matrix, other: &Matrix, text: &Matrix, model: &Model) -> Result<()> {
    let (mut distances, mut changed, mut moved) = (Vec::new(), Vec::new(), 0.0f32);
    for (photo, (a, b)) in exact.iter_rows().zip(other.iter_rows()).enumerate() {
        let cosine: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        distances.push(1.0 - cosine);
        let (a, b) = (logits(a, text, model.logit_scale()), logits(b, text, model.logit_scale()));
        moved = a.iter().zip(&b).fold(moved, |moved, (a, b)| moved.max((a - b).abs()));
        if best(&a) != best(&b) {
            changed.push(photo);
        }
    }
    distances.sort_by(f64::total_cmp);
    let (median, largest) = (distances[distances.len() / 2], distances[distances.len() - 1]);
    println!("against f32: 1 - cosine median {median:.1e}, largest {largest:.1e}");
    println!("logits moved by at most {moved:.3}; zero-shot answers changed: {} {changed:?}", changed.len());
    ensure!(median <= 1e-4 && largest <= 1e-3, "expected a median of at most 1e-4 and no photo above 1e-3");
    ensure!(changed.len() <= 1, "{} answers changed, expected at most 1", changed.len());
    Ok(())
}

fn logits(row: &[f32], text: &Matrix, scale: f32) -> Vec<f32> {
    text.iter_rows().map(|class| scale * dot(row, class)).collect()
}

fn best(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)))
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Accuracy, what became of the answers that changed, and time per photo of every adapter that needs no text tower.
fn adapters(arguments: &Arguments, model: &Model, photos: &Dataset) -> Result<()> {
    let cache = arguments.cache.clone().unwrap_or_else(|| flatclip::cache_folder().join("real"));
    let count = photos.samples.len();
    let prompt = read_text_features(&arguments.folder.join("imagenet_text_features.safetensors"))?;
    let request = EvaluateRequest {
        methods: ADAPTERS.map(str::to_owned).to_vec(),
        prompt: PromptChoice::One(prompt.into()),
        views: Some(arguments.views.get()),
        max_errors: 0,
        resume: true,
        cache: Some(cache.clone()),
        ..EvaluateRequest::new(cache.join(format!("runs-{}-{count}", arguments.views)))?
    };
    println!(
        "{:<10} {:>6} {:>9} {:>8} {:>12} {:>12} {:>20}",
        "method", "right", "accuracy", "changed", "became right", "became wrong", "ms to adapt, a photo"
    );
    let mut plain: Vec<usize> = Vec::new();
    for run in evaluate(&request, model, std::slice::from_ref(photos), &Lines)? {
        let records = Run::read(&run.dir)?.records()?;
        let answers: Vec<usize> =
            records.iter().filter_map(|record| Some(record.answer.as_ref()?.prediction)).collect();
        if plain.is_empty() {
            plain.clone_from(&answers);
        }
        let pairs = || answers.iter().zip(&plain).zip(&photos.samples).map(|((a, b), photo)| (*a, *b, photo.label));
        let right = pairs().filter(|(now, _, label)| now == label).count();
        let changed = pairs().filter(|(now, before, _)| now != before).count();
        let fixed = pairs().filter(|(now, before, label)| now == label && before != label).count();
        let broken = pairs().filter(|(now, before, label)| now != label && before == label).count();
        let (share, ms) = (100.0 * right as f64 / count as f64, 1e3 * run.timing.adapt / count as f64);
        let name = &run.summary.method;
        println!("{name:<10} {right:>6} {share:>8.1}% {changed:>8} {fixed:>12} {broken:>12} {ms:>20.2}");
    }
    let error = 100.0 * (0.25 / count as f64).sqrt();
    println!(
        "\n{count} photos: a standard error of up to {error:.1} points; look at whether answers that change get better"
    );
    Ok(())
}
