//! BoostAdapter over a stream of features.

use super::case::{Case, Report, Tolerance};
use super::inputs::{accuracy, cached, close, fault, feature_task, nested, stream};
use flatclip::methods::adapters::boostadapter::{BoostAdapter, Config, Represented};
use flatclip::methods::probability::argmax;
use flatclip::methods::query::normalised_entropy;
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

fn config(case: &Case) -> Result<Config, String> {
    let number = |path: &str| nested(case, path);
    let query = match case.hyper("query").as_str() {
        Some("view 0") => Represented::View0,
        Some("confident mean") => Represented::ConfidentMean,
        other => return Err(format!("query {other:?}")),
    };
    Ok(Config {
        fraction: case.number("view_fraction")?,
        query,
        alpha: number("/positive/alpha")?,
        beta: number("/positive/beta")?,
        capacity: number("/positive/shot_capacity")? as usize,
        delta: case.hyper("delta").as_u64().unwrap_or(0) as usize,
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

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let mut adapter = BoostAdapter::new(config(case)?);
    adapter.prepare(&task).map_err(fault)?;
    let (mut zero_shot, mut entropy, mut doubt, mut logits) = (vec![], vec![], vec![], vec![]);
    let (mut pseudo, mut selected, mut selected_pred, mut final_pred) = (vec![], vec![], vec![], vec![]);
    for views in stream(case)? {
        let seen = ViewLogits::new(&views, task.text_features(), task.logit_scale);
        let (query, selection) = adapter.query(&views, &seen);
        zero_shot.extend(&query.logits);
        entropy.push(query.entropy);
        doubt.push(normalised_entropy(query.entropy, task.class_count()));
        pseudo.push(query.prediction);
        selected_pred.extend(selection.selected.iter().map(|&view| argmax(seen.logits.row(view))));
        selected.extend(selection.selected);
        let answer = adapter.adapt(&task, &ViewSet::new("case", &views)).map_err(fault)?;
        final_pred.push(answer.prediction);
        logits.extend(answer.class_scores);
    }
    let mut report = Report::default();
    close(&mut report, case, "clip_logits", &zero_shot)?;
    close(&mut report, case, "entropy", &entropy)?;
    close(&mut report, case, "norm_entropy", &doubt)?;
    report.equal("pred", &pseudo, &case.indices("out.pred")?);
    let boosting = case.indices("out.selected")?;
    // With fewer views than 1 / fraction nothing boosts, and nothing is listed.
    if !boosting.is_empty() {
        report.equal("selected", &selected, &boosting);
        report.equal("selected_pred", &selected_pred, &case.indices("out.selected_pred")?);
    }
    close(&mut report, case, "final_logits", &logits)?;
    report.equal("final_pred", &final_pred, &case.indices("out.final_pred")?);
    close(&mut report, case, "accuracy", &[accuracy(&final_pred, &case.indices("in.labels")?)])?;
    cached(&mut report, case, "pos", "keys", &adapter.caches.positive, Tolerance::atol(1e-3))?;
    cached(&mut report, case, "neg", "keys", &adapter.caches.negative, Tolerance::atol(1e-3))?;
    Ok(report)
}
