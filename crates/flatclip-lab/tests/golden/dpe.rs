//! DPE over a stream of features.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, cached, fault, samples, unit};
use flatclip::methods::adapters::dpe::{Config, Dpe, Inference};
use flatclip::methods::{OnlineAdapter as _, Task, ViewSet};

fn config(case: &Case) -> Result<Config, String> {
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

pub fn run(case: &Case) -> Result<Report, String> {
    let text = inputs::matrix(case, "in.clip_weights")?;
    let task = Task::new(inputs::names(text.rows()), text, case.number("logit_scale")? as f32, 0).map_err(fault)?;
    let mut dpe = Dpe::new(config(case)?);
    dpe.prepare(&task).map_err(fault)?;
    let (mut logits, mut before, mut residuals, mut right) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let labels = case.indices("in.labels")?;
    for (views, label) in samples(case, "in.image_features")?.into_iter().zip(&labels) {
        before.extend_from_slice(dpe.text.data());
        let answer = dpe.adapt(&task, &ViewSet::new("case", &unit(views))).map_err(fault)?;
        logits.extend(&answer.class_scores);
        right += usize::from(answer.prediction == *label);
        residuals.extend_from_slice(dpe.last.as_ref().ok_or("no residuals")?.text.data());
    }
    let mut report = Report::default();
    let tolerance = |key: &str, fallback| case.tolerance(key, Tolerance::atol(fallback));
    report.close("final_logits", &logits, case.f32("out.final_logits")?, tolerance("final_logits", 0.02));
    let prototypes = tolerance("text_prototypes", 2e-5);
    report.close("text_prototypes", dpe.text.data(), case.f32("out.text_prototypes")?, prototypes);
    report.close("text_prototypes_before", &before, case.f32("out.text_prototypes_before")?, prototypes);
    report.close("text_residual", &residuals, case.f32("out.text_residual")?, tolerance("text_residual", 5e-5));
    let image = &dpe.last.as_ref().ok_or("no residuals")?.image;
    let expected = case.f32("out.image_residual_last")?;
    report.close("image_residual_last", image.data(), expected, tolerance("image_residual_last", 5e-5));
    report.equal("num_updates", &[dpe.folded], &case.indices("out.num_updates")?);
    let accuracy = 100.0 * right as f32 / labels.len() as f32;
    report.close("accuracy", &[accuracy], case.f32("out.accuracy")?, Tolerance::atol(1e-3));
    cached(&mut report, case, "cache", "features", &dpe.cache, Tolerance::atol(1e-3))?;
    Ok(report)
}
