//! DPE over a stream of features.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{self, accuracy, cached, stream};
use flatclip::methods::adapters::dpe::{Config, Dpe, Inference};
use flatclip::methods::{OnlineAdapter as _, Task, ViewSet};

fn config(case: &Case) -> Fallible<Config> {
    let all_views = case.hyper("dataset").as_str() == Some("A");
    Ok(Config {
        alpha: case.number("alpha")?,
        beta: case.number("beta")?,
        align: case.number("align")?,
        lr_text: case.number("lr_text")?,
        lr_image: case.number("lr_image")?,
        steps: case.count("steps")?,
        capacity: case.count("shot_capacity")?,
        threshold: case.number("entropy_gate")?,
        temperature: case.number("infonce_temperature")?,
        inference: if all_views { Inference::Confident } else { Inference::View0 },
        ..Config::default()
    })
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let text = inputs::matrix(case, "in.clip_weights")?;
    let task = Task::new(inputs::names(text.rows()), text, case.number("logit_scale")? as f32, 0)?;
    let mut dpe = Dpe::new(config(case)?);
    dpe.prepare(&task)?;
    let mut report = Report::of(case);
    let mut predictions = Vec::new();
    for views in stream(case)? {
        report.real("text_prototypes_before", dpe.text.data());
        let answer = dpe.adapt(&task, &ViewSet::new("case", &views))?;
        report.real("final_logits", &answer.class_scores);
        report.real("text_residual", dpe.last.as_ref().ok_or("no residuals")?.text.data());
        predictions.push(answer.prediction);
    }
    let tolerance = |key: &str, fallback| case.tolerance(key, Tolerance::atol(fallback));
    let prototypes = tolerance("text_prototypes", 2e-5);
    report.settle("final_logits", tolerance("final_logits", 0.02));
    report.close_to("text_prototypes", dpe.text.data(), prototypes);
    report.settle("text_prototypes_before", prototypes);
    report.settle("text_residual", tolerance("text_residual", 5e-5));
    let image = &dpe.last.as_ref().ok_or("no residuals")?.image;
    report.close_to("image_residual_last", image.data(), tolerance("image_residual_last", 5e-5));
    report.equal("num_updates", [dpe.folded]);
    let percent = accuracy(&predictions, &case.indices("in.labels")?);
    report.close_to("accuracy", [percent], Tolerance::atol(1e-3));
    cached(&mut report, "cache", "features", &dpe.cache, Tolerance::atol(1e-3))?;
    Ok(report)
}
