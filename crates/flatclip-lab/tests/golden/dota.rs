//! DOTA over a stream of features.

use super::case::{Case, Report};
use super::inputs::{accuracy, close, fault, feature_task, rounded, stream};
use flatclip::methods::adapters::dota::{Config, Dota};
use flatclip::methods::query::Query;
use flatclip::methods::select::{LowestScore, Score, ViewLogits};
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
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
    dota.prepare(&task).map_err(fault)?;
    let (mut zero_shot, mut corrections, mut weights, mut logits, mut predictions) =
        (vec![], vec![], vec![], vec![], vec![]);
    for views in stream(case)? {
        let seen = ViewLogits::new(&views, task.text_features(), task.logit_scale);
        let (query, selection) =
            Query::confident(&views, &seen, LowestScore { fraction: config.fraction, score: Score::Entropy });
        let (scores, weight) = dota.correction(&query.feature, selection.selected.len());
        zero_shot.extend(&query.logits);
        corrections.extend(scores);
        weights.push(weight as f32);
        let answer = dota.adapt(&task, &ViewSet::new("case", &views)).map_err(fault)?;
        predictions.push(answer.prediction);
        logits.extend(answer.class_scores);
    }
    let mut report = Report::default();
    close(&mut report, case, "clip_logits", &zero_shot)?;
    close(&mut report, case, "dota_logits", &corrections)?;
    close(&mut report, case, "dota_weight", &weights)?;
    close(&mut report, case, "final_logits", &logits)?;
    report.equal("final_pred", &predictions, &case.indices("out.final_pred")?);
    close(&mut report, case, "accuracy", &[accuracy(&predictions, &case.indices("in.labels")?)])?;
    close(&mut report, case, "mu", dota.means.data())?;
    close(&mut report, case, "count", &rounded(&dota.counts))?;
    close(&mut report, case, "overall_sigma", &rounded(&dota.mean_covariance()))?;
    close(&mut report, case, "lambda", &rounded(&dota.precision))?;
    Ok(report)
}
