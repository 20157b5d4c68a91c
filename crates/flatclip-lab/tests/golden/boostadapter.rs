//! BoostAdapter over a stream of features.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{cached, feature_task, stream};
use flatclip::methods::adapters::boostadapter::{BoostAdapter, Config, Represented};
use flatclip::methods::probability::argmax;
use flatclip::methods::query::normalised_entropy;
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

fn config(case: &Case) -> Fallible<Config> {
    let number = |key: &str| case.number(key);
    let query = match case.hyper("query").as_str() {
        Some("view 0") => Represented::View0,
        Some("confident mean") => Represented::ConfidentMean,
        other => return Err(format!("query {other:?}").into()),
    };
    Ok(Config {
        fraction: case.number("view_fraction")?,
        query,
        alpha: number("positive/alpha")?,
        beta: number("positive/beta")?,
        capacity: number("positive/shot_capacity")? as usize,
        delta: case.hyper("delta").as_u64().unwrap_or(0) as usize,
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

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let mut adapter = BoostAdapter::new(config(case)?);
    adapter.prepare(&task)?;
    let mut report = Report::of(case);
    // With fewer views than 1 / fraction nothing boosts, and nothing is listed.
    let boosts = !case.i64("out.selected")?.is_empty();
    for views in stream(case)? {
        let seen = ViewLogits::new(&views, task.text_features(), task.logit_scale);
        let (query, selection) = adapter.query(&views, &seen);
        report.real("clip_logits", &query.logits);
        report.real("entropy", [query.entropy]);
        report.real("norm_entropy", [normalised_entropy(query.entropy, task.class_count())]);
        report.whole("pred", [query.prediction]);
        if boosts {
            report.whole("selected_pred", selection.selected.iter().map(|&view| argmax(seen.logits.row(view))));
            report.whole("selected", selection.selected);
        }
        let answer = adapter.adapt(&task, &ViewSet::new("case", &views))?;
        report.whole("final_pred", [answer.prediction]);
        report.real("final_logits", answer.class_scores);
    }
    report.accuracy("accuracy", "final_pred")?;
    cached(&mut report, "pos", "keys", &adapter.caches.positive, Tolerance::atol(1e-3))?;
    cached(&mut report, "neg", "keys", &adapter.caches.negative, Tolerance::atol(1e-3))?;
    Ok(report)
}
