//! TDA over a stream, from pixels or from features.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, cached, fault, samples, unit};
use flatclip::methods::adapters::tda::{Config, Tda};
use flatclip::methods::probability::{argmax, mean_row};
use flatclip::methods::query::{Query, normalised_entropy};
use flatclip::methods::select::{LowestScore, Score, ViewLogits};
use flatclip::methods::{OnlineAdapter as _, Task, ViewSet};
use flatclip::model::Clip;
use flatclip_tensor::Matrix;

fn config(case: &Case) -> Result<Config, String> {
    let number = |path: &str| {
        let value = case.spec["hyperparameters"].pointer(path).and_then(serde_json::Value::as_f64);
        value.ok_or_else(|| format!("hyperparameter {path} is missing"))
    };
    let flag = |key: &str| case.hyper(key)["enabled"].as_bool().unwrap_or(true);
    Ok(Config {
        positive: flag("positive"),
        alpha: number("/positive/alpha")?,
        beta: number("/positive/beta")?,
        capacity: number("/positive/shot_capacity")? as usize,
        negative: flag("negative"),
        negative_alpha: number("/negative/alpha")?,
        negative_beta: number("/negative/beta")?,
        negative_capacity: number("/negative/shot_capacity")? as usize,
        entropy_low: number("/negative/entropy_threshold/lower")?,
        entropy_high: number("/negative/entropy_threshold/upper")?,
        mask_low: number("/negative/mask_threshold/lower")?,
        mask_high: number("/negative/mask_threshold/upper")?,
        ..Config::default()
    })
}

/// The stream of samples, each `[V, D]` unit-norm.
fn stream(case: &Case, clip: Option<&Clip>) -> Result<Vec<Matrix>, String> {
    let Some(clip) = clip else {
        return Ok(samples(case, "in.image_features")?.into_iter().map(unit).collect());
    };
    let (all, _) = inputs::image_features(case, clip, "in.images")?;
    let views = all.rows() / case.shape("in.images")?[0];
    Ok(all.data().chunks(views * all.cols()).map(|part| Matrix::from_vec(views, all.cols(), part.to_vec())).collect())
}

/// Class weights: the normalised mean over templates of normalised text features, `in.tokens` being `[K, templates, 77]`.
fn class_weights(case: &Case, clip: &Clip) -> Result<Matrix, String> {
    let each = inputs::text_features(case, clip, "in.tokens")?;
    let templates = case.shape("in.tokens")?[1];
    let rows: Vec<f32> = (0..each.rows() / templates)
        .flat_map(|class| mean_row(&each, &(class * templates..(class + 1) * templates).collect::<Vec<_>>()))
        .collect();
    Ok(unit(Matrix::from_vec(rows.len() / each.cols(), each.cols(), rows)))
}

pub fn run(case: &Case) -> Result<Report, String> {
    let mut report = Report::default();
    let clip = case.spec["model"].is_string().then(|| case.clip()).transpose()?;
    let text = match &clip {
        Some(clip) => class_weights(case, clip)?,
        None => inputs::matrix(case, "out.clip_weights")?,
    };
    report.close("clip_weights", text.data(), case.f32("out.clip_weights")?, Tolerance::atol(1e-5));
    let task = Task::new(inputs::names(text.rows()), text, case.number("logit_scale")? as f32, 0).map_err(fault)?;
    let config = config(case)?;
    let mut tda = Tda::new(config.clone());
    tda.prepare(&task).map_err(fault)?;
    let (mut zero_shot, mut entropy, mut doubt, mut pseudo) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut logits, mut right) = (Vec::new(), 0);
    let labels = case.indices("in.labels")?;
    for (views, label) in stream(case, clip.as_deref())?.iter().zip(&labels) {
        let seen = ViewLogits::new(views, task.text_features(), task.logit_scale);
        let (query, _) =
            Query::confident(views, &seen, LowestScore { fraction: config.fraction, score: Score::Entropy });
        zero_shot.extend(&query.logits);
        entropy.push(query.entropy);
        doubt.push(normalised_entropy(query.entropy, task.class_count()));
        pseudo.push(query.prediction);
        let answer = tda.adapt(&task, &ViewSet::new("case", views)).map_err(fault)?;
        logits.extend(&answer.class_scores);
        right += usize::from(argmax(&answer.class_scores) == *label);
    }
    let final_logits = case.tolerance("final_logits", Tolerance::atol(5e-3));
    report.close("clip_logits", &zero_shot, case.f32("out.clip_logits")?, final_logits);
    report.close("entropy", &entropy, case.f32("out.entropy")?, Tolerance::atol(1e-3));
    report.close("norm_entropy", &doubt, case.f32("out.norm_entropy")?, Tolerance::atol(1e-3));
    report.equal("pred", &pseudo, &case.indices("out.pred")?);
    report.close("final_logits", &logits, case.f32("out.final_logits")?, final_logits);
    let accuracy = 100.0 * right as f32 / labels.len() as f32;
    report.close("accuracy", &[accuracy], case.f32("out.accuracy")?, Tolerance::atol(1e-3));
    cached(&mut report, case, "pos", "keys", &tda.caches.positive, Tolerance::atol(1e-3))?;
    cached(&mut report, case, "neg", "keys", &tda.caches.negative, Tolerance::atol(1e-3))?;
    Ok(report)
}
