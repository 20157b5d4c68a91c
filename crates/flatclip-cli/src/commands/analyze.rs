//! `flatclip analyze`: what the paper's theory says of sharpness scores, measured on two data sets and on the training images.

use crate::inputs::model::{Model, ModelArgs};
use crate::inputs::prompt::PromptArgs;
use crate::inputs::shots::{ShotFeatures, ShotsAsk};
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, ensure};
use flatclip::data::{self, Dataset, OpenOptions, Split};
use flatclip::files::write_atomic;
use flatclip::image::DecodeOptions;
use flatclip::landscape::{Bound, EntropyGap, Scores, Separation, WorstCase, WorstCaseSearch, rank_correlation};
use flatclip::methods::{self, Adapter, Task, ViewSet};
use flatclip::model::Features;
use flatclip::report::{ANALYSIS_FILE, AnalysedSet, AnalysisRecord, Page};
use flatclip_tensor::Matrix;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// The data set that training images come from [default: that of --near]
    #[arg(long, value_name = "DATA")]
    train: Option<String>,
    /// Training images per class: for the worst-case loss, and to measure distances to; `tune` draws the same for the same seed
    #[arg(long, default_value_t = 16)]
    shots: usize,
    /// Radius of the worst-case training loss [default: the radius of stss]
    #[arg(long, value_name = "RADIUS")]
    rho: Option<f32>,
    /// At most so many images of each set
    #[arg(long, default_value_t = 500)]
    limit: usize,
    /// An option of stss, e.g. radius=1 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Seed of the shots and of the perturbations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the page, the figures and the numbers go
    #[arg(long, value_name = "DIR", default_value = "analysis")]
    out: PathBuf,
}

/// Every output is raised to this before the entropy bound is checked; the theorem needs a positive floor.
const ETA: f64 = 1e-4;
/// How often the bound may fail.
const DELTA: f64 = 0.05;

/// What was found for every image of a set.
#[derive(Default)]
struct Found {
    scores: Scores,
    probabilities: Vec<(Vec<f32>, usize)>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let open = |spec: &str| {
        data::open(spec, &OpenOptions { root: args.data_root.clone(), split: Split::Test, ..OpenOptions::default() })
    };
    let (near, far) = (open(&args.near)?, open(&args.far)?);
    ensure!(near.classes == far.classes, "--near and --far have different class lists; scores would not be comparable");
    let model = args.model.load(out)?;
    let prompt = Arc::new(args.prompt.read()?);
    let task = Task::from_prompt(&prompt, &model.clip, &model.tokenizer, near.classes.as_slice(), args.seed)?;
    let mut settings = super::settings::table(&args.settings)?;
    settings.insert("count".into(), toml::Value::Integer(1));
    let mut stss = methods::build_adapter("stss", &settings)?.into_episodic()?;
    stss.prepare(&task)?;
    let train = args.train.as_deref().unwrap_or(&args.near);
    let ask = ShotsAsk { data: train, root: args.data_root.clone(), shots: args.shots, seed: args.seed };
    let shots = ShotFeatures::draw(&model, &ask)?;
    ensure!(shots.classes == near.classes, "--train and --near have different class lists");
    let radius = args.rho.unwrap_or_else(|| radius_of(&settings));
    let worst = worst_case(&args, &task, &shots, radius)?;
    let centres = class_centres(&shots);
    let near = measure(&args, &model, &task, stss.as_ref(), &near, &centres, out)?;
    let far = measure(&args, &model, &task, stss.as_ref(), &far, &centres, out)?;
    let training = format!("{} training images of {train} (seed {})", shots.labels.len(), args.seed);
    save(&args, &near, &far, worst, training, out)?;
    Ok(Exit::Done)
}

/// STSS's radius, as given or by default.
fn radius_of(settings: &toml::Table) -> f32 {
    let defaults = methods::adapter("stss").map(|spec| (spec.defaults)()).unwrap_or_default();
    let value = settings.get("radius").or_else(|| defaults.get("radius"));
    value.and_then(|v| v.as_float().or_else(|| v.as_integer().map(|i| i as f64))).unwrap_or(0.5) as f32
}

