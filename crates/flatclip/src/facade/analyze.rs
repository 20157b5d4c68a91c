//! What the paper's theory says of sharpness scores, measured on two data sets and on training images.

use super::model::Model;
use super::shots::ShotFeatures;
use crate::data::Dataset;
use crate::files::write_atomic;
use crate::landscape::{
    Bound, Divergence, EntropyGap, Rademacher, RademacherSearch, Scores, Separation, Theory, WorstCase,
    WorstCaseSearch, rank_correlation,
};
use crate::methods::{self, Adapter, Task, ViewSet};
use crate::model::Features;
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::report::{ANALYSIS_FILE, AnalysedSet, AnalysisRecord, Page};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use std::path::PathBuf;
use std::sync::Arc;

/// Every output is raised to this before the entropy bound is checked; the theorem needs a positive floor.
const ETA: f64 = 1e-4;
/// How often the bound may fail.
const DELTA: f64 = 0.05;
/// Pictures per call of the image tower.
const BATCH: usize = 32;

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
    /// Radius of the worst-case training loss; `None` for the radius of STSS.
    pub rho: Option<f32>,
    /// At most so many images of each set.
    pub limit: usize,
    /// Options of STSS.
    pub options: toml::Table,
    /// Seed of the shots and of the perturbations.
    pub seed: u64,
    /// Rotate images per EXIF and scale 16-bit grey, or read them as Pillow does; `None`: as the data set's kind wants.
    pub exif: Option<bool>,
    /// Where the page, the figures and the numbers go.
    pub out: PathBuf,
}

impl AnalyzeRequest {
    /// The same with all three data sets cut to the classes that they share (ImageNet against ImageNet-A: 200), in the order
    /// of the nearer set; scores over different class lists would not compare.
    fn on_common_classes(&self, progress: &dyn Progress) -> Result<Self> {
        let sets = [&self.near, &self.far, &self.train];
        if sets.iter().all(|set| set.classes == self.near.classes) {
            return Ok(self.clone());
        }
        let place = |set: &Dataset, name: &String| set.classes.iter().position(|class| class == name);
        let mut common: Vec<String> = Vec::new();
        for name in &self.near.classes {
            if sets.iter().all(|set| place(set, name).is_some()) && !common.contains(name) {
                common.push(name.clone());
            }
        }
        if common.len() < 2 {
            let counts: Vec<String> = sets.iter().map(|set| format!("{} ({})", set.name, set.classes.len())).collect();
            let reason =
                format!("expected classes that all data sets share, found {}: {}", common.len(), counts.join(", "));
            return Err(Error::config("classes", reason));
        }
        progress.note(&format!("on the {} classes that all three data sets share", common.len()));
        let cut = |set: &Dataset| {
            let keep: Vec<usize> = common.iter().filter_map(|name| place(set, name)).collect();
            set.restrict_classes(&keep)
        };
        let (near, far, train) = (cut(&self.near), cut(&self.far), cut(&self.train));
        if near.samples.is_empty() || far.samples.is_empty() {
            return Err(Error::config("classes", "one of the sets has no image of the shared classes"));
        }
        Ok(Self { near, far, train, ..self.clone() })
    }
}

/// What was found for every image of a set.
#[derive(Default)]
struct Found {
    scores: Scores,
    probabilities: Vec<(Vec<f32>, usize)>,
    /// One row after the other.
    features: Vec<f32>,
}

/// Measures, and writes `analysis.json`, figures and a page.
pub fn analyze(request: &AnalyzeRequest, model: &Model, progress: &dyn Progress) -> Result<AnalysisRecord> {
    let request = &request.on_common_classes(progress)?;
    let prompt = Arc::new(request.prompt.clone());
    let classes = request.near.classes.clone();
    let task = Task::from_prompt(&prompt, model.clip(), model.tokenizer(), classes, request.seed)?;
    let mut options = request.options.clone();
    options.insert("count".into(), toml::Value::Integer(1));
    // The outputs themselves are looked at, not the votes of one view.
    options.insert("vote".into(), "mean-probability".into());
    let mut stss = methods::adapter("stss")?.build(&options)?.into_episodic()?;
    stss.prepare(&task)?;
    let shots = ShotFeatures::draw(model, &request.train, request.shots, request.seed, request.exif)?;
    let worst = worst_case(request, &task, &shots, request.rho.unwrap_or_else(|| radius_of(&options)))?;
    let centres = class_centres(&shots);
    let near = measure(request, model, &task, stss.as_ref(), &request.near, &centres, progress)?;
    let far = measure(request, model, &task, stss.as_ref(), &request.far, &centres, progress)?;
    let train = if request.train.spec.is_empty() { &request.train.name } else { &request.train.spec };
    let training = format!("{} training images of {train} (seed {})", shots.labels.len(), request.seed);
    let radius = request.rho.unwrap_or_else(|| radius_of(&request.options));
    let record = record(request, (&task, &shots, radius), &near, &far, worst, training)?;
    save(request, &record)?;
    Ok(record)
}

