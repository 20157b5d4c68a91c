//! What the paper's theory says of sharpness scores, measured on two data sets and on training images.

mod radius;
mod sets;

pub use radius::ClassRadius;

use super::shots::ShotFeatures;
use crate::data::Dataset;
use crate::flatness::{
    Ball, Bound, Divergence, Floor, Ordering, Rademacher, RademacherSearch, ScoreKind, Separation, Theory, WorstCase,
    WorstCaseSearch, rank_correlation,
};
use crate::report::{ANALYSIS_FILE, AnalysisRecord, Page};
use flatclip::files::write_atomic;
use flatclip::methods::adapters::stss::Stss;
use flatclip::methods::bank::Radius;
use flatclip::methods::{Adapter as _, Task};
use flatclip::model::Features;
use flatclip::prompt::{Prompt, PromptContent};
use flatclip::{Error, Matrix, Model, Progress, Result};
use radius::one_radius;
use sets::{Found, Measure, stop_if_cancelled};
use std::path::PathBuf;
use std::sync::Arc;

/// How often the bound may fail.
const DELTA: f64 = 0.05;
/// Steps of the ascents of the mean training loss, and of those of single training images.
const STEPS: (usize, usize) = (8, 6);
/// Random directions of the training loss.
const DIRECTIONS: usize = 32;

/// What is analysed.
#[derive(Clone, Debug)]
pub struct AnalyzeRequest {
    /// The prompt.
    pub prompt: Prompt,
    /// The data set that is nearer to the training data.
    pub near: Dataset,
    /// The one that is farther; with the same classes.
    pub far: Dataset,
    /// Where training images come from; with the same classes.
    pub train: Dataset,
    /// Training images per class.
    pub shots: usize,
    /// Radius of the scores and of the worst-case training loss; `None` for that of STSS's options.
    pub rho: Option<f64>,
    /// Radius of the class of functions whose complexity is measured.
    pub class_radius: ClassRadius,
    /// The floor of all probabilities that the theorem requires.
    pub eta: f64,
    /// At most so many images of each set, spread over it.
    pub limit: usize,
    /// Images of each set, and of the training images, that get an ascent of their own.
    pub ascent_images: usize,
    /// Options of STSS.
    pub options: toml::Table,
    /// Seed of the shots and of the perturbations.
    pub seed: u64,
    /// Rotate images per EXIF and scale 16-bit grey, or read them as Pillow does; `None`: by the kind of each data set.
    pub exif: Option<bool>,
    /// Where the page, the figures and the numbers go.
    pub out: PathBuf,
}

impl AnalyzeRequest {
    /// The default floor.
    pub const ETA: f64 = 1e-4;
    /// Images with a separate ascent by default.
    pub const ASCENT_IMAGES: usize = 64;
}

/// Measures, and writes `analysis.json`, figures and a page.
pub fn analyze(request: &AnalyzeRequest, model: &Model, progress: &dyn Progress) -> Result<AnalysisRecord> {
    let request = &request.on_common_classes(progress)?;
    if request.ascent_images == 0 {
        return Err(Error::config("ascent images", "expected 1 or more, found 0"));
    }
    if let PromptContent::Maple { .. } = request.prompt.content {
        let reason = "a maple prompt has deep prompts, which scores perturb and the training loss here does not; use a \
                      learned prompt or a template";
        return Err(Error::method("analyze", reason));
    }
    let prompt = Arc::new(request.prompt.clone());
    let classes = request.near.classes.clone();
    let floor = Floor::new(request.eta, classes.len())?;
    let task = Task::from_prompt(&prompt, model.clip(), model.tokenizer(), classes, request.seed)?;
    let context = task.start_context("analyze")?;
    let (options, radius) = one_radius(&request.options, request.rho, context)?;
    let class_radius = request.class_radius.resolve(radius.length, &request.prompt, model)?;
    let mut stss = Stss::new(options);
    stss.prepare(&task)?;
    let shots = ShotFeatures::draw(model, &request.train, request.shots, request.seed, request.exif)?;
    progress.start("worst-case training loss", None);
    let ball = Ball::of(&task, "analyze", radius.length)?;
    let search = WorstCaseSearch {
        steps: STEPS.0,
        directions: DIRECTIONS,
        own_images: request.ascent_images,
        own_steps: STEPS.1,
        floor,
        seed: request.seed,
    };
    // Its record has a radius of single precision.
    let single = Ball { radius: f64::from(radius.length as f32), ..ball };
    let worst = WorstCase::measure(&single, &shots.probe("training loss".into()), &search)?;
    progress.finish();
    stop_if_cancelled("analyze", progress)?;
    let measure = Measure { request, model, task: &task, stss: &stss, ball, floor, centres: class_centres(&shots) };
    let near = measure.set(&request.near, progress)?;
    let far = measure.set(&request.far, progress)?;
    progress.start("complexity", None);
    let search = RademacherSearch { seed: request.seed, ..RademacherSearch::default() };
    let class = Ball { radius: class_radius.0, ..ball };
    let complexity = Rademacher::measure(&class, &shots.features, &search)?;
    progress.finish();
    let terms = Terms { worst, complexity, radius, class_radius: class_radius.1, classes: task.class_count() };
    let record = record(request, &shots, &near, &far, terms)?;
    save(request, &record)?;
    Ok(record)
}

