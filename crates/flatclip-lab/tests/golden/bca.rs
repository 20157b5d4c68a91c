//! BCA over a stream of features.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, stream};
use flatclip::methods::adapters::bca::{Bca, Config};
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let config = Config {
        fraction: case.number("selection_p")?,
        likelihood_threshold: case.number("threshold1")?,
        likelihood_count: case.number("init_count1")?,
        prior_threshold: case.number("threshold2")?,
        prior_count: case.number("init_count2")?,
        ..Config::default()
    };
    let start = config.likelihood_count;
    let mut bca = Bca::new(config);
    bca.prepare(&task)?;
    let mut report = Report::of(case);
    for views in stream(case)? {
        let before: [f64; 2] = [bca.likelihood_counts.iter().sum(), bca.prior_counts.iter().sum()];
        let answer = bca.adapt(&task, &ViewSet::new("case", &views))?;
        report.real("prob", answer.probabilities);
        report.whole("pred", [answer.prediction]);
        report.whole("likelihood_updated", [(bca.likelihood_counts.iter().sum::<f64>() - before[0]) as usize]);
        report.whole("prior_updated", [(bca.prior_counts.iter().sum::<f64>() - before[1]) as usize]);
        if case.has("out.selected") {
            report.whole("selected", answer.explanation.selected);
        }
    }
    report.close("mu", bca.embeddings.data());
    report.close("prior", &bca.prior);
    report.close("count1", bca.likelihood_counts.iter().map(|count| count - start));
    report.close("count2", &bca.prior_counts);
    Ok(report)
}
