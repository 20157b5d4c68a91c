//! `maple`: features of both towers, logits, loss and the gradients of all prompts and projections.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::deep_prompts;
use flatclip::model::VisionInput;
use flatclip::prompt::{Prompt, Provenance};
use flatclip_lab::tuners::{Batch, Maple, Tuner};
use flatclip_tensor::Matrix;

/// The name in the file for a parameter's name.
pub(crate) fn key(name: &str) -> String {
    let name = name.replacen("deep.", "compound_prompts_text.", 1);
    let name = name.replacen("projections.", "compound_prompt_projections.", 1);
    if name == "context" { "ctx".to_owned() } else { name }
}

/// Checks a case.
pub(crate) fn run(case: &Case) -> Fallible<Report<'_>> {
    let fallback = Tolerance { to_max: 2e-3, rtol: 1e-3, ..Tolerance::default() };
    let tolerance = |key: &str| case.tolerance(key, fallback);
    let clip = case.clip()?;
    let context = case.context("in.pl.ctx")?;
    let tokens = case.class_tokens(context.tokens)?;
    let (deep, projections) = deep_prompts(case)?;
    let labels = case.indices("in.labels")?;
    let pixels = case.f32("in.images")?;
    let mut report = Report::of(case);

    let pass = clip.text()?.deep_pass(&tokens, &context, &deep)?;
    report.close_to("text_features", pass.features().data(), tolerance("features"));
    let tuner = Maple::new(context, &deep, &projections, tokens, "", "");
    let visual = Prompt::new(tuner.prompt()?, Provenance::default()).visual_prompts();
    let input = VisionInput { prompts: &visual, ..VisionInput::default() };
    let images = clip.vision().pass(pixels, labels.len(), input)?;
    report.close_to("image_features", images.features().data(), tolerance("features"));

    let batch = Batch { labels: &labels, features: &Matrix::default(), pixels };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch)?;
    report.close_to("logits", loss.logits.data(), tolerance("logits"));
    report.close_to("loss", [loss.value], tolerance("loss"));
    for (parameter, gradient) in tuner.parameters().iter().zip(&loss.gradient) {
        let key = format!("out.grad.{}", key(&parameter.name));
        report.compare(&key, gradient, case.f32(&key)?, tolerance("grads"));
    }
    Ok(report)
}