/// Unit-norm mean feature of each class over the training images.
fn class_centres(shots: &ShotFeatures) -> Matrix {
    let mut centres = Matrix::zeros(shots.classes.len(), shots.features.cols());
    for (row, &label) in shots.features.iter_rows().zip(&shots.labels) {
        centres.row_mut(label).iter_mut().zip(row).for_each(|(c, x)| *c += x);
    }
    Features::unit(centres).0
}

/// What was found on the training images.
struct Terms {
    worst: WorstCase,
    complexity: Rademacher,
    radius: Radius,
    class_radius: String,
    classes: usize,
}

fn record(
    request: &AnalyzeRequest,
    shots: &ShotFeatures,
    near: &Found,
    far: &Found,
    terms: Terms,
) -> Result<AnalysisRecord> {
    let empty = || Error::config("limit", "one of the sets has no image");
    let separation = Separation::measure(&near.scores.scores, &far.scores.scores).ok_or_else(empty)?;
    let control = Separation::measure(&near.scores.entropies, &far.scores.entropies).ok_or_else(empty)?;
    let ordering = ordering(near, far, &terms, request.seed).ok_or_else(empty)?;
    let both = |pick: &dyn Fn(&Found) -> &[f32]| [pick(near), pick(far)].concat();
    let left = (near.scores.left(DELTA), far.scores.left(DELTA));
    let bound = Bound::new(terms.worst, terms.classes, DELTA, request.eta, left);
    let divergence = |found: &Found| {
        Divergence::measure(&shots.features, &found.features, DELTA, request.seed)
            .ok_or_else(|| Error::config("limit", "a divergence needs at least four images of each set"))
    };
    let theory = Theory::new(&bound, (divergence(near)?, divergence(far)?), terms.complexity);
    let train = if request.train.spec.is_empty() { &request.train.name } else { &request.train.spec };
    Ok(AnalysisRecord {
        schema_version: 3,
        near: near.set.clone(),
        far: far.set.clone(),
        holds: ordering.claims[0].holds,
        holds_everywhere: ordering.claims[0].holds && separation.smallest.1 >= 0.0,
        ordering,
        separation,
        control,
        distance_score_rank_correlation: rank_correlation(
            &both(&|found| &found.scores.distances),
            &both(&|found| &found.scores.scores),
        ),
        training: format!("{} training images of {train} (seed {})", shots.labels.len(), request.seed),
        bound,
        theory,
        class_radius: terms.class_radius,
        relative_radius: terms.radius.share,
    })
}

/// The ordering claim of the scores, of the entropy alone, and of what ascent found, beside the scores of the same images.
fn ordering(near: &Found, far: &Found, terms: &Terms, seed: u64) -> Option<Ordering> {
    let (worst, rho) = (&near.set.worst_entropy, terms.worst.radius);
    let kind = |name: String, of: fn(&Found) -> &[f32]| ScoreKind { name, near: of(near), far: of(far) };
    let random = format!("score, {} random directions, radius {rho}", worst.directions);
    let ascent = format!("score, ascent with {} steps from the prompt, radius {rho}", worst.steps);
    let others =
        [kind(ascent, |found| &found.ascent), kind(format!("{random}, the same images"), |found| &found.ascent_scores)];
    let score = kind(random, |found| &found.scores.scores);
    let control = kind("entropy alone, radius 0".into(), |found| &found.scores.entropies);
    Ordering::measure(&score, &control, &others, seed)
}

fn save(request: &AnalyzeRequest, record: &AnalysisRecord) -> Result<()> {
    let out = &request.out;
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    write_atomic(&out.join("scores.svg"), record.score_figure().to_svg().as_bytes())?;
    write_atomic(&out.join("entropy-control.svg"), record.control_figure().to_svg().as_bytes())?;
    write_atomic(&out.join("accuracy-by-score.svg"), record.decile_figure().to_svg().as_bytes())?;
    let json = serde_json::to_string_pretty(record).map_err(|e| Error::config(ANALYSIS_FILE, e.to_string()))?;
    write_atomic(&out.join(ANALYSIS_FILE), json.as_bytes())?;
    let title = "Analysis of sharpness scores".to_owned();
    let page = Page { title, text: String::new(), sections: record.sections() };
    write_atomic(&out.join("analysis.html"), page.to_html().as_bytes())
}
