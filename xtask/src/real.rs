//! `cargo xtask real FOLDER TOWER`: a real image tower on real photos, against reference features and labels.
//!
//! FOLDER holds `reference_rows.json`, `reference_features.safetensors`, `imagenet_text_features.safetensors` and
//! `data/imagenet/images/val/WNID/*`; TOWER is a model directory. Nothing of either belongs into this repository.

use anyhow::{Context as _, Result, ensure};
use flatclip::image::views::{ViewKey, ViewOptions, make_views};
use flatclip::image::{self, DecodeOptions};
use flatclip::methods::{self, Sample, Task};
use flatclip::model::{Clip, Features, LoadOptions};
use flatclip::prompt::{Prompt, PromptKind, read_text_features};
use flatclip::weights::Checkpoint;
use flatclip_tensor::Matrix;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Adapters that need no text tower, in the order of the table.
const ADAPTERS: [&str; 6] = ["zero-shot", "vte", "zero", "mta", "tda", "tps"];

struct Photo {
    path: PathBuf,
    label: usize,
}

pub fn run(arguments: &[String]) -> Result<()> {
    let [folder, tower, rest @ ..] = arguments else {
        anyhow::bail!("usage: cargo xtask real FOLDER TOWER_DIR [--views N] [--limit N]");
    };
    let folder = Path::new(folder);
    if !folder.join("reference_rows.json").is_file() {
        println!("skipped: {} has no reference_rows.json", folder.display());
        return Ok(());
    }
    let option = |name: &str| -> Result<Option<usize>> {
        let value = rest.iter().position(|a| a == name).and_then(|i| rest.get(i + 1));
        Ok(value.map(|v| v.parse()).transpose()?)
    };
    let limit = option("--limit")?.unwrap_or(usize::MAX);
    let photos: Vec<Photo> = photos(folder)?.into_iter().take(limit).collect();
    let reference = features_of(&folder.join("reference_features.safetensors"))?;
    let text = features_of(&folder.join("imagenet_text_features.safetensors"))?;
    let clip = Clip::load(&Checkpoint::open(tower)?, LoadOptions::default())?;
    println!("{}", clip.config().describe());

    let single = single_view(&clip, &photos, &reference, &text)?;
    ensure!(single.lowest >= 0.9999, "a photo has cosine {} to the reference, expected >= 0.9999", single.lowest);
    if photos.len() == 200 {
        ensure!((129..=133).contains(&single.right), "{} of 200 right, expected 131 +- 2", single.right);
    }
    adapters(&clip, &photos, &text, option("--views")?.unwrap_or(64))
}

fn photos(folder: &Path) -> Result<Vec<Photo>> {
    let file = folder.join("reference_rows.json");
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let rows = rows["rows"].as_array().context("reference_rows.json has no `rows`")?;
    rows.iter()
        .map(|row| {
            let path = row[0].as_str().context("a row has no path")?;
            let label = row[1].as_u64().context("a row has no label")?;
            Ok(Photo { path: folder.join("data/imagenet/images/val").join(path), label: usize::try_from(label)? })
        })
        .collect()
}

fn features_of(path: &Path) -> Result<Matrix> {
    match read_text_features(path)?.kind {
        PromptKind::Features(features) => Ok(features),
        _ => anyhow::bail!("{}: not a matrix of features", path.display()),
    }
}

struct Single {
    lowest: f32,
    right: usize,
}

/// f32 features of the plain view against the reference, and zero-shot accuracy.
fn single_view(clip: &Clip, photos: &[Photo], reference: &Matrix, text: &Matrix) -> Result<Single> {
    let mut cosines = Vec::new();
    let mut right = 0;
    for (i, photo) in photos.iter().enumerate() {
        let features = views_of(clip, photo, 1)?;
        cosines.push(dot(features.row(0), reference.row(i)));
        let best = (0..text.rows()).max_by(|&a, &b| {
            dot(features.row(0), text.row(a)).total_cmp(&dot(features.row(0), text.row(b))).then(b.cmp(&a))
        });
        right += usize::from(best == Some(photo.label));
    }
    let mut sorted = cosines.clone();
    sorted.sort_by(f32::total_cmp);
    let single = Single { lowest: sorted[0], right };
    println!(
        "features against the reference: cosine median {:.6}, lowest {:.6}; zero-shot {right} of {} right",
        sorted[sorted.len() / 2],
        single.lowest,
        photos.len()
    );
    Ok(single)
}

fn views_of(clip: &Clip, photo: &Photo, count: usize) -> Result<Matrix> {
    let bytes = std::fs::read(&photo.path).with_context(|| photo.path.display().to_string())?;
    let picture = image::decode_from(&photo.path, &bytes, &DecodeOptions::default())?;
    let options = ViewOptions { count, size: clip.image_size(), ..ViewOptions::default() };
    let name = photo.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let pixels = make_views(&picture, &options, ViewKey { seed: 0, dataset: "imagenet", sample: &name })?;
    Ok(Features::unit(clip.encode_images(&pixels, count)?).0)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Accuracy, changed answers and time per photo of every adapter that needs no text tower.
fn adapters(clip: &Clip, photos: &[Photo], text: &Matrix, views: usize) -> Result<()> {
    let classes: Vec<String> = flatclip::text::imagenet::CLASS_NAMES.iter().map(|&c| c.to_owned()).collect();
    let prompt = Prompt::features(text.clone())?;
    let task = Task::new(&classes, text.clone(), clip.logit_scale(), 0)?.with_clip(clip).with_prompt(&prompt);
    let start = Instant::now();
    let mut features = Vec::new();
    for (i, photo) in photos.iter().enumerate() {
        features.push(views_of(clip, photo, views)?);
        if (i + 1) % 10 == 0 {
            eprintln!("{} of {} photos encoded, {:.0} s", i + 1, photos.len(), start.elapsed().as_secs_f64());
        }
    }
    let encode_ms = start.elapsed().as_secs_f64() * 1e3 / photos.len() as f64;
    println!("{views} views: {encode_ms:.0} ms per photo to make and encode\n");
    println!(
        "{:<10} {:>7} {:>9} {:>8} {:>8} {:>12}",
        "method", "right", "accuracy", "mended", "spoilt", "ms per photo"
    );
    let mut plain: Vec<usize> = Vec::new();
    for name in ADAPTERS {
        let mut adapter = methods::build_adapter(name, &Default::default())?;
        adapter.prepare(&task)?;
        let start = Instant::now();
        let mut answers = Vec::new();
        for (photo, features) in photos.iter().zip(&features) {
            let id = photo.path.display().to_string();
            answers.push(adapter.adapt(&task, &Sample::new(&id, features))?.prediction);
        }
        let ms = start.elapsed().as_secs_f64() * 1e3 / photos.len() as f64;
        if plain.is_empty() {
            plain.clone_from(&answers);
        }
        let is_right = |answer: usize, photo: &Photo| answer == photo.label;
        let count = |test: &dyn Fn(usize, usize, &Photo) -> bool| {
            answers.iter().zip(&plain).zip(photos).filter(|((a, p), photo)| test(**a, **p, photo)).count()
        };
        let right = count(&|a, _, photo| is_right(a, photo));
        let mended = count(&|a, p, photo| is_right(a, photo) && !is_right(p, photo));
        let spoilt = count(&|a, p, photo| !is_right(a, photo) && is_right(p, photo));
        let share = 100.0 * right as f64 / photos.len() as f64;
        println!("{name:<10} {right:>7} {share:>8.1}% {mended:>8} {spoilt:>8} {ms:>12.2}");
    }
    Ok(())
}
