//! ECALP over a stream of features.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{feature_task, stream};
use flatclip::methods::adapters::ecalp::{Config, Ecalp};
use flatclip::methods::probability::argmax;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
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
    bare.prepare(&task)?;
    whole.prepare(&task)?;
    let mut report = Report::of(case);
    for image in stream(case)? {
        let own = bare.step(&task, image.row(0));
        report.whole("pred", [argmax(&own)]);
        report.real("scores", own);
        report.real("prob", whole.adapt(&task, &ViewSet::new("case", &image))?.probabilities);
    }
    // The factor of 10000 makes a third of what is round-off in the scores.
    report.settle("prob", Tolerance::atol(0.3));
    Ok(report)
}