/// STSS's radius, as given or by default.
fn radius_of(options: &toml::Table) -> f32 {
    let defaults = methods::adapter("stss").map(|spec| spec.defaults()).unwrap_or_default();
    let value = options.get("radius").or_else(|| defaults.get("radius"));
    value.and_then(|v| v.as_float().or_else(|| v.as_integer().map(|i| i as f64))).unwrap_or(0.5) as f32
}

fn worst_case(request: &AnalyzeRequest, task: &Task, shots: &ShotFeatures, radius: f32) -> Result<WorstCase> {
    let side = task.text_side("analyze")?;
    let search =
        WorstCaseSearch { radius, steps: 8, directions: 32, own_gradients: 128, floor: ETA, seed: request.seed };
    let probe = shots.probe("training loss".into());
    WorstCase::measure(side.tower, side.tokens, task.start_context("analyze")?, task.logit_scale, &probe, &search)
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
    request: &AnalyzeRequest,
    model: &Model,
    task: &Task,
    stss: &dyn Adapter,
    dataset: &Dataset,
    centres: &Matrix,
    progress: &dyn Progress,
) -> Result<Found> {
    let indices: Vec<usize> = (0..dataset.samples.len().min(request.limit)).collect();
    progress.start(&dataset.name, Some(indices.len() as u64));
    let mut found = Found::default();
    let decode = dataset.decode_options(request.exif);
    for batch in indices.chunks(BATCH) {
        let pictures = batch.iter().map(|&i| dataset.samples[i].picture(&decode));
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
            found.features.extend_from_slice(one.row(0));
        }
        progress.advance(found.probabilities.len() as u64, "");
        if progress.cancelled() {
            return Err(Error::Interrupted(format!("{}: nothing was written", dataset.name)));
        }
    }
    progress.finish();
    Ok(found)
}

fn record(
    request: &AnalyzeRequest,
    (task, shots, radius): (&Task, &ShotFeatures, f32),
    near: &Found,
    far: &Found,
    worst: WorstCase,
    training: String,
) -> Result<AnalysisRecord> {
    let separation = Separation::measure(&near.scores.scores, &far.scores.scores)
        .ok_or_else(|| Error::config("limit", "one of the sets has no image"))?;
    let gap =
        |found: &Found| EntropyGap::measure(found.probabilities.iter().map(|(p, label)| (p.as_slice(), *label)), ETA);
    let both = |pick: &dyn Fn(&Scores) -> &[f32]| [pick(&near.scores), pick(&far.scores)].concat();
    let quantiles = (near.scores.quantile_above_mean(DELTA / 2.0), far.scores.quantile_above_mean(DELTA / 2.0));
    let left = (near.scores.mean_score(), far.scores.mean_score());
    let bound = Bound::new(worst, DELTA, ETA, quantiles, left);
    let divergence = |found: &Found| {
        let width = shots.features.cols();
        let features = Matrix::from_vec(found.features.len() / width.max(1), width, found.features.clone());
        Divergence::measure(&shots.features, &features, DELTA, request.seed)
            .ok_or_else(|| Error::config("limit", "a divergence needs at least four images of each set"))
    };
    let search = RademacherSearch { radius, draws: 4, steps: 4, seed: request.seed };
    let (side, context) = (task.text_side("analyze")?, task.start_context("analyze")?);
    let complexity = Rademacher::measure(side.tower, side.tokens, context, task.logit_scale, &shots.features, &search)?;
    let quantile_left = (near.scores.quantile(DELTA), far.scores.quantile(DELTA));
    let theory = Theory::new(&bound, (divergence(near)?, divergence(far)?), complexity, quantile_left);
    let norm = f64::from(radius) / l2_norm(context.data.iter()).max(f64::MIN_POSITIVE);
    let name = |data: &Dataset| if data.spec.is_empty() { data.name.clone() } else { data.spec.clone() };
    Ok(AnalysisRecord {
        schema_version: 2,
        near: AnalysedSet::new(&name(&request.near), &near.scores, gap(near)),
        far: AnalysedSet::new(&name(&request.far), &far.scores, gap(far)),
        holds: separation.holds(),
        holds_everywhere: separation.holds_everywhere(),
        separation,
        distance_score_rank_correlation: rank_correlation(&both(&|s| &s.distances), &both(&|s| &s.scores)),
        training,
        bound,
        theory,
        relative_radius: norm,
    })
}

fn save(request: &AnalyzeRequest, record: &AnalysisRecord) -> Result<()> {
    let out = &request.out;
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    write_atomic(&out.join("scores.svg"), record.score_figure().to_svg().as_bytes())?;
    write_atomic(&out.join("accuracy-by-score.svg"), record.decile_figure().to_svg().as_bytes())?;
    let json = serde_json::to_string_pretty(record).map_err(|e| Error::config(ANALYSIS_FILE, e.to_string()))?;
    write_atomic(&out.join(ANALYSIS_FILE), json.as_bytes())?;
    let title = "Analysis of sharpness scores".to_owned();
    let page = Page { title, text: String::new(), sections: record.sections() };
    write_atomic(&out.join("analysis.html"), page.to_html().as_bytes())
}
