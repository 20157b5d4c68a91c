//! `cargo xtask real FOLDER TOWER_DIR`: a real image tower on real photos, against reference features and labels, and a table of
//! adapters; with `--precision bf16`, its bf16 features against its f32 ones.
//!
//! FOLDER holds `reference_rows.json`, `reference_features.safetensors`, `imagenet_text_features.safetensors` and
//! `data/imagenet/images/val/WNID/*`; TOWER_DIR is a model directory. Nothing of either belongs into this repository. Features of
//! all views are kept in a cache folder outside of it: a run that was stopped goes on, a second one encodes nothing.

use anyhow::{Context as _, Result, ensure};
use flatclip::data::{Dataset, Sample as Photo, Source, Split};
use flatclip::eval::cache::FeatureCache;
use flatclip::eval::{ClipEncoder, Encoder as _};
use flatclip::image::DecodeOptions;
use flatclip::image::views::ViewOptions;
use flatclip::methods::{self, Task, ViewSet};
use flatclip::model::{Clip, LoadOptions, Precision};
use flatclip::prompt::{Prompt, PromptKind, read_text_features};
use flatclip::weights::Checkpoint;
use flatclip_tensor::Matrix;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

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
    /// Where features are kept between runs [default: flatclip-real in the cache folder of this user]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Precision; with bf16, its features are compared with those of f32
    #[arg(long, value_enum, default_value = "f32")]
    precision: Arithmetic,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arithmetic {
    F32,
    Bf16,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let (folder, views) = (arguments.folder.as_path(), arguments.views.get());
    let cache = arguments.cache.clone().unwrap_or_else(cache_folder);
    if !folder.join("reference_rows.json").is_file() {
        println!("skipped: {} has no reference_rows.json", folder.display());
        return Ok(());
    }
    let photos = photos(folder, arguments.limit.map_or(usize::MAX, NonZeroUsize::get))?;
    let reference = features_of(&folder.join("reference_features.safetensors"))?;
    let text = features_of(&folder.join("imagenet_text_features.safetensors"))?;
    let load = |precision| -> Result<Clip> {
        Ok(Clip::load(&Checkpoint::open(&arguments.tower_dir)?, LoadOptions { precision, ..LoadOptions::default() })?)
    };
    let clip = Arc::new(load(Precision::F32)?);
    println!("{}", clip.config().describe());

    let (plain, _) = encoded(&clip, "f32", &photos, 1, &cache)?;
    if arguments.precision == Arithmetic::Bf16 {
        let (half, _) = encoded(&load(Precision::Bf16)?, "bf16", &photos, 1, &cache)?;
        return halves(&plain, &half, &text, clip.logit_scale());
    }
    single_view(&photos, &plain, &reference, &text)?;
    let (features, ms) = encoded(&clip, "f32", &photos, views, &cache)?;
    match ms {
        Some(ms) => println!("{} views: {ms:.0} ms per photo to make and encode\n", views),
        None => println!("{} views: all from {}\n", views, cache.display()),
    }
    adapters(&clip, &photos, &text, &features)
}

/// Outside the repository, and still there after a restart.
fn cache_folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("flatclip-real")
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
        Ok(Photo { id, label, source })
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
    match read_text_features(path)?.kind {
        PromptKind::Features(features) => Ok(features),
        _ => anyhow::bail!("{}: not a matrix of features", path.display()),
    }
}

/// Unit-norm features of all views of all photos, and the milliseconds per photo of those that were not kept already.
fn encoded(
    clip: &Clip,
    precision: &str,
    photos: &Dataset,
    views: usize,
    cache: &Path,
) -> Result<(Vec<Matrix>, Option<f64>)> {
    let encoder = ClipEncoder {
        clip,
        views: ViewOptions { count: views, size: clip.image_size(), ..ViewOptions::default() },
        decode: DecodeOptions::default(),
        seed: 0,
        visual_prompts: Vec::new(),
        generated: None,
    };
    let arithmetic = format!("{precision} {}", flatclip_tensor::isa::current().name());
    let cache = FeatureCache::open(cache, &encoder.feature_key(photos, &arithmetic))?;
    let (mut features, mut new, mut seconds) = (Vec::new(), 0, 0.0);
    for (i, photo) in photos.samples.iter().enumerate() {
        if let Some(kept) = cache.get(photo) {
            features.push(kept.unit);
            continue;
        }
        let start = Instant::now();
        let found = encoder.encode(&encoder.pixels(&photos.name, photo)?, views)?;
        seconds += start.elapsed().as_secs_f64();
        cache.put(photo, &found)?;
        features.push(found.unit);
        new += 1;
        if new % 10 == 0 {
            eprintln!("{views} views: {} of {} photos, {seconds:.0} s", i + 1, photos.samples.len());
        }
    }
    Ok((features, (new > 0).then(|| 1e3 * seconds / f64::from(new))))
}

