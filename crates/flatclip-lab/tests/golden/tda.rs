//! TDA over a stream, from pixels or from features.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{self, accuracy, cached, stream, unit};
use flatclip::methods::adapters::tda::{Config, Tda};
use flatclip::methods::probability::{argmax, mean_row};
use flatclip::methods::query::{Query, normalised_entropy};
use flatclip::methods::select::{LowestScore, Score, ViewLogits};
use flatclip::methods::{OnlineAdapter as _, Task, ViewSet};
use flatclip::model::Clip;
use flatclip_tensor::Matrix;

fn config(case: &Case) -> Fallible<Config> {
    let number = |key: &str| case.number(key);
    let flag = |key: &str| case.hyper(key)["enabled"].as_bool().unwrap_or(true);
    Ok(Config {
        positive: flag("positive"),
        alpha: number("positive/alpha")?,
        beta: number("positive/beta")?,
        capacity: number("positive/shot_capacity")? as usize,
        negative: flag("negative"),
        negative_alpha: number("negative/alpha")?,
        negative_beta: number("negative/beta")?,
        negative_capacity: number("negative/shot_capacity")? as usize,
        entropy_low: number("negative/entropy_threshold/lower")?,
        entropy_high: number("negative/entropy_threshold/upper")?,
        mask_low: number("negative/mask_threshold/lower")?,
        mask_high: number("negative/mask_threshold/upper")?,
        ..Config::default()
    })
}

/// The stream of samples, each `[V, D]` unit-norm.
fn samples(case: &Case, clip: Option<&Clip>) -> Fallible<Vec<Matrix>> {
    let Some(clip) = clip else { return stream(case) };
    let all = case.image_features(clip, "in.images")?;
    let views = all.rows() / case.shape("in.images")?[0];
    Ok(all.data().chunks(views * all.cols()).map(|part| Matrix::from_vec(views, all.cols(), part.to_vec())).collect())
}

/// Class weights: the normalised mean over templates of normalised text features, `in.tokens` being `[K, templates, 77]`.
fn class_weights(case: &Case, clip: &Clip) -> Fallible<Matrix> {
    let each = case.text_features(clip, "in.tokens")?;
    let templates = case.shape("in.tokens")?[1];
    let rows: Vec<f32> = (0..each.rows() / templates)
        .flat_map(|class| mean_row(&each, &(class * templates..(class + 1) * templates).collect::<Vec<_>>()))
        .collect();
    Ok(unit(Matrix::from_vec(rows.len() / each.cols(), each.cols(), rows)))
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let mut report = Report::of(case);
    let clip = case.spec["model"].is_string().then(|| case.clip()).transpose()?;
    let text = match &clip {
        Some(clip) => class_weights(case, clip)?,
        None => inputs::matrix(case, "out.clip_weights")?,
    };
    report.close_to("clip_weights", text.data(), Tolerance::atol(1e-5));
    let task = Task::new(inputs::names(text.rows()), text, case.number("logit_scale")? as f32, 0)?;
    let config = config(case)?;
    let mut tda = Tda::new(config.clone());
    tda.prepare(&task)?;
    let mut predictions = Vec::new();
    for views in &samples(case, clip.as_deref())? {
        let seen = ViewLogits::new(views, task.text_features(), task.logit_scale);
        let (query, _) =
            Query::confident(views, &seen, LowestScore { fraction: config.fraction, score: Score::Entropy });
        report.real("clip_logits", &query.logits);
        report.real("entropy", [query.entropy]);
        report.real("norm_entropy", [normalised_entropy(query.entropy, task.class_count())]);
        report.whole("pred", [query.prediction]);
        let answer = tda.adapt(&task, &ViewSet::new("case", views))?;
        predictions.push(argmax(&answer.class_scores));
        report.real("final_logits", answer.class_scores);
    }
    let (tight, final_logits) = (Tolerance::atol(1e-3), case.tolerance("final_logits", Tolerance::atol(5e-3)));
    for (name, tolerance) in
        [("clip_logits", final_logits), ("entropy", tight), ("norm_entropy", tight), ("final_logits", final_logits)]
    {
        report.settle(name, tolerance);
    }
    report.close_to("accuracy", [accuracy(&predictions, &case.indices("in.labels")?)], tight);
    cached(&mut report, "pos", "keys", &tda.caches.positive, tight)?;
    cached(&mut report, "neg", "keys", &tda.caches.negative, tight)?;
    Ok(report)
}
