//! `c-tpt`, joint and in two steps.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs;
use super::tpt::steps;
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::c_tpt::{CTpt, Config, dispersion};

fn config(case: &Case) -> Fallible<Config> {
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

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let features = case.image_features(&clip, "in.views")?;
    let (answer, tuned) = CTpt::new(config(case)?).adapt_traced(&task, &ViewSet::new("case", &features))?;
    let mut report = Report::of(case);
    report.close_to("entropy", &answer.explanation.entropies, Tolerance::atol(1e-3));
    report.equal("selected", &answer.explanation.selected);
    let spread: Vec<f32> = tuned.steps.iter().map(|s| dispersion(&s.text_features).value).collect();
    let tolerance = case.tolerance("dispersion", Tolerance::atol(1e-5));
    let expected = case.f32("out.dispersion")?;
    report.compare("dispersion", &spread[..spread.len().min(expected.len())], expected, tolerance);
    steps(&mut report, &tuned);
    report.close_or("final_logits", &answer.class_scores, Tolerance::atol(5e-3));
    let confidence = answer.probabilities[answer.prediction];
    report.close_to("final_confidence", [confidence], Tolerance::atol(1e-3));
    Ok(report)
}
