//! ADAPT over a stream of features, or on them as one set.

use super::case::{Case, Report};
use super::inputs::{accuracy, close, fault, feature_task, stream};
use flatclip::methods::adapters::{adapt, adapt_set};
use flatclip::methods::gaussian::Discriminant;
use flatclip::methods::probability::argmax;
use flatclip::methods::query::Query;
use flatclip::methods::select::{LowestScore, Score, ViewLogits};
use flatclip::methods::{OnlineAdapter as _, ViewSet};
use flatclip_tensor::Matrix;

pub fn run(case: &Case) -> Result<Report, String> {
    match case.hyper("mode").as_str() {
        Some("online") => online(case),
        Some("transductive") => transductive(case),
        other => Err(format!("mode {other:?}")),
    }
}

fn online(case: &Case) -> Result<Report, String> {
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
    adapter.prepare(&task).map_err(fault)?;
    let (mut zero_shot, mut entropy, mut scores, mut logits) = (vec![], vec![], vec![], vec![]);
    let (mut pseudo, mut entered, mut predictions) = (vec![], vec![], vec![]);
    for views in stream(case)? {
        let seen = ViewLogits::new(&views, task.text_features(), task.logit_scale);
        let (query, _) = Query::confident(&views, &seen, LowestScore { fraction, score: Score::Entropy });
        let enters = adapter.enter(&query, &task);
        let answer = adapter.logits(&query, enters);
        scores.extend(adapter.discriminant.as_ref().ok_or("no classifier")?.scores(&query.feature));
        zero_shot.extend(&query.logits);
        entropy.push(query.entropy);
        pseudo.push(query.prediction);
        entered.push(usize::from(enters));
        predictions.push(argmax(&answer));
        logits.extend(answer);
    }
    let mut report = Report::default();
    close(&mut report, case, "clip_logits", &zero_shot)?;
    close(&mut report, case, "entropy", &entropy)?;
    report.equal("pseudo_label", &pseudo, &case.indices("out.pseudo_label")?);
    report.equal("inserted", &entered, &case.indices("out.inserted")?);
    close(&mut report, case, "gda_logits", &scores)?;
    close(&mut report, case, "final_logits", &logits)?;
    report.equal("pred", &predictions, &case.indices("out.pred")?);
    close(&mut report, case, "accuracy", &[accuracy(&predictions, &case.indices("in.labels")?)])?;
    classifier(&mut report, case, &adapter.means, adapter.discriminant.as_ref().ok_or("no classifier")?)?;
    banks(&mut report, case, &adapter.banks, size)?;
    Ok(report)
}

fn classifier(report: &mut Report, case: &Case, means: &Matrix, found: &Discriminant) -> Result<(), String> {
    close(report, case, "mu", means.data())?;
    close(report, case, "W", found.weights.data())?;
    close(report, case, "b", &found.biases)
}

fn banks(report: &mut Report, case: &Case, banks: &adapt::Banks, size: usize) -> Result<(), String> {
    let width = case.shape("in.text_features")?[1];
    let (mut keys, mut maps, mut entropies) = (vec![], vec![], vec![]);
    for bank in banks {
        for place in 0..size {
            let item = bank.get(place);
            keys.extend(item.map_or(vec![0.0; width], |i| i.feature.clone()));
            maps.extend(item.map_or(vec![0.0; banks.len()], |i| i.probabilities.clone()));
            entropies.push(item.map_or(-1.0, |i| i.uncertainty));
        }
    }
    close(report, case, "bank.keys", &keys)?;
    close(report, case, "bank.prob", &maps)?;
    close(report, case, "bank.entropy", &entropies)?;
    let counts: Vec<usize> = banks.iter().map(Vec::len).collect();
    report.equal("bank.count", &counts, &case.indices("out.bank.count")?);
    Ok(())
}

fn transductive(case: &Case) -> Result<Report, String> {
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
    let mut report = Report::default();
    close(&mut report, case, "clip_logits", &found.zero_shot.concat())?;
    close(&mut report, case, "entropy", &found.entropies)?;
    let pseudo: Vec<usize> = found.zero_shot.iter().map(|row| argmax(row)).collect();
    report.equal("pseudo_label", &pseudo, &case.indices("out.pseudo_label")?);
    let scores: Vec<f32> = found.features.iter().flat_map(|x| found.discriminant.scores(x)).collect();
    close(&mut report, case, "gda_logits", &scores)?;
    close(&mut report, case, "final_logits", &found.logits.concat())?;
    let predictions: Vec<usize> = found.logits.iter().map(|row| argmax(row)).collect();
    report.equal("pred", &predictions, &case.indices("out.pred")?);
    classifier(&mut report, case, &found.means, &found.discriminant)?;
    report.equal("bank.count", &found.counts, &case.indices("out.bank.count")?);
    Ok(report)
}
