//! BCA over a stream of features.

use super::case::{Case, Report};
use super::inputs::{close, fault, feature_task, predictions, rounded, stream};
use flatclip::methods::adapters::bca::{Bca, Config};
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
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
    bca.prepare(&task).map_err(fault)?;
    let (mut answers, mut moved, mut prior_moved) = (vec![], vec![], vec![]);
    for views in stream(case)? {
        let before: [f64; 2] = [bca.likelihood_counts.iter().sum(), bca.prior_counts.iter().sum()];
        answers.push(bca.adapt(&task, &ViewSet::new("case", &views)).map_err(fault)?);
        moved.push((bca.likelihood_counts.iter().sum::<f64>() - before[0]) as usize);
        prior_moved.push((bca.prior_counts.iter().sum::<f64>() - before[1]) as usize);
    }
    let mut report = Report::default();
    let probabilities: Vec<f32> = answers.iter().flat_map(|a| a.probabilities.clone()).collect();
    close(&mut report, case, "prob", &probabilities)?;
    report.equal("pred", &predictions(&answers), &case.indices("out.pred")?);
    report.equal("likelihood_updated", &moved, &case.indices("out.likelihood_updated")?);
    report.equal("prior_updated", &prior_moved, &case.indices("out.prior_updated")?);
    close(&mut report, case, "mu", bca.embeddings.data())?;
    close(&mut report, case, "prior", &rounded(&bca.prior))?;
    let updates: Vec<f32> = bca.likelihood_counts.iter().map(|count| (count - start) as f32).collect();
    close(&mut report, case, "count1", &updates)?;
    close(&mut report, case, "count2", &rounded(&bca.prior_counts))?;
    if case.has("out.selected") {
        let selected: Vec<usize> = answers.iter().flat_map(|a| a.explanation.selected.clone()).collect();
        report.equal("selected", &selected, &case.indices("out.selected")?);
    }
    Ok(report)
}
