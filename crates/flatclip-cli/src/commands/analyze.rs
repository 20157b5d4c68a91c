//! `flatclip analyze`: what the paper's theory says of sharpness scores, measured on two data sets.

use crate::inputs::model::{Model, ModelArgs};
use crate::inputs::prompt::PromptArgs;
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, ensure};
use flatclip::data::{self, Dataset, OpenOptions, Split};
use flatclip::files::write_atomic;
use flatclip::image::DecodeOptions;
use flatclip::landscape::{EntropyGap, Separation};
use flatclip::methods::{self, Adapter, Sample, Task};
use flatclip::model::Features;
use flatclip::report::figure::{Axis, Figure, Layer};
use flatclip::report::{Cell, Page, Section, Table};
use flatclip_tensor::Matrix;
use serde_json::json;
use std::path::PathBuf;

/// Options of `flatclip analyze`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// The data set that is nearer to the training data
    #[arg(long, value_name = "DATA", default_value = "pocket:photo")]
    near: String,
    /// The data set that is farther
    #[arg(long, value_name = "DATA", default_value = "pocket:sketch")]
    far: String,
    /// Where known data sets lie
    #[arg(long, value_name = "DIR", env = "FLATCLIP_DATA_ROOT")]
    data_root: Option<PathBuf>,
    /// Training images per class that distances are measured to
    #[arg(long, default_value_t = 16)]
    shots: usize,
    /// At most so many images of each set
    #[arg(long, default_value_t = 500)]
    limit: usize,
    /// An option of stss, e.g. radius=1 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where the page, the figures and the numbers go
    #[arg(long, value_name = "DIR", default_value = "analysis")]
    out: PathBuf,
}

/// Every output is raised to this before the entropy bound is checked; the theorem needs a positive floor.
const ETA: f64 = 1e-4;
const BINS: usize = 10;

/// What was found for every image of a set.
#[derive(Default)]
struct Found {
    scores: Vec<f32>,
    right: Vec<bool>,
    distances: Vec<f32>,
    probabilities: Vec<(Vec<f32>, usize)>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let open = |spec: &str, split: Split| {
        data::open(spec, &OpenOptions { root: args.data_root.clone(), split, ..OpenOptions::default() })
    };
    let (near, far) = (open(&args.near, Split::Test)?, open(&args.far, Split::Test)?);
    ensure!(near.classes == far.classes, "--near and --far have different class lists; scores would not be comparable");
    let model = args.model.load(out)?;
    let prompt = args.prompt.read()?;
    let task = Task::from_prompt(&prompt, &model.clip, &model.tokenizer, &near.classes, args.seed)?;
    let mut settings = super::settings::table(&args.settings)?;
    settings.insert("count".into(), toml::Value::Integer(1));
    let mut stss = methods::build_adapter("stss", &settings)?;
    stss.prepare(&task)?;
    let centres = class_centres(&model, &open(&args.near, Split::Train)?, args.shots)?;
    let near_found = measure(&args, &model, &task, stss.as_mut(), &near, &centres, out)?;
    let far_found = measure(&args, &model, &task, stss.as_mut(), &far, &centres, out)?;
    save(&args, &near_found, &far_found, out)?;
    Ok(Exit::Done)
}

fn unit_features(model: &Model, dataset: &Dataset, indices: &[usize]) -> Result<Matrix> {
    let pictures = indices.iter().map(|&i| Ok(dataset.samples[i].picture(&DecodeOptions::default())?));
    Ok(Features::unit(model.plain_features(pictures)?).0)
}

/// Unit-norm mean feature of each class over the first `shots` training images.
fn class_centres(model: &Model, train: &Dataset, shots: usize) -> Result<Matrix> {
    let groups = train.by_class();
    let mut centres = Matrix::zeros(groups.len(), model.clip.embed_dim());
    for (class, indices) in groups.iter().enumerate() {
        let features = unit_features(model, train, &indices[..indices.len().min(shots)])?;
        for row in features.iter_rows() {
            centres.row_mut(class).iter_mut().zip(row).for_each(|(c, x)| *c += x);
        }
    }
    Ok(Features::unit(centres).0)
}

