//! DOTA over a stream of features.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, stream};
use flatclip::methods::adapters::dota::{Config, Dota};
use flatclip::methods::query::Query;
use flatclip::methods::select::{LowestScore, Score, ViewLogits};
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let config = Config {
        fraction: case.number("view_fraction")?,
        epsilon: case.number("epsilon")?,
        sigma: case.number("sigma")?,
        eta: case.number("eta")?,
        rho: case.number("rho")?,
        mean_start: case.number("mu_init")?,
        ..Config::default()
    };
    let mut dota = Dota::new(config.clone());
    dota.prepare(&task)?;
    let mut report = Report::of(case);
    for views in stream(case)? {
        let seen = ViewLogits::new(&views, task.text_features(), task.logit_scale);
        let (query, selection) =
            Query::confident(&views, &seen, LowestScore { fraction: config.fraction, score: Score::Entropy });
        let (scores, weight) = dota.correction(&query.feature, selection.selected.len());
        report.real("clip_logits", &query.logits);
        report.real("dota_logits", scores);
        report.real("dota_weight", [weight]);
        let answer = dota.adapt(&task, &ViewSet::new("case", &views))?;
        report.whole("final_pred", [answer.prediction]);
        report.real("final_logits", answer.class_scores);
    }
    report.accuracy("accuracy", "final_pred")?;
    report.close("mu", dota.means.data());
    report.close("count", &dota.counts);
    report.close("overall_sigma", dota.mean_covariance());
    report.close("lambda", &dota.precision);
    Ok(report)
}
