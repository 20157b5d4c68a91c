//! ECALP over a stream of features.

use super::case::{Case, Report, Tolerance};
use super::inputs::{close, fault, feature_task, rounded, stream};
use flatclip::methods::adapters::ecalp::{Config, Ecalp};
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let config = Config {
        text_neighbours: case.count("k_text")?,
        image_neighbours: case.count("k_image")?,
        gamma: case.number("gamma")?,
        alpha: case.number("alpha")?,
        iterations: case.count("iterations")?,
        compat: true,
    };
    let (mut bare, mut whole) = (Ecalp::new(config.clone()), Ecalp::new(config));
    bare.prepare(&task).map_err(fault)?;
    whole.prepare(&task).map_err(fault)?;
    let (mut scores, mut probabilities, mut predictions) = (vec![], vec![], vec![]);
    for image in stream(case)? {
        let own = bare.step(&task, image.row(0));
        predictions.push((0..own.len()).fold(0, |best, k| if own[k] > own[best] { k } else { best }));
        scores.extend(own);
        probabilities.extend(whole.adapt(&task, &ViewSet::new("case", &image)).map_err(fault)?.probabilities);
    }
    let mut report = Report::default();
    close(&mut report, case, "scores", &rounded(&scores))?;
    // The factor of 10000 makes a third of what is round-off in the scores.
    report.close("prob", &probabilities, case.f32("out.prob")?, Tolerance::atol(0.3));
    report.equal("pred", &predictions, &case.indices("out.pred")?);
    Ok(report)
}
