//! ZERO, from pixels and from features.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{self, samples, unit};
use flatclip::methods::adapters::zero::{Temperature, Zero};
use flatclip::methods::aggregate::TieFallback;
use flatclip::methods::select::ranking;
use flatclip::methods::{Adapter as _, Decision, Task, ViewSet};
use flatclip_tensor::Matrix;

/// The original in f32, index slip included.
fn adapter(case: &Case) -> Fallible<Zero> {
    let gamma = case.number("gamma")?;
    let temperature = Temperature::F32Eps;
    let tie_fallback = TieFallback::Original;
    Ok(Zero { fraction: gamma, temperature, tie_fallback, ..Zero::default() })
}

fn answer(case: &Case, text: &Matrix, scale: f32, features: &Matrix) -> Fallible<Decision> {
    let task = Task::new(inputs::names(text.rows()), text.clone(), scale, 0)?;
    Ok(adapter(case)?.adapt(&task, &ViewSet::new("case", features))?)
}

pub fn features(case: &Case) -> Fallible<Report<'_>> {
    let mut report = Report::of(case);
    let text = inputs::matrix(case, "in.text_features")?;
    let scale = case.f32("in.logit_scale")?[0];
    for views in samples(case, "in.image_features")? {
        let answer = answer(case, &text, scale, &unit(views))?;
        report.real("p_bar", answer.class_scores);
        report.whole("selected", answer.explanation.selected);
        report.whole("pred", [answer.prediction]);
    }
    Ok(report)
}

pub fn pixels(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let views = case.image_features(&clip, "in.views")?;
    let text = case.text_features(&clip, "in.tokens")?;
    let answer = answer(case, &text, clip.logit_scale(), &views)?;
    let mut report = Report::of(case);
    report.close_to("text_features", text.data(), Tolerance::atol(1e-5));
    report.close_to("entropy", &answer.explanation.entropies, Tolerance::atol(1e-3));
    report.equal("selected", &answer.explanation.selected);
    report.equal("sorted", ranking(&answer.explanation.scores));
    report.close_or("p_bar", &answer.class_scores, Tolerance::atol(1e-3));
    report.equal("pred", [answer.prediction]);
    Ok(report)
}