fn measure(
    args: &Args,
    model: &Model,
    task: &Task<'_>,
    stss: &mut dyn Adapter,
    dataset: &Dataset,
    centres: &Matrix,
    out: &Output,
) -> Result<Found> {
    let bar = out.progress(dataset.samples.len().min(args.limit) as u64, &dataset.name);
    let indices: Vec<usize> = (0..dataset.samples.len().min(args.limit)).collect();
    let mut found = Found::default();
    for batch in indices.chunks(32) {
        let features = unit_features(model, dataset, batch)?;
        for (row, &i) in batch.iter().enumerate() {
            let sample = &dataset.samples[i];
            let one = features.select_rows(&[row]);
            let answer = stss.adapt(task, &Sample::new(&sample.id, &one))?;
            let dot = |c: &[f32]| c.iter().zip(one.row(0)).map(|(a, b)| a * b).sum::<f32>();
            found.scores.push(answer.explanation.scores[0]);
            found.right.push(answer.prediction == sample.label);
            found.distances.push(1.0 - centres.iter_rows().map(dot).fold(f32::NEG_INFINITY, f32::max));
            found.probabilities.push((answer.probabilities, sample.label));
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(found)
}

/// Mean score and accuracy of ten equally large groups, lowest scores first.
fn deciles(found: &Found) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..found.scores.len()).collect();
    order.sort_by(|&a, &b| found.scores[a].total_cmp(&found.scores[b]));
    let group = |bin: usize| &order[bin * order.len() / BINS..(bin + 1) * order.len() / BINS];
    let mean = |values: &mut dyn Iterator<Item = f64>, n: usize| values.sum::<f64>() / n.max(1) as f64;
    (0..BINS)
        .map(|bin| {
            let group = group(bin);
            let score = mean(&mut group.iter().map(|&i| f64::from(found.scores[i])), group.len());
            let right = mean(&mut group.iter().map(|&i| f64::from(u8::from(found.right[i]))), group.len());
            (score, right)
        })
        .collect()
}

/// Spearman's rank correlation.
fn rank_correlation(x: &[f32], y: &[f32]) -> f64 {
    let ranks = |values: &[f32]| {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        let mut ranks = vec![0.0; values.len()];
        order.iter().enumerate().for_each(|(rank, &i)| ranks[i] = rank as f64);
        ranks
    };
    let (x, y) = (ranks(x), ranks(y));
    let mean = (x.len() as f64 - 1.0) / 2.0;
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    sum(&x, &y) / (sum(&x, &x) * sum(&y, &y)).sqrt().max(1e-30)
}