fn worst_case(args: &Args, task: &Task, shots: &ShotFeatures, radius: f32) -> Result<WorstCase> {
    let side = task.text_side("analyze")?;
    let search = WorstCaseSearch { radius, steps: 8, directions: 32, own_gradients: 128, seed: args.seed };
    let probe = shots.probe("training loss".into());
    let context = task.start_context("analyze")?;
    Ok(WorstCase::measure(side.tower, side.tokens, context, task.logit_scale, &probe, &search)?)
}

/// Unit-norm mean feature of each class over the training images.
fn class_centres(shots: &ShotFeatures) -> Matrix {
    let mut centres = Matrix::zeros(shots.classes.len(), shots.features.cols());
    for (row, &label) in shots.features.iter_rows().zip(&shots.labels) {
        centres.row_mut(label).iter_mut().zip(row).for_each(|(c, x)| *c += x);
    }
    Features::unit(centres).0
}

fn measure(
    args: &Args,
    model: &Model,
    task: &Task,
    stss: &dyn Adapter,
    dataset: &Dataset,
    centres: &Matrix,
    out: &Output,
) -> Result<Found> {
    let bar = out.progress(dataset.samples.len().min(args.limit) as u64, &dataset.name);
    let indices: Vec<usize> = (0..dataset.samples.len().min(args.limit)).collect();
    let mut found = Found::default();
    for batch in indices.chunks(32) {
        let pictures = batch.iter().map(|&i| Ok(dataset.samples[i].picture(&DecodeOptions::default())?));
        let features = Features::unit(model.plain_features(pictures)?).0;
        for (row, &i) in batch.iter().enumerate() {
            let sample = &dataset.samples[i];
            let one = features.select_rows(&[row]);
            let answer = stss.adapt(task, &ViewSet::new(&sample.id, &one))?;
            let dot = |c: &[f32]| c.iter().zip(one.row(0)).map(|(a, b)| a * b).sum::<f32>();
            found.scores.scores.push(answer.explanation.scores[0]);
            found.scores.right.push(answer.prediction == sample.label);
            found.scores.distances.push(1.0 - centres.iter_rows().map(dot).fold(f32::NEG_INFINITY, f32::max));
            found.probabilities.push((answer.probabilities, sample.label));
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(found)
}

fn save(args: &Args, near: &Found, far: &Found, worst: WorstCase, training: String, out: &Output) -> Result<()> {
    let separation =
        Separation::measure(&near.scores.scores, &far.scores.scores).context("one of the sets has no image")?;
    let gap =
        |found: &Found| EntropyGap::measure(found.probabilities.iter().map(|(p, label)| (p.as_slice(), *label)), ETA);
    let both = |pick: &dyn Fn(&Scores) -> &[f32]| [pick(&near.scores), pick(&far.scores)].concat();
    let quantiles = (near.scores.quantile_above_mean(DELTA / 2.0), far.scores.quantile_above_mean(DELTA / 2.0));
    let left = (near.scores.mean_score(), far.scores.mean_score());
    let record = AnalysisRecord {
        schema_version: 1,
        near: AnalysedSet::new(&args.near, &near.scores, gap(near)),
        far: AnalysedSet::new(&args.far, &far.scores, gap(far)),
        holds: separation.holds(),
        holds_everywhere: separation.holds_everywhere(),
        separation,
        distance_score_rank_correlation: rank_correlation(&both(&|s| &s.distances), &both(&|s| &s.scores)),
        training,
        bound: Bound::new(worst, DELTA, ETA, quantiles, left),
    };
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    write_atomic(&args.out.join("scores.svg"), record.score_figure().to_svg().as_bytes())?;
    write_atomic(&args.out.join("accuracy-by-score.svg"), record.decile_figure().to_svg().as_bytes())?;
    write_atomic(&args.out.join(ANALYSIS_FILE), serde_json::to_string_pretty(&record)?.as_bytes())?;
    let title = "Analysis of sharpness scores".to_owned();
    let page = Page { title, text: String::new(), sections: record.sections() };
    write_atomic(&args.out.join("analysis.html"), page.to_html().as_bytes())?;
    if out.is_json() {
        out.json(&record)?;
    } else {
        out.line(record.sets_table().to_text())?;
        out.line(record.reading())?;
        out.line("")?;
        out.line(record.bound_table().to_text())?;
        out.line(record.bound_reading())?;
    }
    out.note(format_args!("{}: open analysis.html", args.out.display()));
    Ok(())
}
