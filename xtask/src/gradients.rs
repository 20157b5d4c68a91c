//! `cargo xtask gradients`: how far the cheaper gradients of a context (16 bits, last blocks only, sampled classes) are from the
//! exact one, and what a gradient costs. On `pocket` with images of its train world, on other models with random features.

use crate::real::Lines;
use anyhow::{Result, ensure};
use flatclip::image::DecodeOptions;
use flatclip::model::{Features, Precision, Towers};
use flatclip::rng::Stream;
use flatclip::{Matrix, Model};
use flatclip_lab::data::{self, Dataset, OpenOptions, Split};
use flatclip_lab::tuners::{Batch, Coop, CoopConfig, TuneTask, Tuner as _};
use std::num::NonZeroUsize;
use std::time::Instant;

/// Images of a batch.
const BATCH: usize = 32;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `pocket`, `pocket-vit`, or a model with a text tower such as random:ViT-B-16
    #[arg(long, default_value = "random:ViT-B-16", value_name = "MODEL")]
    model: String,
    /// Classes (of ImageNet) for other models than the pocket ones
    #[arg(long, default_value = "1000", value_name = "K")]
    classes: NonZeroUsize,
    /// Batches
    #[arg(long, default_value = "4", value_name = "N")]
    batches: NonZeroUsize,
}

/// Labelled features.
struct Images {
    classes: Vec<String>,
    features: Matrix,
    labels: Vec<usize>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let is_pocket = arguments.model.starts_with("pocket");
    let load = |precision| -> Result<Model> {
        let towers = if is_pocket { Towers::Both } else { Towers::Text };
        let builder = Model::builder(&arguments.model).offline(true).towers(towers).precision(Precision::F32);
        Ok(builder.text_precision(precision).load(&Lines)?)
    };
    let (exact, fixed) = (load(Precision::F32)?, load(Precision::I16)?);
    let blocks = exact.config().text.as_ref().map_or(0, |text| text.layers);
    ensure!(blocks > 0, "{} has no text tower", arguments.model);
    let count = arguments.batches.get() * BATCH;
    let images = if is_pocket { drawn(&exact, count)? } else { random(&exact, arguments.classes.get(), count) };
    let plain = CoopConfig::default();
    let through = |blocks: usize| CoopConfig { gradient_blocks: blocks, ..plain.clone() };
    let sampled = |others: usize| CoopConfig { class_sample: others, ..plain.clone() };
    let k = images.classes.len();
    let reference = gradients(&exact, &plain, &images)?;
    println!("{}, {k} classes, {} batches of {BATCH}", exact.describe(), arguments.batches);
    println!("\n| gradient | cosine to the exact one, lowest | mean | of the mean over batches | length | time |");
    println!("|---|---|---|---|---|---|");
    for (name, model, config) in [
        ("exact".to_owned(), &exact, plain.clone()),
        ("i16".to_owned(), &fixed, plain.clone()),
        (format!("last {} of {blocks} blocks", 3 * blocks / 4), &exact, through(3 * blocks / 4)),
        (format!("last {} of {blocks} blocks", blocks / 2), &exact, through(blocks / 2)),
        (format!("last {} of {blocks} blocks", blocks / 4), &exact, through((blocks / 4).max(1))),
        (format!("{} other classes", k / 2), &exact, sampled(k / 2)),
        (format!("{} other classes", k / 4), &exact, sampled(k / 4)),
        (format!("i16, {} other classes", k / 4), &fixed, sampled(k / 4)),
    ] {
        let found = gradients(model, &config, &images)?;
        let cosines: Vec<f64> = reference.0.iter().zip(&found.0).map(|(a, b)| cosine(a, b)).collect();
        let lowest = cosines.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        let (whole, other) = (sum(&reference.0), sum(&found.0));
        let length = (dot(&other, &other) / dot(&whole, &whole)).sqrt();
        let time = found.1 / reference.1;
        println!("| {name} | {lowest:.6} | {mean:.6} | {:.6} | {length:.3} | {time:.2} |", cosine(&whole, &other));
    }
    Ok(())
}

/// The gradient of every batch, and the seconds of the fastest.
fn gradients(model: &Model, config: &CoopConfig, images: &Images) -> Result<(Vec<Vec<f32>>, f64)> {
    let (clip, labels) = (model.clip(), &images.labels);
    let task = TuneTask {
        clip,
        tokenizer: model.tokenizer(),
        classes: &images.classes,
        templates: &[],
        labels,
        bank: None,
        seed: 1,
    };
    let coop = Coop::build(config, &task)?;
    let (mut all, mut fastest) = (Vec::new(), f64::INFINITY);
    for (batch, labels) in labels.chunks(BATCH).enumerate() {
        let rows: Vec<usize> = (batch * BATCH..batch * BATCH + labels.len()).collect();
        let features = images.features.select_rows(&rows);
        let start = Instant::now();
        let loss = coop.loss(clip, coop.parameters(), &Batch { labels, features: &features, pixels: &[] })?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
        all.extend(loss.gradient);
    }
    Ok((all, fastest))
}

/// Images of the train world that the model has not seen.
fn drawn(model: &Model, count: usize) -> Result<Images> {
    let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
    let Dataset { classes, samples, .. } = data::open(&format!("pocket:photo:train:{count}"), &options)?;
    let images = samples.iter().map(|sample| sample.image(&DecodeOptions::default()));
    let features = Features::unit(model.plain_features(images)?).0;
    Ok(Images { classes, features, labels: samples.iter().map(|sample| sample.label).collect() })
}

fn random(model: &Model, classes: usize, count: usize) -> Images {
    let names = flatclip::text::imagenet::CLASS_NAMES.iter().take(classes).map(|&name| name.to_owned());
    let mut stream = Stream::new(1, &["gradients"]);
    let data = (0..count * model.width()).map(|_| stream.normal() as f32).collect();
    let features = Features::unit(Matrix::from_vec(count, model.width(), data)).0;
    let classes: Vec<String> = names.collect();
    let labels = (0..count).map(|_| stream.below(classes.len())).collect();
    Images { classes, features, labels }
}

fn sum(gradients: &[Vec<f32>]) -> Vec<f32> {
    let mut total = vec![0.0; gradients[0].len()];
    gradients.iter().for_each(|gradient| total.iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x));
    total
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
