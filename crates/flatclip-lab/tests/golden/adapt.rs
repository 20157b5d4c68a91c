//! ADAPT over a stream of features, or on them as one set.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, places, stream};
use flatclip::methods::adapters::{adapt, adapt_set};
use flatclip::methods::gaussian::Discriminant;
use flatclip::methods::probability::argmax;
use flatclip::methods::query::Query;
use flatclip::methods::select::{LowestScore, Score, ViewLogits};
use flatclip::methods::{OnlineAdapter as _, ViewSet};
use flatclip_tensor::Matrix;

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    match case.hyper("mode").as_str() {
        Some("online") => online(case),
        Some("transductive") => transductive(case),
        other => Err(format!("mode {other:?}").into()),
    }
}

fn online(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let config = adapt::Config {
        fraction: case.number("view_fraction")?,
        alpha: case.number("alpha")?,
        scale: case.number("scale")?,
        bank: case.count("bank_size")?,
        compat: true,
        ..adapt::Config::default()
    };
    let (fraction, size) = (config.fraction, config.bank);
    let mut adapter = adapt::Adapt::new(config);
    adapter.prepare(&task)?;
    let mut report = Report::of(case);
    for views in stream(case)? {
        let seen = ViewLogits::new(&views, task.text_features(), task.logit_scale);
        let (query, _) = Query::confident(&views, &seen, LowestScore { fraction, score: Score::Entropy });
        let enters = adapter.enter(&query, &task);
        let answer = adapter.logits(&query, enters);
        report.real("gda_logits", adapter.discriminant.as_ref().ok_or("no classifier")?.scores(&query.feature));
        report.real("clip_logits", &query.logits);
        report.real("entropy", [query.entropy]);
        report.whole("pseudo_label", [query.prediction]);
        report.whole("inserted", [enters]);
        report.whole("pred", [argmax(&answer)]);
        report.real("final_logits", answer);
    }
    report.accuracy("accuracy", "pred")?;
    classifier(&mut report, &adapter.means, adapter.discriminant.as_ref().ok_or("no classifier")?);
    let (width, banks) = (task.text_features().cols(), &adapter.banks);
    let items = || places(banks, size);
    report.close("bank.keys", items().flat_map(|item| item.map_or(vec![0.0; width], |i| i.feature.clone())));
    report.close("bank.prob", items().flat_map(|i| i.map_or(vec![0.0; banks.len()], |i| i.probabilities.clone())));
    report.close("bank.entropy", items().map(|item| item.map_or(-1.0, |item| item.uncertainty)));
    report.equal("bank.count", banks.iter().map(Vec::len));
    Ok(report)
}

fn classifier(report: &mut Report<'_>, means: &Matrix, found: &Discriminant) {
    report.close("mu", means.data());
    report.close("W", found.weights.data());
    report.close("b", &found.biases);
}

fn transductive(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let adapter = adapt_set::AdaptSet {
        fraction: case.number("view_fraction")?,
        alpha: case.number("alpha")?,
        scale: case.number("scale")?,
        bank: case.count("bank_size")?,
        compat: true,
        ..adapt_set::AdaptSet::default()
    };
    let images = stream(case)?;
    let sets: Vec<ViewSet<'_>> = images.iter().map(|views| ViewSet::new("case", views)).collect();
    let found = adapter.explain(&task, &sets);
    let mut report = Report::of(case);
    report.close("clip_logits", found.zero_shot.concat());
    report.close("entropy", &found.entropies);
    report.equal("pseudo_label", found.zero_shot.iter().map(|row| argmax(row)));
    report.close("gda_logits", found.features.iter().flat_map(|x| found.discriminant.scores(x)));
    report.close("final_logits", found.logits.concat());
    report.equal("pred", found.logits.iter().map(|row| argmax(row)));
    classifier(&mut report, &found.means, &found.discriminant);
    report.equal("bank.count", &found.counts);
    Ok(report)
}
