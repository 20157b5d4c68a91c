//! DLAE over a stream of features.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, places, stream};
use flatclip::methods::adapters::dlae::{Config, Dlae, Inference};
use flatclip::methods::probability::argmax;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

fn config(case: &Case) -> Fallible<Config> {
    // The original looks for "A" as a part of the name, so only that set answers with all views.
    let all_views = matches!(case.hyper("dataset").as_str(), Some("A" | "imagenet_a" | "imagenet-a"));
    Ok(Config {
        fraction: case.number("view_fraction")?,
        debias: case.number("alpha")?,
        doubt: case.number("alpha1")?,
        ageing: case.number("epoch")?,
        alpha: case.number("positive/alpha")?,
        beta: case.number("positive/beta")?,
        capacity: case.number("positive/shot_capacity")? as usize,
        lr_text: case.number("learning_rate/text")?,
        lr_image: case.number("learning_rate/image")?,
        align: case.number("learning_rate/align")?,
        eps: case.number("adamw/eps")?,
        weight_decay: case.number("adamw/weight_decay")?,
        threshold: case.number("update_threshold")?,
        inference: if all_views { Inference::Confident } else { Inference::View0 },
        compat: true,
        ..Config::default()
    })
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let options = config(case)?;
    let (capacity, width) = (options.capacity, task.text_features().cols());
    let mut dlae = Dlae::new(options);
    dlae.prepare(&task)?;
    let mut report = Report::of(case);
    for views in stream(case)? {
        report.whole("zero_shot_pred", [argmax(task.logits(&views).row(0))]);
        report.real("text_global", dlae.text.data());
        let answer = dlae.adapt(&task, &ViewSet::new("case", &views))?;
        let trace = dlae.last.as_ref().ok_or("no trace")?;
        report.real("query", &trace.query.feature);
        report.real("clip_logits", &trace.query.logits);
        report.real("entropy", [trace.query.entropy]);
        report.real("conf", [trace.query.probabilities[trace.query.prediction]]);
        report.whole("pred", [trace.query.prediction]);
        report.whole("doubt", [trace.doubted]);
        report.real("cache_entropy", [trace.uncertainty]);
        report.real("loss", [trace.loss]);
        report.real("answer_clip_logits", &trace.answer);
        report.real("final_logits", &answer.class_scores);
        report.whole("final_pred", [answer.prediction]);
    }
    report.accuracy("accuracy", "final_pred")?;
    report.equal("counter", dlae.counts.iter().map(|&n| n as usize));
    report.close("mean_conf", dlae.confidence());
    // The cache at the end: zeros, -1 and -1 where it is empty.
    let items = || places(&dlae.cache, capacity);
    report.close("cache_keys", items().flat_map(|item| item.map_or(vec![0.0; width], |item| item.feature.clone())));
    report.close("cache_loss", items().map(|item| item.map_or(-1.0, |item| item.uncertainty)));
    report.equal("cache_time", items().map(|item| item.map_or(-1, |item| item.time as i64)));
    report.equal("cache_count", dlae.cache.iter().map(Vec::len));
    Ok(report)
}