fn save(args: &Args, near: &Found, far: &Found, out: &Output) -> Result<()> {
    let separation = Separation::measure(&near.scores, &far.scores).context("one of the sets has no image")?;
    let rows =
        |found: &Found| EntropyGap::measure(found.probabilities.iter().map(|(p, label)| (p.as_slice(), *label)), ETA);
    let (gap_near, gap_far) = (rows(near), rows(far));
    let all = |pick: &dyn Fn(&Found) -> Vec<f32>| [pick(near), pick(far)].concat();
    let correlation = rank_correlation(&all(&|f| f.distances.clone()), &all(&|f| f.scores.clone()));
    let share = |found: &Found| found.right.iter().filter(|&&r| r).count() as f64 / found.right.len().max(1) as f64;
    let mean = |values: &[f32]| values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len().max(1) as f64;

    let mut table = Table::new(
        "Two data sets",
        ["set", "images", "accuracy", "mean score", "mean distance", "entropy bound holds", "mean gap", "mean bound"],
    );
    for (name, found, gap) in [(&args.near, near, &gap_near), (&args.far, far, &gap_far)] {
        table.push(vec![
            Cell::text(name),
            Cell::number(found.scores.len() as f64, 0),
            Cell::percent(share(found)),
            Cell::number(mean(&found.scores), 4),
            Cell::number(mean(&found.distances), 4),
            Cell::text(format!("{} of {}", gap.holding, gap.count)),
            Cell::number(gap.mean_gap, 3),
            Cell::number(gap.mean_bound, 0),
        ]);
    }
    let verdict = if separation.holds_everywhere() {
        "at every threshold the nearer set has at least as many scores below it"
    } else if separation.holds() {
        "there are thresholds at which the nearer set has more scores below, but not at every one"
    } else {
        "no threshold shows it: the conclusion of the theorem is NOT seen on these data"
    };
    let reading = format!(
        "P(score < xi) for {} and {}: {verdict}. Largest gap {:.3} at xi = {:.3}, smallest {:.3} at xi = {:.3}. Rank correlation of an \
         image's score with its distance to the nearest class mean of the training images: {correlation:.2}. The entropy bound is checked with \
         all probabilities raised to {ETA}: it holds by a wide margin, so it says little about how close entropy and cross-entropy are. The \
         complexity term and the divergence of the generalisation bound cannot be measured from samples and are not estimated here.",
        args.near, args.far, separation.largest.1, separation.largest.0, separation.smallest.1, separation.smallest.0
    );
    let curve = |name: &str, values: &[f64]| Layer::Line {
        name: name.to_owned(),
        points: separation
            .thresholds
            .iter()
            .map(|&t| f64::from(t))
            .zip(values.iter().copied())
            .step_by((separation.thresholds.len() / 60).max(1))
            .collect(),
        band: None,
    };
    let ecdf = Figure::new(
        "Share of scores below a threshold",
        Axis::new("threshold xi, nats"),
        Axis::new("P(score < xi)").within(0.0, 1.0),
    )
    .with(curve(&args.near, &separation.near))
    .with(curve(&args.far, &separation.far));
    let bars = |name: &str, found: &Found| Layer::Bars {
        name: name.to_owned(),
        values: deciles(found).iter().map(|d| 100.0 * d.1).collect(),
    };
    let names: Vec<String> = (1..=BINS).map(|i| i.to_string()).collect();
    let by_score = Figure::new(
        "Accuracy by score",
        Axis::categories("tenth of the images, lowest scores first", names),
        Axis::new("accuracy, %").within(0.0, 100.0),
    )
    .with(bars(&args.near, near))
    .with(bars(&args.far, far));
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    write_atomic(&args.out.join("scores.svg"), ecdf.to_svg().as_bytes())?;
    write_atomic(&args.out.join("accuracy-by-score.svg"), by_score.to_svg().as_bytes())?;
    let document = json!({
        "schema_version": 1, "near": args.near, "far": args.far, "separation": separation, "holds": separation.holds(),
        "holds_everywhere": separation.holds_everywhere(), "entropy_gap": { "near": gap_near, "far": gap_far },
        "distance_score_rank_correlation": correlation, "deciles": { "near": deciles(near), "far": deciles(far) },
    });
    write_atomic(&args.out.join("analysis.json"), serde_json::to_string_pretty(&document)?.as_bytes())?;
    let section = Section {
        title: "Scores".into(),
        text: reading.clone(),
        tables: vec![table.clone()],
        figures: vec![ecdf, by_score],
        ..Section::default()
    };
    let page = Page { title: "Analysis of sharpness scores".into(), text: String::new(), sections: vec![section] };
    write_atomic(&args.out.join("analysis.html"), page.to_html().as_bytes())?;
    if out.is_json() {
        out.json(&document)?;
    } else {
        out.line(table.to_text())?;
        out.line(reading)?;
    }
    out.note(format_args!("{}: open analysis.html", args.out.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_agree_correlate_fully() {
        assert!((rank_correlation(&[1.0, 2.0, 9.0], &[0.1, 0.2, 0.3]) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[1.0, 2.0, 9.0], &[0.3, 0.2, 0.1]) + 1.0).abs() < 1e-12);
    }

    #[test]
    fn deciles_go_from_low_scores_to_high() {
        let scores: Vec<f32> = (0..20).map(|i| i as f32).collect();
        let right = (0..20).map(|i| i < 10).collect();
        let groups = deciles(&Found { scores, right, ..Found::default() });
        assert_eq!(groups[0], (0.5, 1.0));
        assert_eq!(groups[9], (18.5, 0.0));
    }
}
