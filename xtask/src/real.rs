//! `cargo xtask real FOLDER TOWER_DIR`: a real image tower on real photos, against reference features and labels, and a table of
//! adapters; with `--precision bf16` or `i16`, features in that precision against those in f32.
//!
//! FOLDER holds `reference_rows.json`, `reference_features.safetensors`, `imagenet_text_features.safetensors` and
//! `data/imagenet/images/val/WNID/*`; TOWER_DIR is a model directory. Nothing of either belongs into this repository. Features of
//! all views and runs are kept in a cache folder outside of it: a stopped run is resumed, a second one encodes nothing.

use crate::gradients::dot;
use anyhow::{Context as _, Result, bail, ensure};
use flatclip::image::DecodeOptions;
use flatclip::methods::probability::argmax;
use flatclip::model::{Features, Precision, Towers};
use flatclip::prompt::{PromptContent, logits, read_text_features};
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
    let other = match arguments.precision.as_str() {
        "f32" => None,
        "bf16" => Some(Precision::Bf16),
        "i16" => Some(Precision::I16),
        other => bail!("--precision: expected f32, bf16 or i16, found {other:?}"),
    };
    if let Some(precision) = other {
        return compare(&plain, &single_views(&load(precision)?, &photos)?, &text, &model);
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
    let mut cosines: Vec<f64> = features.iter_rows().zip(reference.iter_rows()).map(|(a, b)| dot(a, b)).collect();
    cosines.sort_by(f64::total_cmp);
    let answers = logits(features, text, 1.0);
    let right = answers.iter_rows().zip(&photos.samples).filter(|(row, photo)| argmax(row) == photo.label).count();
    let (lowest, median, count) = (cosines[0], cosines[cosines.len() / 2], features.rows());
    println!("features against the reference: cosine median {median:.6}, lowest {lowest:.6}");
    println!("zero-shot: {right} of {count} right");
    ensure!(lowest >= 0.9999, "a photo has cosine {lowest} to the reference, expected >= 0.9999");
    ensure!(count != 200 || (129..=133).contains(&right), "{right} of 200 right, expected 131 +- 2");
    Ok(())
}

/// Features in another precision against those in f32, on the plain view of every photo.
fn compare(exact: &Matrix, other: &Matrix, text: &Matrix, model: &Model) -> Result<()> {
    let mut distances: Vec<f64> = exact.iter_rows().zip(other.iter_rows()).map(|(a, b)| 1.0 - dot(a, b)).collect();
    distances.sort_by(f64::total_cmp);
    let (median, largest) = (distances[distances.len() / 2], distances[distances.len() - 1]);
    let [exact, other] = [exact, other].map(|features| logits(features, text, model.logit_scale()));
    let moved = exact.data().iter().zip(other.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let is_changed = |photo: &usize| argmax(exact.row(*photo)) != argmax(other.row(*photo));
    let changed: Vec<usize> = (0..exact.rows()).filter(is_changed).collect();
    println!("against f32: 1 - cosine median {median:.1e}, largest {largest:.1e}");
    println!("logits moved by at most {moved:.3}; zero-shot answers changed: {} {changed:?}", changed.len());
    ensure!(median <= 1e-4 && largest <= 1e-3, "expected a median of at most 1e-4 and no photo above 1e-3");
    ensure!(changed.len() <= 1, "{} answers changed, expected at most 1", changed.len());
    Ok(())
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
        let count_of =
            |holds: fn(usize, usize, usize) -> bool| pairs().filter(|&(a, b, label)| holds(a, b, label)).count();
        let right = count_of(|now, _, label| now == label);
        let changed = count_of(|now, before, _| now != before);
        let fixed = count_of(|now, before, label| now == label && before != label);
        let broken = count_of(|now, before, label| now != label && before == label);
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
