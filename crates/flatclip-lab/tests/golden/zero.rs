//! ZERO, from pixels and from features.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, samples, unit};
use flatclip::methods::adapters::zero::{Temperature, Zero};
use flatclip::methods::aggregate::TieFallback;
use flatclip::methods::select::ranking;
use flatclip::methods::{Adapter as _, Decision, Task, ViewSet};
use flatclip_tensor::Matrix;

/// The original in f32, index slip included.
fn adapter(case: &Case) -> Result<Zero, String> {
    let gamma = case.number("gamma")?;
    let temperature = Temperature::F32Eps;
    let tie_fallback = TieFallback::Original;
    Ok(Zero { fraction: gamma, temperature, tie_fallback, ..Zero::default() })
}

fn answer(case: &Case, text: &Matrix, scale: f32, features: &Matrix) -> Result<Decision, String> {
    let task = Task::new(inputs::names(text.rows()), text.clone(), scale, 0).map_err(|e| e.to_string())?;
    adapter(case)?.adapt(&task, &ViewSet::new("case", features)).map_err(|e| e.to_string())
}

pub fn features(case: &Case) -> Result<Report, String> {
    let mut report = Report::default();
    let text = inputs::matrix(case, "in.text_features")?;
    let scale = case.f32("in.logit_scale")?[0];
    let (mut votes, mut selected, mut predictions) = (Vec::new(), Vec::new(), Vec::new());
    for views in samples(case, "in.image_features")? {
        let answer = answer(case, &text, scale, &unit(views))?;
        votes.extend(answer.class_scores);
        selected.extend(answer.explanation.selected);
        predictions.push(answer.prediction);
    }
    report.equal("selected", &selected, &case.indices("out.selected")?);
    report.close("p_bar", &votes, case.f32("out.p_bar")?, case.tolerance("p_bar", Tolerance::atol(1e-3)));
    report.equal("pred", &predictions, &case.indices("out.pred")?);
    Ok(report)
}

pub fn pixels(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let (views, _) = inputs::image_features(case, &clip, "in.views")?;
    let text = inputs::text_features(case, &clip, "in.tokens")?;
    let answer = answer(case, &text, clip.logit_scale(), &views)?;
    let mut report = Report::default();
    report.close("text_features", text.data(), case.f32("out.text_features")?, Tolerance::atol(1e-5));
    report.close("entropy", &answer.explanation.entropies, case.f32("out.entropy")?, Tolerance::atol(1e-3));
    report.equal("selected", &answer.explanation.selected, &case.indices("out.selected")?);
    report.equal("sorted", &ranking(&answer.explanation.scores), &case.indices("out.sorted")?);
    report.close("p_bar", &answer.class_scores, case.f32("out.p_bar")?, case.tolerance("p_bar", Tolerance::atol(1e-3)));
    report.equal("pred", &[answer.prediction], &case.indices("out.pred")?);
    Ok(report)
}
