//! `c-tpt`, joint and in two steps.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, fault};
use super::tpt::steps;
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::c_tpt::{CTpt, Config, dispersion};

fn config(case: &Case) -> Result<Config, String> {
    Ok(Config {
        weight: case.number("lambda_term")?,
        two_step: case.hyper("two_step").as_bool().unwrap_or(false),
        fraction: case.number("selection_p")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        ..Config::default()
    })
}

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let (features, _) = inputs::image_features(case, &clip, "in.views")?;
    let (answer, tuned) =
        CTpt::new(config(case)?).adapt_traced(&task, &ViewSet::new("case", &features)).map_err(fault)?;
    let mut report = Report::default();
    report.close("entropy", &answer.explanation.entropies, case.f32("out.entropy")?, Tolerance::atol(1e-3));
    report.equal("selected", &answer.explanation.selected, &case.indices("out.selected")?);
    let spread: Vec<f32> = tuned.steps.iter().map(|s| dispersion(&s.text_features).value).collect();
    let tolerance = case.tolerance("dispersion", Tolerance::atol(1e-5));
    let expected = case.f32("out.dispersion")?;
    report.close("dispersion", &spread[..spread.len().min(expected.len())], expected, tolerance);
    steps(&mut report, case, &tuned)?;
    let final_logits = case.tolerance("final_logits", Tolerance::atol(5e-3));
    report.close("final_logits", &answer.class_scores, case.f32("out.final_logits")?, final_logits);
    let confidence = answer.probabilities[answer.prediction];
    report.close("final_confidence", &[confidence], case.f32("out.final_confidence")?, Tolerance::atol(1e-3));
    Ok(report)
}
