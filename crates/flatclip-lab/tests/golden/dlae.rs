//! DLAE over a stream of features.

use super::case::{Case, Report};
use super::inputs::{accuracy, close, fault, feature_task, nested, rounded, stream};
use flatclip::methods::adapters::dlae::{Config, Dlae, Inference};
use flatclip::methods::probability::argmax;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

fn config(case: &Case) -> Result<Config, String> {
    // The original looks for "A" as a part of the name, so only that set answers with all views.
    let all_views = matches!(case.hyper("dataset").as_str(), Some("A" | "imagenet_a" | "imagenet-a"));
    Ok(Config {
        fraction: case.number("view_fraction")?,
        debias: case.number("alpha")?,
        doubt: case.number("alpha1")?,
        ageing: case.number("epoch")?,
        alpha: nested(case, "/positive/alpha")?,
        beta: nested(case, "/positive/beta")?,
        capacity: nested(case, "/positive/shot_capacity")? as usize,
        lr_text: nested(case, "/learning_rate/text")?,
        lr_image: nested(case, "/learning_rate/image")?,
        align: nested(case, "/learning_rate/align")?,
        eps: nested(case, "/adamw/eps")?,
        weight_decay: nested(case, "/adamw/weight_decay")?,
        threshold: case.number("update_threshold")?,
        inference: if all_views { Inference::Confident } else { Inference::View0 },
        compat: true,
        ..Config::default()
    })
}

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let options = config(case)?;
    let (capacity, width) = (options.capacity, task.text_features().cols());
    let mut dlae = Dlae::new(options);
    dlae.prepare(&task).map_err(fault)?;
    let (mut text, mut query, mut logits, mut entropy, mut conf) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut pred, mut doubt, mut stored, mut loss) = (vec![], vec![], vec![], vec![]);
    let (mut before_cache, mut last, mut answers, mut zero_shot) = (vec![], vec![], vec![], vec![]);
    for views in stream(case)? {
        zero_shot.push(argmax(task.logits(&views).row(0)));
        text.extend_from_slice(dlae.text.data());
        let answer = dlae.adapt(&task, &ViewSet::new("case", &views)).map_err(fault)?;
        let trace = dlae.last.as_ref().ok_or("no trace")?;
        query.extend(&trace.query.feature);
        logits.extend(&trace.query.logits);
        entropy.push(trace.query.entropy);
        conf.push(trace.query.probabilities[trace.query.prediction]);
        pred.push(trace.query.prediction);
        doubt.push(usize::from(trace.doubted));
        stored.push(trace.uncertainty);
        loss.push(trace.loss);
        before_cache.extend(&trace.answer);
        last.extend(&answer.class_scores);
        answers.push(answer.prediction);
    }
    let mut report = Report::default();
    for (name, found) in [
        ("text_global", &text),
        ("query", &query),
        ("clip_logits", &logits),
        ("entropy", &entropy),
        ("conf", &conf),
        ("cache_entropy", &stored),
        ("loss", &loss),
        ("answer_clip_logits", &before_cache),
        ("final_logits", &last),
    ] {
        close(&mut report, case, name, found)?;
    }
    report.equal("pred", &pred, &case.indices("out.pred")?);
    report.equal("doubt", &doubt, &case.indices("out.doubt")?);
    report.equal("final_pred", &answers, &case.indices("out.final_pred")?);
    report.equal("zero_shot_pred", &zero_shot, &case.indices("out.zero_shot_pred")?);
    close(&mut report, case, "accuracy", &[accuracy(&answers, &case.indices("in.labels")?)])?;
    let counts: Vec<usize> = dlae.counts.iter().map(|&n| n as usize).collect();
    report.equal("counter", &counts, &case.indices("out.counter")?);
    close(&mut report, case, "mean_conf", &dlae.confidence())?;
    cache(&mut report, case, &dlae, capacity, width)?;
    Ok(report)
}

/// The cache at the end: zeros, -1 and -1 where it is empty.
fn cache(report: &mut Report, case: &Case, dlae: &Dlae, capacity: usize, width: usize) -> Result<(), String> {
    let (mut keys, mut values, mut times) = (vec![], vec![], vec![]);
    for items in &dlae.cache {
        for place in 0..capacity {
            let item = items.get(place);
            keys.extend(item.map_or_else(|| vec![0.0; width], |item| item.feature.clone()));
            values.push(item.map_or(-1.0, |item| f64::from(item.uncertainty)));
            times.push(item.map_or(-1, |item| item.time as i64));
        }
    }
    close(report, case, "cache_keys", &keys)?;
    close(report, case, "cache_loss", &rounded(&values))?;
    report.equal("cache_time", &times, case.i64("out.cache_time")?);
    let counts: Vec<usize> = dlae.cache.iter().map(Vec::len).collect();
    report.equal("cache_count", &counts, &case.indices("out.cache_count")?);
    Ok(())
}