/// Features of the plain view against the reference, and zero-shot accuracy.
fn single_view(photos: &Dataset, features: &[Matrix], reference: &Matrix, text: &Matrix) -> Result<()> {
    let mut cosines: Vec<f32> = features.iter().enumerate().map(|(i, f)| dot(f.row(0), reference.row(i))).collect();
    cosines.sort_by(f32::total_cmp);
    let answers = features.iter().map(|f| best(&logits(f, text, 1.0)));
    let right = answers.zip(&photos.samples).filter(|(answer, photo)| *answer == Some(photo.label)).count();
    let lowest = cosines[0];
    println!(
        "features against the reference: cosine median {:.6}, lowest {lowest:.6}; zero-shot {right} of {} right",
        cosines[cosines.len() / 2],
        features.len()
    );
    ensure!(lowest >= 0.9999, "a photo has cosine {lowest} to the reference, expected >= 0.9999");
    if features.len() == 200 {
        ensure!((129..=133).contains(&right), "{right} of 200 right, expected 131 +- 2");
    }
    Ok(())
}

/// bf16 against f32 on the plain view of every photo. Where the CPU has no tiles, the same rounding in f32 arithmetic.
fn halves(whole: &[Matrix], half: &[Matrix], text: &Matrix, scale: f32) -> Result<()> {
    let (mut cosines, mut changed, mut moved) = (Vec::new(), Vec::new(), 0.0f32);
    for (i, (f32s, bf16s)) in whole.iter().zip(half).enumerate() {
        cosines.push((dot(f32s.row(0), bf16s.row(0)), i));
        let (a, b) = (logits(f32s, text, scale), logits(bf16s, text, scale));
        moved = a.iter().zip(&b).fold(moved, |moved, (a, b)| moved.max((a - b).abs()));
        if best(&a) != best(&b) {
            changed.push(i);
        }
    }
    cosines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (lowest, median) = (cosines[0].0, cosines[cosines.len() / 2].0);
    println!("bf16 against f32: cosine median {median:.6}, lowest {lowest:.6} (photo {})", cosines[0].1);
    println!("logits moved by at most {moved:.3}; zero-shot answers changed: {} {changed:?}", changed.len());
    ensure!(median >= 0.9999 && lowest >= 0.999, "expected a median of at least 0.9999 and no photo below 0.999");
    ensure!(changed.len() <= 1, "{} answers changed, expected at most 1", changed.len());
    Ok(())
}

fn logits(features: &Matrix, text: &Matrix, scale: f32) -> Vec<f32> {
    (0..text.rows()).map(|class| scale * dot(features.row(0), text.row(class))).collect()
}

fn best(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)))
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Accuracy, what became of the answers that changed, and time per photo of every adapter that needs no text tower.
fn adapters(clip: &Arc<Clip>, photos: &Dataset, text: &Matrix, features: &[Matrix]) -> Result<()> {
    let prompt = Arc::new(Prompt::features(text.clone())?);
    let task = Task::new(photos.classes.as_slice(), text.clone(), clip.logit_scale(), 0)?;
    let task = task.with_clip(Arc::clone(clip)).with_prompt(prompt);
    let count = photos.samples.len();
    println!(
        "{:<10} {:>6} {:>9} {:>8} {:>12} {:>12} {:>20}",
        "method", "right", "accuracy", "changed", "became right", "became wrong", "ms to adapt, a photo"
    );
    let mut plain: Vec<usize> = Vec::new();
    for name in ADAPTERS {
        let mut adapter = methods::build_adapter(name, &toml::Table::new())?;
        adapter.prepare(&task)?;
        let start = Instant::now();
        let answers = photos.samples.iter().zip(features);
        let answers =
            answers.map(|(photo, views)| Ok(adapter.adapt(&task, &ViewSet::new(&photo.id, views))?.prediction));
        let answers: Vec<usize> = answers.collect::<Result<_>>()?;
        let ms = start.elapsed().as_secs_f64() * 1e3 / count as f64;
        if plain.is_empty() {
            plain.clone_from(&answers);
        }
        let changes: Vec<(bool, bool, bool)> = photos
            .samples
            .iter()
            .zip(answers.iter().zip(&plain))
            .map(|(photo, (&now, &before))| (now != before, now == photo.label, before == photo.label))
            .collect();
        let of = |test: fn(&(bool, bool, bool)) -> bool| changes.iter().filter(|c| test(c)).count();
        let (right, changed) = (of(|c| c.1), of(|c| c.0));
        let (mended, spoilt) = (of(|c| c.1 && !c.2), of(|c| !c.1 && c.2));
        let share = 100.0 * right as f64 / count as f64;
        println!("{name:<10} {right:>6} {share:>8.1}% {changed:>8} {mended:>12} {spoilt:>12} {ms:>20.2}");
    }
    let error = 100.0 * (0.25 / count as f64).sqrt();
    println!(
        "\n{count} photos: a standard error of up to {error:.1} points; look at whether answers that change get better"
    );
    Ok(())
}
